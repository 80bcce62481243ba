"""Model, quantisation and tuner of ms-swift arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hf_trainer.peft_arguments import set_adapter, set_dtype
from ..hf_trainer.peft_types import SWIFT, Tuner, is_pair, set_tuner, set_vera_targets
from ..hf_trainer.training_arguments import set_model

if TYPE_CHECKING:
    from ..core.arguments import Given
    from ..hf_trainer.training_arguments import Run

_ATTENTION = {
    "flash_attn": "flash_attention_2", "flash_attention_2": "flash_attention_2", "sdpa": "sdpa",
    "flash_attention_3": "flash_attention_3", "eager": "eager", "flex_attention": "flex",
}  # fmt: skip


def set_weights(run: Run) -> None:
    """The model, the dtype of its weights, and attention."""
    set_model(run)
    set_dtype(run)
    attention, former = run.arguments.text("attn_impl"), run.arguments.flag("use_flash_attn")
    if attention:
        run.put("attention", attention, _ATTENTION.get(attention.value, attention.value))
    elif former and former.value:
        run.put("attention", former, "flash_attention_2", "as ms-swift 2 says it")
    else:
        run.builder.default("attention", "sdpa", "what Transformers picks")


def set_tuning(run: Run, usual: str = "lora") -> None:
    """`tuner_type` (once `train_type`, `sft_type`), or the `usual` one; LoRA is on all linear layers."""
    kind = run.arguments.text("tuner_type", "train_type", "sft_type")
    word = kind.value if kind else usual
    method = "full" if word == "full" else "lora"
    if kind:
        run.put("method", kind, method)
    else:
        run.builder.default("method", method)
    _set_quantization(run)
    set_adapter(run)
    regex = run.arguments.text("target_regex")
    if run.builder.job.adapter is not None and regex:
        run.put("adapter.targets", regex)
    if kind and method == "lora" and not is_pair(word):
        set_tuner(run, kind, SWIFT.get(word, Tuner()))
        if word == "vera":
            set_vera_targets(run, kind)
    _set_trainable(run)


def _set_quantization(run: Run) -> None:
    bits = run.arguments.raw("quant_bits", "quantization_bit")
    named = run.arguments.text("quant_method")
    kind = named.value if named else "bnb"
    number = bits.value if bits else None
    path = "weights.quantization."
    if bits is None or number in (None, 0):
        run.builder.default("weights.quantization", None)
    elif kind == "bnb" and number in (4, 8):
        style = run.arguments.text("bnb_4bit_quant_type")
        method = f"bnb-{style.value if style else 'nf4'}" if number == 4 else "bnb-int8"
        run.put(f"{path}method", bits, method)
        run.put(f"{path}bits", bits)
        _double(run, run.arguments.flag("bnb_4bit_use_double_quant"), four=number == 4)
    else:
        run.put(f"{path}method", named or bits, kind)
        if isinstance(number, int):
            run.put(f"{path}bits", bits)


def _double(run: Run, given: Given | None, *, four: bool) -> None:
    if given:
        run.put("weights.quantization.double_quant", given)
    else:
        run.builder.default("weights.quantization.double_quant", four)


def _set_trainable(run: Run) -> None:
    """A full fine-tune of a multimodal model leaves the vision tower and the aligner frozen unless told otherwise.

    LISA trains what lies outside the layers and some of these at a time, others every few steps (callbacks/lisa.py);
    the optimizer holds those of its first step.
    """
    builder = run.builder
    if builder.job.method != "full":
        builder.derived("trainable", None, "the adapter alone", "method")
        return
    words: list[str] = []
    stated: Given | None = None
    for key, names in (
        ("freeze_vit", ("vision", "visual", "audio_tower")),
        ("freeze_aligner", ("projector", "merger", "aligner", "mlp1")),
    ):
        given = run.arguments.flag(key)
        stated = given or stated
        if given is None or given.value:
            words += names
    llm = run.arguments.flag("freeze_llm")
    if llm and llm.value:
        stated, words = llm, [*words, "language_model", "lm_head"]
    pattern = [f"^(?!.*(?:{'|'.join(words)}))"] if words else None
    active = run.arguments.number("lisa_activated_layers")
    if active and active.value > 0:
        some = "|".join(str(layer) for layer in range(int(active.value)))
        rest = pattern[0] if pattern else "^"
        run.put("trainable", active, [f"{rest}(?!.*layers[.][0-9])", f"{rest}.*layers[.](?:{some})[.]"])
    elif stated and pattern:
        run.put("trainable", stated, pattern)
    elif stated:
        builder.from_entry("trainable", None, stated.entry, stated.key, "nothing is frozen")
    else:
        builder.default("trainable", pattern, "vision tower and aligner are frozen")
