"""Tools that are run from their repositories: lingua, mistral-finetune, trlx, prime-rl. All stop at unknown keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .classes import Classes
from .schema import TEXT, whole

if TYPE_CHECKING:
    from .schema import Json
    from .source import Source

_APPS = {
    "apps/mamba/core_mamba.py": "BaseMambaArgs",
    "apps/mamba/mamba.py": "LMMambaArgs",
    "apps/fastRNN/hawk/core_hawk.py": "BaseHawkArgs",
    "apps/fastRNN/minGRU/core_gru.py": "BaseMinGRUArgs",
    "apps/fastRNN/minLSTM/core_lstm.py": "BaseMinLSTMArgs",
    "apps/mtp/transformer.py": "LMMTPArgs",
}
"""Arguments of models that other apps than the main one train."""


def lingua(source: Source) -> Json:
    """`TrainArgs` of the main app; its model's section has the keys of every app's model."""
    paths = ["apps/main/train.py", "apps/main/transformer.py", *source.below("lingua/")]
    classes = Classes(source.texts(paths), "refused")
    properties = {**classes.object("TrainArgs")["properties"], "model_type": TEXT, "config": TEXT}
    model = classes.definitions["LMTransformerArgs"]["properties"]
    for path, name in _APPS.items():
        if name in source.classes(path):
            keys = Classes(source.texts([path]), "refused").object(name)["properties"]
            model |= {key: {} for key in keys if key not in model}
    return whole("lingua config", properties, "refused", definitions=classes.definitions)


def mistral_finetune(source: Source) -> Json:
    """`TrainArgs`, with the arguments of its data, its adapter and its loggers."""
    classes = Classes(source.texts([*source.below("finetune/"), "model/args.py"]), "refused")
    properties = classes.object("TrainArgs")["properties"]
    return whole("mistral-finetune config", properties, "refused", definitions=classes.definitions)


def trlx(source: Source) -> Json:
    """`TRLConfig`; the section `method` has the keys of whichever method its `name` says."""
    classes = Classes(source.texts(["data/configs.py"]), "refused")
    properties = {**classes.object("TRLConfig")["properties"], "method": {"type": "object"}}
    return whole("trlx config", properties, "refused", definitions=classes.definitions)


def prime_rl(source: Source) -> Json:
    """`RLConfig` and `SFTConfig` together: the trainer's sections; what the two share or hand on is open."""
    own = ["configs/sft.py", "configs/trainer.py", "configs/shared.py"]
    classes = Classes(source.texts(own), "refused")
    trained = {"trainer": classes.reference("TrainerConfig"), **classes.object("SFTConfig")["properties"]}
    whole_run = Classes(source.texts(["configs/rl.py"]), "refused").object("RLConfig")["properties"]
    # a validator takes true for the section
    classes.definitions["ModelConfig"]["properties"]["full_offload"] = {}
    properties: Json = {key: {} for key in (*whole_run, *trained)}
    properties |= {key: trained[key] for key in ("trainer", "optim", "data")}
    return whole("prime-rl config", properties, "refused", definitions=classes.definitions)
