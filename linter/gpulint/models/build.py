"""A Model from the fields of a `config.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .expression import ExpressionError
from .fields import Fields
from .heads import is_head
from .inventory import Part
from .model import Model, Tensor, UnknownModel
from .remote import own_code, remote_rule, renamed
from .shape import shape_of
from .tables import find_by_class, find_table, table_name

if TYPE_CHECKING:
    from collections.abc import Iterable

LLAMA_LIKE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""Fields with which an unknown model type is taken for a llama-like decoder (`Model.exact` is False then)."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Fields that rule the llama table out: the experts hold most of the parameters."""

_CLASS_ENDINGS = {
    "ForCausalLM": "CausalLM",
    "LMHeadModel": "CausalLM",
    "ForMaskedLM": "MaskedLM",
    "ForSequenceClassification": "SequenceClassification",
    "ForImageClassification": "ImageClassification",
    "ForSpeechSeq2Seq": "SpeechSeq2Seq",
    "ForConditionalGeneration": "ConditionalGeneration",
}

_DTYPES = {
    "float32": "float32", "float": "float32", "fp32": "float32", "float16": "float16", "half": "float16",
    "fp16": "float16", "bfloat16": "bfloat16", "bf16": "bfloat16", "float64": "float64",
    "float8_e4m3fn": "float8", "float8_e5m2": "float8", "float8": "float8",
}  # fmt: skip


def build(config: dict[str, Any], name: str, source: str, auto_class: str | None = None, repository: str = "") -> Model:
    """The Model of a config; `repository` is the hub id that it is known by, where that is not its name.

    `auto_class` is the Transformers loader without its `AutoModelFor` (`CausalLM`, `ImageTextToText`, `Model` ...);
    None takes the config's own `auto_class` or `architectures`, else the usual loader of the model type.
    Raises UnknownModel when no table fits or the fields do not make a model.
    """
    fields, model_type, exact = _recognised(config, name)
    stated = auto_class or _stated_class(config)
    table = find_table(model_type)
    if table is None:
        raise UnknownModel(f"{name}: no architecture table for the model type {model_type!r}")
    table, fields = _variant(table, fields, stated)
    try:
        part = Part(table, fields)
        tensors = renamed(_for_class(part.tensors(), part, stated, table), own_code(config, repository or name))
        shape = shape_of(part, tensors)
        _refuse_empty(part.text_part.fields, tensors, name)
    except ExpressionError as error:
        raise UnknownModel(f"{name}: its config.json does not describe a {model_type} model ({error})") from None
    if not tensors:
        raise UnknownModel(f"{name}: its config.json describes no tensors")
    own_type = config.get("model_type")
    return Model(
        id=name,
        source=source,
        model_type=own_type if isinstance(own_type, str) else model_type,
        config=config,
        dtype=checkpoint_dtype(config),
        tensors=tuple(tensors),
        shape=shape,
        exact=exact and not _approximate(table, part.fields),
        headless=stated == "Model",
        defaults=part.text_part.table.get("defaults", {}),
        repository=repository or name,
    )


_SIZES = ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
"""Fields without which, or with nothing of which, there is no decoder."""

_KEYS = frozenset({"k", "qkv"})


def _refuse_empty(fields: Fields, tensors: Iterable[Tensor], name: str) -> None:
    """Raises UnknownModel where the config states a size of nothing; a latent rank of 0 where nothing else attends."""
    sizes = (*_SIZES, *(() if any(tensor.role in _KEYS for tensor in tensors) else ("kv_lora_rank",)))
    for field in sizes:
        value = fields.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
            raise UnknownModel(f"{name}: {field} is {value} in its config.json, which makes no model")


def _approximate(table: dict[str, Any], fields: Fields) -> bool:
    """Whether the table disagrees with the built model, for all configs or for those that an expression is true of."""
    stated = table.get("approximate", False)
    return bool(fields.evaluate(stated)) if isinstance(stated, str) else bool(stated)


