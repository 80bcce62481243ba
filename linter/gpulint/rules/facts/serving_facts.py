"""Facts about servers: quantization kernels, speculative decoding, served adapters."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...formats.serving.json_arguments import as_mapping
from ...source.tables import read_table
from ..expression import UNKNOWN
from .facts import Facts, fact, filled_at_launch


@cache
def _table() -> dict[str, Any]:
    return read_table(__file__, "serving.json")


@fact("quantization.option")
def _option(facts: Facts) -> Any:
    """The quantization option of the server, as written; null without one."""
    for key in ("quantization", "quantize"):
        value = facts.get(f"config.{key}")
        if value is not None:
            return value
    return None


@fact("quantization.effective")
def _effective(facts: Facts) -> Any:
    """The quantization that selects the kernels: the server's option, else that of the checkpoint."""
    flag = facts.get("quantization.option")
    return flag if isinstance(flag, str) else facts.get("model.checkpoint_quantization")


@fact("quantization.min_capability", "capability", "number")
def _min_capability(facts: Facts) -> Any:
    """The lowest CUDA compute capability for which the engine has kernels for the quantization."""
    kernel = facts.get("quantization.effective")
    engine = facts.job.inference.engine if facts.job.inference is not None else ""
    row = _table()["min_capability"].get(engine, {}).get(kernel) if isinstance(kernel, str) else None
    return UNKNOWN if row is None else row


@fact("quantization.mismatch")
def _mismatch(facts: Facts) -> Any:
    """The checkpoint's quantization, if the server's option names another that vLLM does not accept for it."""
    flag, own = facts.get("quantization.option"), facts.get("model.checkpoint_quantization")
    if not isinstance(flag, str) or not isinstance(own, str):
        return UNKNOWN
    families = _table()["families"]
    if flag not in families or own not in families:
        return UNKNOWN
    if families[flag] in {families.get(str(method)) for method in facts.may_be_stored}:
        return None
    return own if families[flag] != families[own] else None


@fact("model.float16_unsupported")
def _float16(facts: Facts) -> Any:
    """Whether vLLM rejects float16 for the model's type, because it overflows."""
    kind = facts.get("model.type")
    return UNKNOWN if not isinstance(kind, str) else kind in _table()["float16_refused"]


@fact("pipeline.unsupported")
def _no_pipeline(facts: Facts) -> Any:
    """Whether vLLM's class for the model's type does not support pipeline parallelism."""
    kind = facts.get("model.type")
    return UNKNOWN if not isinstance(kind, str) else kind in _table()["pipeline_refused"]


@fact("model.mtp_layers", type="whole number")
def _mtp(facts: Facts) -> Any:
    """Multi-token prediction layers of the model (`num_nextn_predict_layers`)."""
    layers = facts.model.config.get("num_nextn_predict_layers") if facts.model is not None else None
    return layers if isinstance(layers, int) and layers > 0 else UNKNOWN


def _speculative(facts: Facts) -> dict[str, Any] | None:
    """`speculative-config` as a mapping, or its JSON text."""
    for key in ("speculative-config", "speculative_config"):
        value = facts.get(f"config.{key}")
        stated = {} if isinstance(value, str) and filled_at_launch(value) else as_mapping(value)
        if stated:
            return stated
    return None


def _speculative_fact(name: str, key: str, meaning: str) -> None:
    def derive(facts: Facts) -> Any:
        found = _speculative(facts)
        return UNKNOWN if found is None else found.get(key)

    derive.__doc__ = meaning
    fact(f"speculative.{name}", type="whole number" if name.startswith(("tokens", "draft_tensor")) else "text")(derive)


for _name, _key, _meaning in (
    ("tokens", "num_speculative_tokens", "Tokens that the draft proposes per step (vLLM's `speculative-config`)."),
    ("method", "method", "The method of vLLM's `speculative-config`."),
    ("draft_model", "model", "The draft model of vLLM's `speculative-config`."),
    ("draft_tensor_parallel_size", "draft_tensor_parallel_size", "Tensor parallel size of the draft."),
):
    _speculative_fact(_name, _key, _meaning)


@fact("speculative.heterogeneous_vocab")
def _heterogeneous(facts: Facts) -> Any:
    """Whether `speculative-config` allows a draft with another vocabulary (`use_heterogeneous_vocab`)."""
    found = _speculative(facts)
    return bool(found and found.get("use_heterogeneous_vocab"))


@fact("speculative.draft_vocab_size", type="whole number")
def _draft_vocabulary(facts: Facts) -> Any:
    """Vocabulary size of the draft model."""
    name = facts.job.inference.speculative_model if facts.job.inference is not None else None
    if not isinstance(name, str) or filled_at_launch(name):
        return UNKNOWN
    from ...models.model import UnknownModel
    from ...models.resolve import resolve

    try:
        return resolve(name, facts.folder, facts.project.root).shape.vocabulary
    except UnknownModel:
        return UNKNOWN


@fact("lora.max_served_rank", type="whole number")
def _served_rank(facts: Facts) -> Any:
    """The highest rank among served adapters whose `adapter_config.json` is in the project."""
    from ...source.document import SourceError

    ranks: list[int] = []
    for path in _adapters(facts):
        try:
            document = facts.project.open(f"{path}/adapter_config.json", facts.reading.config.path)
        except SourceError:
            continue
        rank = document.root.get("r") if document is not None else None
        if rank is not None and isinstance(rank.value, int) and not isinstance(rank.value, bool):
            ranks.append(rank.value)
    return max(ranks) if ranks else UNKNOWN


def _adapters(facts: Facts) -> list[str]:
    """Paths of `lora-modules`: `name=path`, JSON text or a mapping with `path`."""
    found: list[str] = []
    for key in ("lora-modules", "lora_modules", "lora-paths", "lora_paths"):
        value = facts.get(f"config.{key}")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item.lstrip().startswith("{"):
                item = as_mapping(item)
            if isinstance(item, dict):
                item = item.get("path") or item.get("lora_path")
                found += [item] if isinstance(item, str) else []
            elif isinstance(item, str):
                found.append(item.partition("=")[2] or item)
    return found
