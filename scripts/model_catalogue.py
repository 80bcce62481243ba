"""Write `catalogue.tsv` and `catalogue.jsonl` from a mapping of hub ids to configs.

The input maps an id to `{model_type, config, confidence, sources, base?, auto_class?, torch_dtype?, parameters?}`.
Parameter counts are computed by gpulint and compared with the input's where it has one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gpulint.models.build import build
from gpulint.models.model import UnknownModel

if TYPE_CHECKING:
    from pathlib import Path

DROPPED = (
    "model_type", "_name_or_path", "architectures", "transformers_version", "auto_map", "bos_token_id", "eos_token_id",
    "pad_token_id", "use_cache", "initializer_range", "attention_dropout", "hidden_dropout", "embd_pdrop", "attn_pdrop",
    "resid_pdrop", "attention_probs_dropout_prob", "hidden_dropout_prob", "summary_type", "summary_use_proj",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "task_specific_params",
    "context_window_size", "prefill_chunk_size", "pretraining_tp", "cache_implementation",
)  # fmt: skip
"""Fields that no reader of this project uses; they would only make the file larger."""


def write(source: dict[str, Any], folder: Path) -> None:
    """Write both files into `folder` and print what disagrees."""
    keys: dict[str, str] = {}
    lines = []
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
    print(f"{len(lines)} ids, {len(rows)} configs, {counted} with a published count, {disagreeing} disagree")


def _source(sources: list[str]) -> str:
    """One short word: the repository of the first public source, `alias` or `curated`."""
    for text in sources:
        if text.startswith("github:"):
            return text.removeprefix("github:").partition("@")[0]
    return "alias" if any(text.startswith("alias") for text in sources) else "curated"
