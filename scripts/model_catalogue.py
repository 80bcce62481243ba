"""Write `catalogue.tsv`, `catalogue.jsonl` and `positions.json` from a mapping of hub ids to configs.

The input maps an id to `{model_type, config, confidence, sources, base?, auto_class?, torch_dtype?, parameters?}`.
Parameter counts are computed by gpulint and compared with the input's where it has one. `model_additions.json`,
`model_encoders.json` and `model_vision.json` add ids, `model_corrections.json` mends rows.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpulint.models.build import build, checkpoint_dtype
from gpulint.models.model import UnknownModel
from gpulint.models.names import named_plain, named_quantization

if TYPE_CHECKING:
    from pathlib import Path

Rows = dict[str, Any]

DROPPED = (
    "model_type", "_name_or_path", "architectures", "transformers_version", "auto_map", "bos_token_id", "eos_token_id",
    "pad_token_id", "use_cache", "initializer_range", "attention_dropout", "hidden_dropout", "embd_pdrop", "attn_pdrop",
    "resid_pdrop", "attention_probs_dropout_prob", "hidden_dropout_prob", "summary_type", "summary_use_proj",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "task_specific_params",
    "context_window_size", "prefill_chunk_size", "pretraining_tp", "cache_implementation",
)  # fmt: skip
"""Fields that no reader of this project uses; they would only make the file larger."""


def write(source: dict[str, Any], folder: Path, additions: Rows, corrections: Rows) -> None:
    """Write the files into `folder` and print what disagrees."""
    source = completed(source, additions["models"], corrections)
    keys: dict[str, str] = {}
    lines = []
    positions: dict[str, list[int]] = {}
    counted = disagreeing = 0
    for name in sorted(source, key=lambda name: (name.lower(), source[name]["confidence"], name)):
        entry = source[name]
        config = {key: value for key, value in entry["config"].items() if key not in DROPPED}
        text = json.dumps(config, separators=(",", ":"), sort_keys=True)
        key = keys.setdefault(text, str(len(keys)))
        auto_class = entry.get("auto_class", "AutoModelForCausalLM").removeprefix("AutoModelFor")
        auto_class = "Model" if auto_class == "AutoModel" else auto_class
        try:
            model = build({**config, "model_type": entry["model_type"]}, name, "catalogue", auto_class)
            parameters = str(model.parameters)
            if model.shape.positions_stated and model.shape.max_positions:
                positions.setdefault(entry["model_type"], []).append(model.shape.max_positions)
        except UnknownModel as error:
            print(error)
            parameters = ""
        if "parameters" in entry:
            counted += 1
            if str(entry["parameters"]) != parameters:
                disagreeing += 1
                print(f"{name}: {parameters}, published {entry['parameters']}")
        cells = (
            name.lower(), name, entry["model_type"], parameters, entry["confidence"], entry.get("base", ""), auto_class,
            entry.get("torch_dtype", ""), _source(entry["sources"]), key,
        )  # fmt: skip
        lines.append("\t".join(cells))
    (folder / "catalogue.tsv").write_text("\n".join(lines) + "\n")
    rows = [f'{{"key":"{key}","config":{text}}}' for text, key in keys.items()]
    (folder / "catalogue.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "positions.json").write_text(json.dumps(_usual(positions), indent=1) + "\n")
    print(f"{len(lines)} ids, {len(rows)} configs, {counted} with a published count, {disagreeing} disagree")


def _usual(positions: dict[str, list[int]]) -> dict[str, int]:
    """The length that four in five of each type's do not exceed, and under "" that of all types."""
    every = [length for lengths in positions.values() for length in lengths]
    return {
        name: sorted(lengths)[math.ceil(0.8 * len(lengths)) - 1]
        for name, lengths in (("", every), *sorted(positions.items()))
    }


