"""The configs of AutoTrain Advanced: what its parser asks for, and the pydantic parameters of each task."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .classes import Classes
from .schema import MAPPING, SWITCH, TEXT, section, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

MODELS = {
    "LLMTrainingParams": "clm", "Seq2SeqParams": "seq2seq", "TextClassificationParams": "text_classification",
    "TextRegressionParams": "text_regression", "TokenClassificationParams": "token_classification",
    "ExtractiveQuestionAnsweringParams": "extractive_question_answering",
    "SentenceTransformersParams": "sent_transformers", "VLMTrainingParams": "vlm",
}  # fmt: skip
"""The parameters of the tasks that train a language model -> the folder of their trainer."""


def autotrain(source: Source) -> Json:
    """`AutoTrainConfigParser` reads these sections and nothing else; parameters that a task lacks are only logged.

    `params` holds the parameters of the task, which `$defs` has by class; a command has the same as flags.
    """
    definitions: Json = {}
    for name, folder in MODELS.items():
        made = Classes(source.texts([f"trainers/{folder}/params.py"]), "ignored").object(name)
        made["properties"] |= {"model": TEXT}
        definitions[name] = made
    tasks = [*_mapping(source, "parser.py", "task_aliases"), *_mapping(source, "parser.py", "task_param_map")]
    properties: Json = {
        "task": {"type": "string", "enum": list(dict.fromkeys(tasks))},
        "base_model": TEXT,
        "project_name": TEXT,
        "log": TEXT,
        "backend": TEXT,
        "data": section(
            {
                "path": TEXT,
                "train_split": {},
                "valid_split": {},
                "chat_template": {},
                "column_mapping": MAPPING,
            },
            "ignored",
        ),
        "params": MAPPING,
        "hub": section({"username": {}, "token": {}, "push_to_hub": SWITCH}, "ignored"),
    }
    return whole("AutoTrain config", properties, "ignored", "pydantic", definitions=definitions)


def _mapping(source: Source, path: str, name: str) -> list[str]:
    """The keys of the mapping that a module assigns to an attribute."""
    tree = source.tree(path)
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == f"self.{name}":
            assert isinstance(node.value, ast.Dict)
            return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    raise FileNotFoundError(f"{source.upstream.stamp} has no {name} in {path}")
