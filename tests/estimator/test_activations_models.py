"""Every model type that the catalogue holds gets instants, whatever the job does with it."""

from __future__ import annotations

import pytest

from gpulint.estimator.activations import instants
from gpulint.estimator.estimate import NotEstimable
from gpulint.job.job import Adapter, Job, Loss, Parallelism, Precision, Quantization, Rl, Weights
from gpulint.models.catalogue import search
from gpulint.models.resolve import resolve

HALF = {"weights": Weights("bfloat16")}
MASTERS = {"weights": Weights("float32"), "precision": Precision("bfloat16")}
PACKED = {
    "weights": Weights("bfloat16", quantization=Quantization("bnb-nf4", 4)),
    "precision": Precision("bfloat16"),
    "method": "qlora",
    "adapter": Adapter(targets="all-linear", prepare_kbit=True),
}
PLANS = {
    "plain": HALF,
    "masters, checkpointed": {**MASTERS, "activation_checkpointing": "full"},
    "adapter": {**HALF, "method": "lora", "adapter": Adapter(targets="all-linear", dropout=0.05)},
    "packed, eager": {**PACKED, "attention": "eager"},
    "liger": {**HALF, "liger_kernels": True, "loss": Loss("liger"), "attention": "flash_attention_2"},
    "preference, divided": {**HALF, "objective": "dpo", "parallelism": Parallelism(tensor=2, sequence=True)},
    "reward, padded": {**HALF, "objective": "reward", "padded": True},
    "online": {**HALF, "objective": "grpo", "rl": Rl(prompt_length=64, completion_length=64, generations=4)},
    "pipeline": {**HALF, "loss": Loss("chunked", 32), "parallelism": Parallelism(pipeline=2, context=2)},
    "selective": {**MASTERS, "loss": Loss("cut_cross_entropy"), "activation_checkpointing": "selective"},
}


@pytest.fixture(scope="module")
def one_of_each():
    """One model of every type."""
    found = {}
    for row in search(""):
        found.setdefault(row.model_type, row.id)
    return [resolve(name) for name in found.values()]


@pytest.mark.parametrize("plan", PLANS)
def test_every_type(one_of_each, plan):
    assert len(one_of_each) > 100
    refused = []
    for model in one_of_each:
        job = Job(micro_batch_size=1, sequence_length=128, **PLANS[plan])
        try:
            found = instants(job, model)
        except NotEstimable:
            refused.append(model.model_type)
            continue
        assert {x.phase for x in found} == {"forward", "loss", "backward"}, model.model_type
        assert min(x.activations for x in found) >= 0, model.model_type
        assert min(x.logits for x in found) >= 0, model.model_type
    assert len(refused) < 8


def test_gpt_oss_took_its_experts_out_of_the_fused_weight():
    """transformers 4.55 copied each one, and until 5 each one's gradient is as large as all of them (GptOssExperts)."""
    model = resolve("openai/gpt-oss-20b")

    def most(version: str, phase: str, method: str = "full") -> int:
        adapter = Adapter(targets=["q_proj"]) if method == "lora" else None
        job = Job(
            model=model.id, method=method, adapter=adapter, activation_checkpointing="full", reentrant=True, **HALF
        )
        job.micro_batch_size, job.sequence_length, job.packing = 1, 512, True
        job.versions = {"transformers": version}
        found = instants(job, model)
        return max(item.activations for item in found if item.phase == phase and (item.layer is not None))

    down = 2 * 32 * 2880 * 2880
    gate_up = 2 * down
    assert most("4.55.4", "forward") - most("4.56.2", "forward") == pytest.approx(down + gate_up, rel=0.05)
    assert most("4.56.2", "forward") == most("5.0.0", "forward")
    assert most("4.56.2", "backward") - most("5.0.0", "backward") == pytest.approx(gate_up, rel=0.05)
    assert most("4.55.4", "backward") - most("4.56.2", "backward") > down + 0.9 * gate_up / 2
    assert most("4.56.2", "backward", "lora") == most("5.0.0", "backward", "lora")
