"""Models that hand 16-bit logits to the cross entropy, as Transformers' own did before 4.45, under autocast."""

from __future__ import annotations

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.estimator.explain.explain import explained
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

CONFIG = {
    "model_type": "gpt_bigcode", "n_embd": 512, "n_head": 8, "n_layer": 6, "n_positions": 1024, "n_inner": 2048,
    "vocab_size": 20000, "multi_query": True,
}  # fmt: skip
RUN = {
    "model": CONFIG,
    "precision": {"autocast": "bfloat16"},
    "optimizer": {"name": "adamw_torch"},
    "micro_batch_size": 2,
    "sequence_length": 1024,
    "activation_checkpointing": "full",
    "reentrant": True,
    "attention": "flash_attention_2",
    "versions": {"transformers": "4.44.2", "peft": "0.12.0", "torch": "2.4.1"},
}
QLORA = {
    "method": "lora",
    "adapter": {"r": 16, "alpha": 16, "dropout": 0.1, "targets": ["c_attn"]},
    "weights": {"dtype": "bfloat16", "quantization": {"method": "bnb-nf4", "double_quant": True}},
}
WORKSPACES = 2 * int(8.125 * (1 << 20))

TRACED = [
    ({"weights": {"dtype": "bfloat16"}}, 695_879_800, 591_763_324, 270_194_692),
    ({"weights": {"dtype": "float32"}}, 890_468_984, 786_352_508, 539_340_804),
    (QLORA, 585_535_032, 471_964_988, 33_204_164),
]
"""What the code of Transformers 4.44.2 and PEFT 0.12.0 allocates (traced on fake CUDA tensors): at the end of forward,
where the returned logits and keys become float32, in backward, and in the optimizer's step."""


@pytest.mark.parametrize(("changes", "forward", "backward", "step"), TRACED)
def test_peaks_are_those_of_the_old_code(changes, forward, backward, step):
    """The shifted logits lack a row, which is counted here."""
    found = estimate(Job.validate({**RUN, **changes}))
    phases = {phase.name: phase.allocated - WORKSPACES for phase in found.phases}
    assert found.per_gpu.allocated - WORKSPACES == pytest.approx(forward, rel=0.001)
    assert phases["backward"] == pytest.approx(forward, rel=0.001)
    assert phases["optimizer_step"] == pytest.approx(step, rel=0.001)
    assert found.per_gpu.allocated - WORKSPACES > backward


def test_the_float32_copy_is_of_what_log_softmax_made():
    """2 B logits, 2 B log-probabilities and their 4 B copy, then 4 B of returned logits: 12 in all, without a shift."""
    plain = {**RUN, "activation_checkpointing": "none", "weights": {"dtype": "bfloat16"}}
    more, less = (
        estimate(Job.validate({**plain, "model": {**CONFIG, "vocab_size": size}})) for size in (40_000, 20_000)
    )
    grown = more.per_gpu.allocated - less.per_gpu.allocated
    states = (2 + 4) * 20_000 * 512
    assert grown - states == pytest.approx(12 * 2 * 1024 * 20_000, rel=0.01)


def test_the_derivation_names_what_forward_returns():
    """Arithmetic that a reader can redo: float32 logits at the end of forward, and a mask of bytes."""
    made, model = Job.validate({**RUN, **QLORA}), resolve(CONFIG)
    found = explained(estimate(made), made, model)
    terms = {(term.label, term.formula): term.size for term in found.terms}
    assert terms["end of forward: float32 copy", "4 B x 2 x 1,024 x 20,000"] == 4 * 2 * 1024 * 20_000
    mask = next(size for (_, formula), size in terms.items() if formula == "1 B (bool) x 1,048,576 buffer elements")
    assert mask == 1024**2
