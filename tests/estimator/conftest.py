"""Small models and instants for the estimator's tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gpulint.models.model import Model, Shape, Tensor


def build(
    hidden=4096,
    layers=32,
    heads=32,
    kv_heads=8,
    intermediate=14336,
    vocabulary=128256,
    tied=False,
    experts=0,
    dtype="bfloat16",
    **config,
):
    """A Llama-like decoder (with `experts`, a Mixtral-like one) as models.resolve would make it."""
    head_dim = hidden // heads
    key = kv_heads * head_dim
    every = tuple(range(layers))
    block = [
        ("self_attn.q_proj.weight", (hidden, hidden), "q", True),
        ("self_attn.k_proj.weight", (key, hidden), "k", True),
        ("self_attn.v_proj.weight", (key, hidden), "v", True),
        ("self_attn.o_proj.weight", (hidden, hidden), "o", True),
    ]
    if experts:
        block += [
            ("mlp.gate.weight", (experts, hidden), "router", False),
            ("mlp.experts.gate_up_proj", (experts, 2 * intermediate, hidden), "expert_gate_up", False),
            ("mlp.experts.down_proj", (experts, hidden, intermediate), "expert_down", False),
        ]
    else:
        block += [
            ("mlp.gate_proj.weight", (intermediate, hidden), "gate", True),
            ("mlp.up_proj.weight", (intermediate, hidden), "up", True),
            ("mlp.down_proj.weight", (hidden, intermediate), "down", True),
        ]
    block += [
        ("input_layernorm.weight", (hidden,), "norm", False),
        ("post_attention_layernorm.weight", (hidden,), "norm", False),
    ]
    stack = "model.layers."
    tensors = [Tensor("model.embed_tokens.weight", (vocabulary, hidden), None, "", "embedding", False)]
    tensors += [
        Tensor(f"{stack}{{0}}.{name}", shape, every, stack, role, linear) for name, shape, role, linear in block
    ]
    tensors.append(Tensor("model.norm.weight", (hidden,), None, "", "norm", False))
    if not tied:
        tensors.append(Tensor("lm_head.weight", (vocabulary, hidden), None, "", "head", True))
    shape = Shape(
        hidden, layers, heads, kv_heads, head_dim, head_dim, intermediate, vocabulary, tied, "rms", "gated", "silu",
        8192, ("full_attention",) * layers, (None,) * layers, experts, 2 if experts else 0,
        intermediate if experts else 0, 0, every if experts else (), 0, 0, 0, 0, False,
    )  # fmt: skip
    return Model("test/decoder", "built by a test", "llama", dict(config), dtype, tuple(tensors), shape)


@pytest.fixture(scope="session")
def decoder():
    """The builder above."""
    return build


@pytest.fixture(scope="session")
def llama_8b():
    """Llama-3-8B: 8,030,261,248 parameters."""
    return build()


@pytest.fixture(scope="session")
def tiny():
    """A decoder of some 0.4 M parameters."""
    return build(hidden=64, layers=4, heads=4, kv_heads=2, intermediate=160, vocabulary=1000)


@pytest.fixture(scope="session")
def oracle_rows():
    """`benchmarks/accuracy/oracle_rows.py`: the oracle's points as jobs."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "accuracy" / "oracle_rows.py"
    spec = importlib.util.spec_from_file_location("oracle_rows", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