def checkpoint_dtype(config: dict[str, Any]) -> str | None:
    """The dtype a config states for its checkpoint, in this project's spelling; None when unstated or "auto"."""
    nested = config.get("text_config")
    for fields in (config, nested if isinstance(nested, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            value = fields.get(key)
            if isinstance(value, str):
                return _DTYPES.get(value.removeprefix("torch."))
    return None


def _recognised(config: dict[str, Any], name: str) -> tuple[dict[str, Any], str, bool]:
    """The fields to read, the table's name, and whether the model type is known."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        model_type = _type_of_class(config)
    rule = remote_rule(config, model_type)
    if rule is not None:
        raw = Fields(config, {})
        values = {field: raw.evaluate(text) for field, text in rule["set"].items()}
        return {**config, **values}, rule["table"], True
    if model_type is not None and find_table(table_name(model_type)) is not None:
        return config, table_name(model_type), True
    shown = f"model type {model_type!r}" if model_type else "a config without `model_type`"
    missing = [field for field in LLAMA_LIKE if not isinstance(config.get(field), int)]
    if missing:
        raise UnknownModel(f"{name}: {shown} is unknown and its config.json is not llama-like (no {missing[0]})")
    experts = [field for field in EXPERTS if config.get(field)]
    if experts:
        raise UnknownModel(f"{name}: {shown} is unknown and it is a mixture of experts ({experts[0]})")
    return config, "llama", False


def _type_of_class(config: dict[str, Any]) -> str | None:
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return find_by_class(names[0])
    return None


def _stated_class(config: dict[str, Any]) -> str | None:
    stated = config.get("auto_class")
    if isinstance(stated, str):
        return stated.removeprefix("AutoModelFor").removeprefix("Auto") or None
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        for ending, auto_class in _CLASS_ENDINGS.items():
            if names[0].endswith(ending):
                return auto_class
        if names[0].endswith("Model") and not _generates(config):
            return "Model"
    return None


def _generates(config: dict[str, Any]) -> bool:
    """Whether a repository's own code has a causal language model, whatever its class is called (`ChatGLMModel`)."""
    classes = config.get("auto_map")
    return isinstance(classes, dict) and "AutoModelForCausalLM" in classes


def _variant(
    table: dict[str, Any], config: dict[str, Any], stated: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table and the config of the class that the loader builds."""
    variants = table.get("variants", {})
    if stated is None and variants.get("CausalLM", {}).get("field") and not config.get("vision_config"):
        stated = "CausalLM"
    if stated == "SequenceClassification" and "Model" in variants:
        stated = "Model"
    variant = variants.get(stated)
    other = find_table(variant["table"]) if variant is not None else None
    if variant is None or other is None:
        return table, config
    nested = config.get(variant["field"]) if "field" in variant else config
    return other, nested if isinstance(nested, dict) else {}


def _for_class(tensors: list[Tensor], part: Part, stated: str | None, table: dict[str, Any]) -> list[Tensor]:
    """Tensors of a model loaded without its language-model head, and the scores of a classifier.

    A decoder's classifier is one linear layer without bias; an encoder's follows a pooling layer and has one.
    ModernBERT's (modeling_modernbert.py of Transformers 5.23) follows the transform that its masked language model has.
    """
    usual = table.get("auto_class", "CausalLM")
    encoder = usual == "Model"
    if stated == "Model" and usual == "MaskedLM":
        return [tensor for tensor in tensors if not is_head(tensor, encoder=True)]
    if stated == "Model" and usual in ("CausalLM", "ImageTextToText"):
        return [tensor for tensor in tensors if tensor.role != "head"]
    if stated != "SequenceClassification" or usual not in ("CausalLM", "Model", "MaskedLM"):
        return tensors
    if usual == "MaskedLM":
        encoder, tensors = True, [tensor for tensor in tensors if not tensor.name.startswith("decoder.")]
    kept = [tensor for tensor in tensors if tensor.role != "head"]
    width = part.text.first("hidden_size", "n_embd", "d_model", "dim")
    count = _labels(part.fields)
    if not encoder:
        return [*kept, Tensor("score.weight", (count, width), None, "", "head", linear=True)]
    if not any("pooler" in tensor.name or tensor.name.startswith("head.") for tensor in kept):
        kept.append(Tensor("pooler.dense.weight", (width, width), None, "", "other", linear=True))
        kept.append(Tensor("pooler.dense.bias", (width,), None, "", "bias", linear=False))
    kept.append(Tensor("classifier.weight", (count, width), None, "", "head", linear=True))
    kept.append(Tensor("classifier.bias", (count,), None, "", "bias", linear=False))
    return kept


def _labels(fields: Fields) -> int:
    """How many classes a config has: `num_labels`, the length of `id2label`, else Transformers' 2."""
    stated = fields.first("num_labels", "_num_labels")
    if isinstance(stated, int):
        return stated
    named = fields.get("id2label")
    return len(named) if isinstance(named, dict) else 2
