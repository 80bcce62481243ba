"""A config for training that is given to a command that serves, chats or exports.

`llamafactory-cli chat`, `webchat`, `api` and `export` parse the arguments of the model, the data, the adapter and the
generation. They stop at those of the Trainer, unless `ALLOW_EXTRA_ARGS` lets them pass.
Source: LLaMA-Factory 0.9.5 `hparams/parser.py` `_INFER_ARGS`, `_parse_infer_args`, `_parse_args`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...source.document import SourceError
from ...upstream.key_releases.table import spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from .starts import Start

_COMMANDS = frozenset({"chat", "webchat", "api", "export"})
HEADS = frozenset({"llamafactory-cli", "lmf"})
_FILES = (".yaml", ".yml", ".json")


def wrong_command(start: Start) -> Iterator[Problem]:
    """The keys of the Trainer in a file that another command is given."""
    words = start.program.words
    if start.program.head not in HEADS or len(words) < 2 or words[0].text not in _COMMANDS:
        return
    if not words[1].text.endswith(_FILES) or "ALLOW_EXTRA_ARGS" in start.environment:
        return
    try:
        document = start.project.open(words[1].text, start.file.path)
    except SourceError:
        return
    span = start.at(words[1])
    if document is None or span is None or not document.root.is_mapping:
        return
    own, trainer = spans("llamafactory"), spans("transformers")
    keys = [key for key in map(str, document.root.keys()) if key in trainer and key not in own]
    if keys:
        named = ", ".join(f"`{key}`" for key in keys[:3])
        more = ", ..." if len(keys) > 3 else ""
        why = f"`{words[0].text}` takes no arguments of the training ({named}{more}) and stops"
        meant = "`train`, or a config of model_name_or_path, adapter_name_or_path, template and infer_backend only"
        yield start.problem("refused-launch", words[1].text, span, reason=why, suggestion=meant)
