"""Model, quantisation and tuner of ms-swift arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.bindings.kinds import ANYTHING, FLAG, NUMBER, TEXT
from ..core.bindings.rows import Default, Derived, Fixed, Key, among
from ..core.bindings.spelling import attention
from ..hf_trainer.peft_arguments import ADAPTER
from ..hf_trainer.peft_types import SWIFT, Tuner, is_pair, set_tuner, set_vera_targets
from ..hf_trainer.trainer_reader import trainer_rows

if TYPE_CHECKING:
    from ..core.bindings.reader import Reader
    from ..core.bindings.rows import Row

_TUNER = ("tuner_type", "train_type", "sft_type")

ATTENTION = (
    Key("attention", "attn_impl", attention(written={"flex": "flex_attention"}), other=lambda written: written),
    Key(
        "attention", "use_flash_attn", FLAG, Default("sdpa", "what Transformers picks"), {True: "flash_attention_2"},
        among(), note="as ms-swift 2 says it",
    ),
)  # fmt: skip


def tuning(usual: str = "lora") -> tuple[Row, ...]:
    """`tuner_type` (once `train_type`, `sft_type`), or the `usual` one; LoRA is on all linear layers."""
    return (
        Key("method", _TUNER, TEXT, usual, lambda word, _: "full" if word == "full" else "lora", among("full", "lora")),
        _set_quantization,
        Fixed("weights.quantization", None),
        trainer_rows(*ADAPTER),
        _set_tuner,
        Fixed(
            "trainable", Derived(None, "the adapter alone", "method"), when=lambda job: job.method != "full",
        ),
        _set_trainable,
    )  # fmt: skip


def _set_quantization(reader: Reader) -> None:
    bits, named = reader.given(ANYTHING, "quant_bits", "quantization_bit"), reader.given(TEXT, "quant_method")
    kind, path = named.value if named else "bnb", "weights.quantization."
    if bits is None or bits.value == 0:
        return
    if kind != "bnb" or bits.value not in (4, 8):
        reader.set(f"{path}method", named or bits, kind)
        if isinstance(bits.value, int):
            reader.set(f"{path}bits", bits)
        return
    style = reader.value(TEXT, "bnb_4bit_quant_type", default="nf4")
    reader.set(f"{path}method", bits, f"bnb-{style}" if bits.value == 4 else "bnb-int8")
    reader.set(f"{path}bits", bits)
    reader.bind((Key(f"{path}double_quant", "bnb_4bit_use_double_quant", FLAG, bits.value == 4),))


def _set_tuner(reader: Reader) -> None:
    """Other tuners than LoRA, and modules by a pattern."""
    kind, regex, job = reader.given(TEXT, *_TUNER), reader.given(TEXT, "target_regex"), reader.job
    if job.adapter is not None and regex:
        reader.set("adapter.targets", regex)
    if kind and job.method == "lora" and not is_pair(kind.value):
        set_tuner(reader, kind, SWIFT.get(kind.value, Tuner()))
        if kind.value == "vera":
            set_vera_targets(reader, kind)


_FROZEN = {
    "freeze_vit": ("vision", "visual", "audio_tower"), "freeze_aligner": ("projector", "merger", "aligner", "mlp1"),
}  # fmt: skip
"""What a full fine-tune of a multimodal model leaves frozen unless told otherwise, by words in its modules' names."""


def _set_trainable(reader: Reader) -> None:
    """All but the vision tower and the aligner.

    LISA trains what lies outside the layers and some of these at a time, others every few steps (callbacks/lisa.py);
    the optimizer holds those of its first step.
    """
    if reader.job.method != "full":
        return
    given = {key: reader.given(FLAG, key) for key in _FROZEN}
    words = [name for key, names in _FROZEN.items() for name in names if (flag := given[key]) is None or flag.value]
    stated: Any = next((flag for flag in reversed(given.values()) if flag), None)
    if llm := reader.on("freeze_llm"):
        stated, words = llm, [*words, "language_model", "lm_head"]
    pattern = f"^(?!.*(?:{'|'.join(words)}))" if words else ""
    active = reader.given(NUMBER, "lisa_activated_layers")
    if active and active.value > 0:
        some = "|".join(str(layer) for layer in range(int(active.value)))
        rest = pattern or "^"
        reader.set("trainable", active, [f"{rest}(?!.*layers[.][0-9])", f"{rest}.*layers[.](?:{some})[.]"])
    else:
        note = "" if pattern and stated else "nothing is frozen" if stated else "vision tower and aligner are frozen"
        reader.set("trainable", stated, [pattern] if pattern else None, note)