def _with(config: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """A config with fields set; `text_config.top_k_experts` is one of a section."""
    config = dict(config)
    for name, value in fields.items():
        section, _, inner = name.rpartition(".")
        if section:
            config[section] = {**config[section], inner: value}
        else:
            config[name] = value
    return config


def completed(source: Rows, additions: Rows, corrections: Rows) -> Rows:
    """The rows of `source` mended, the added ones, and the dtypes that their kin state."""
    rows = {name: {**row, "config": dict(row["config"])} for name, row in source.items()}
    for name, change in corrections["rows"].items():
        row = rows[name]
        if "like" in change:
            other = source[change["like"]]
            row.update({key: other[key] for key in ("model_type", "config", "auto_class") if key in other})
        config = _with(row["config"], change.get("set", {}))
        row["config"] = {key: value for key, value in config.items() if key not in change.get("drop", ())}
        row.pop("parameters", None)
        row.update({key: change[key] for key in ("torch_dtype", "base") if key in change})
    _store(rows, corrections)
    added = {name: _added(row, rows, additions) for name, row in additions.items()}
    _store(added, corrections)
    rows |= added
    for name, row in rows.items():
        _set_positions(name, row["config"], corrections["positions"])
    for name, change in corrections["rows"].items():
        if "quantized_like" in change:
            config = source[change["quantized_like"]]["config"]
            stored = config if "quantization_config" in config else config["text_config"]
            rows[name]["config"]["quantization_config"] = stored["quantization_config"]
    _fill_dtypes(rows, corrections["dtypes"], [rows[name] for name in source])
    return rows


def _store(rows: Rows, corrections: Rows) -> None:
    """Give rows the quantisation by which they are stored, before their kin take their configs."""
    for name, row in rows.items():
        if "quantization_config" not in corrections["rows"].get(name, {}).get("set", {}):
            row["config"] = stored_as(name, row)


def _set_positions(name: str, config: Rows, known: dict[str, int]) -> None:
    """Give the config of an id the positions that are known of its family, in place of what it may have of a kin."""
    positions = next((value for expression, value in known.items() if re.fullmatch(expression, name)), None)
    if positions is not None:
        text = config.get("text_config")
        if isinstance(text, dict):
            config["text_config"] = {**text, "max_position_embeddings": positions}
        else:
            config["max_position_embeddings"] = positions


def _added(row: Rows, rows: Rows, additions: Rows) -> Rows:
    if "config" in row:
        return dict(row)
    base = rows[row["base"]] if row["base"] in rows else _added(additions[row["base"]], rows, additions)
    kept = {key: base[key] for key in ("model_type", "auto_class", "torch_dtype") if key in base}
    own = {key: value for key, value in row.items() if key != "set"}
    return {**kept, **own, "config": {**base["config"], **row.get("set", {})}}


def stored_as(name: str, row: Rows) -> Rows:
    """The config of a row without the quantisation of its base, where its own name says that it is stored otherwise."""
    config: Rows = row["config"]
    quantization, base = config.get("quantization_config"), row.get("base")
    if not base or not isinstance(quantization, dict):
        return config
    own, theirs = named_quantization(name), named_quantization(base)
    alike = own == theirs or own == quantization.get("quant_method")
    if alike and not named_plain(name):
        return config
    return {key: value for key, value in config.items() if key != "quantization_config"}


def _fill_dtypes(rows: Rows, families: dict[str, str], kin_of: list[Rows]) -> None:
    """Give rows without a dtype what the kin of their model type and vocabulary, or of their type, agree on.

    Of two 16-bit dtypes, which take equal memory, the more common one. Added rows are nobody's kin: they have their
    base's dtype, or that of an embedding model, which authors save in fp32.
    """
    stated: dict[tuple[str, Any], Counter[str]] = {}
    for row in kin_of:
        dtype = _dtype(row)
        if dtype:
            for kin in ((row["model_type"], _vocabulary(row)), (row["model_type"], None)):
                stated.setdefault(kin, Counter())[dtype] += 1
    for row in rows.values():
        if not _dtype(row):
            model_type = row["model_type"]
            alike = stated.get((model_type, _vocabulary(row))) or stated.get((model_type, None)) or Counter()
            agreed = len(alike) == 1 or (alike and alike.keys() <= {"bfloat16", "float16"})
            dtype = max(alike, key=alike.__getitem__) if agreed else families.get(model_type)
            if dtype:
                row["torch_dtype"] = dtype


def _dtype(row: Rows) -> str | None:
    stated: str | None = row.get("torch_dtype") or checkpoint_dtype(row["config"])
    return stated


def _vocabulary(row: Rows) -> Any:
    text = row["config"].get("text_config")
    return row["config"].get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)


def _source(sources: list[str]) -> str:
    """One short word: the repository of the first public source, `alias` or `curated`."""
    for text in sources:
        if text.startswith("github:"):
            return text.removeprefix("github:").partition("@")[0]
    return "alias" if any(text.startswith("alias") for text in sources) else "curated"
