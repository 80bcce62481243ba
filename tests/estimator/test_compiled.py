"""Which layers torch.compile makes graphs of."""

from __future__ import annotations

import pytest

from gpulint.estimator.activations import instants
from gpulint.estimator.frameworks.attention import remade_attention, traced
from gpulint.job.job import Job, Weights


def compiled(**fields) -> Job:
    usual = {"activation_checkpointing": "full", "attention": "flash_attention_2", "micro_batch_size": 1}
    return Job(compile=True, sequence_length=2048, weights=Weights("bfloat16"), **{**usual, **fields})


@pytest.mark.parametrize(
    ("fields", "model_type", "graph"),
    [
        ({}, "qwen3", False),  # its flash attention branches on position_ids
        ({"activation_checkpointing": "offload"}, "qwen3", False),
        ({"activation_checkpointing": "none"}, "qwen3", True),  # a graph before and one behind attention
        ({"checkpoint_every": 2}, "qwen3", True),
        ({"attention": "sdpa"}, "qwen3", True),
        ({"micro_batch_size": 2}, "qwen3", True),  # looks at shapes alone
        ({"framework": "torchtitan"}, "qwen3", True),
        ({"framework": "prime-rl", "versions": {"prime-rl": "0.4.0"}}, "qwen3", False),
        ({"framework": "prime-rl", "versions": {"prime-rl": "0.8.0"}}, "qwen3", True),  # code of its own
        ({"framework": "prime-rl", "versions": {"prime-rl": "0.4.0"}}, "llama", True),
        (
            {"framework": "prime-rl", "versions": {"prime-rl": "0.8.0"}, "attention": "flash_attention_4"},
            "llama",
            False,
        ),
        ({"compile": False, "attention": "sdpa"}, "llama", False),
    ],
)
def test_a_checkpointed_layer_is_compiled_whole_or_not_at_all(decoder, fields, model_type, graph):
    job = compiled()
    for name, value in fields.items():
        setattr(job, name, value)
    assert traced(job, decoder(layers=2)._replace(model_type=model_type)) == graph


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2"])
def test_experts_of_prime_rl_stay_eager_whatever_the_attention(decoder, attention):
    job = compiled(attention=attention)
    job.framework = "prime-rl"
    assert traced(job, decoder(layers=2)._replace(model_type="qwen3_moe"))
    assert not traced(job, decoder(layers=2, experts=4)._replace(model_type="qwen3_moe"))


@pytest.mark.parametrize(
    ("version", "ranks", "mode", "graph"),
    [
        ("0.2.0", 4, "selective", False),  # FSDP's hooks around the experts break the graph
        ("0.2.0", 4, "none", True),
        ("0.2.0", 1, "selective", True),
        ("0.2.1", 4, "selective", True),  # compiled around them
    ],
)
def test_torchtitan_leaves_checkpointed_experts_eager(decoder, version, ranks, mode, graph):
    job = compiled(activation_checkpointing=mode, attention="sdpa", framework="torchtitan")
    job.versions, job.parallelism.expert = {"torchtitan": version}, ranks
    assert traced(job, decoder(layers=2, experts=4)) == graph


@pytest.mark.parametrize(
    ("version", "gpu", "again"),
    [
        ("0.0.2", "b200-180gb", False),
        ("0.1.0", None, False),
        ("0.1.0", "h100-80gb", False),
        ("0.1.0", "b200-180gb", True),
        ("0.2.0", None, True),
        ("0.2.1", "b200-180gb", False),
        (None, "b200-180gb", False),
    ],
)
def test_torchtitan_did_not_keep_what_cudnn_makes(version, gpu, again):
    job = compiled(attention="sdpa", framework="torchtitan")
    job.versions = {"torchtitan": version} if version else {}
    job.hardware.gpu = gpu
    assert remade_attention(job) == again


def test_attention_that_is_made_again_on_blackwell_is_not_kept(llama_8b):
    def kept(gpu: str) -> int:
        fields = {"attention": "sdpa", "framework": "torchtitan", "activation_checkpointing": "selective"}
        job = compiled(**fields, checkpoint_policy="every_second_matmul", versions={"torchtitan": "0.1.0"})
        job.hardware.gpu = gpu
        return max(item.activations for item in instants(job, llama_8b))

    assert kept("b200-180gb") < kept("h100-80gb")


def test_flash_attention_leaves_a_checkpointed_layer_eager(llama_8b):
    def peak(**fields) -> int:
        return max(item.activations + item.logits for item in instants(compiled(**fields), llama_8b))

    assert peak() == max(
        item.activations + item.logits
        for item in instants(compiled().with_changes({"compile": False, "loss.compiled": True}), llama_8b)
    )
    assert peak(micro_batch_size=2) < 2 * peak()
