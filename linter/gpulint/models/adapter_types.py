"""The types of adapters by what they are: a low-rank pair, something else inside modules, or tokens before the text.

Names are compared without case, dashes and underscores: `LN_TUNING` is `lntuning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..job.job import Adapter

LOW_RANK = frozenset(
    {
        "corda",
        "dora",
        "eva",
        "loftq",
        "lora",
        "lorafa",
        "loraga",
        "mica",
        "olora",
        "pissa",
        "qdora",
        "qlora",
        "rslora",
    }
)
"""Adapters that are a low-rank pair a module; but for DoRA's magnitudes they differ in how the pair begins."""

FROZEN_SIDE = {"lorafa": "lora_A", "mica": "lora_B"}
"""Types that train one matrix of the pair (peft optimizers/lorafa.py, tuners/lora/layer.py `mica_init`)."""

INSIDE = frozenset(
    {
        "adalora",
        "beft",
        "boft",
        "c3a",
        "deft",
        "delora",
        "fourierft",
        "glora",
        "gralora",
        "hira",
        "hra",
        "ia3",
        "lily",
        "loha",
        "lokr",
        "miss",
        "oft",
        "peanut",
        "psoft",
        "pvera",
        "randlora",
        "road",
        "shira",
        "supertuning",
        "tinylora",
        "unilora",
        "vblora",
        "vera",
    }
)
"""Adapters of linear modules whose parts `adapter_parts.py` lists."""

WITH_TABLES = frozenset(
    {
        "boft",
        "delora",
        "glora",
        "oft",
        "psoft",
        "pvera",
        "randlora",
        "shira",
        "supertuning",
        "tinylora",
        "unilora",
        "vera",
    }
)
"""Those with tensors that nothing trains beside the trained ones; FSDP and ZeRO-3 leave buffers whole on each rank."""

TOKENS = frozenset({"prompttuning", "ptuning"})
"""Virtual tokens before the embeddings of the text."""

PROMPTS = TOKENS | {"prefixtuning"}
"""What is learned stands before the text: its embeddings, or keys and values of every layer."""

COPIED = frozenset({"lntuning"})
"""The targets are trained as copies of themselves."""

MODELLED = LOW_RANK | INSIDE | PROMPTS | COPIED

_SAME = {"bone": "miss", "promptencoder": "ptuning", "prompt": "prompttuning", "prefix": "prefixtuning"}
"""MiSS was called Bone before peft 0.19."""

OPTIONS: dict[str, dict[str, Any]] = {
    "adalora": {"r": 12},
    "boft": {"boft_block_size": 4, "boft_block_num": 0, "boft_n_butterfly_factor": 1},
    "c3a": {"block_size": 256},
    "deft": {"r": 8, "decomposition_method": "relu", "para": False},
    "delora": {"r": 8},
    "fourierft": {"n_frequency": 1000},
    "glora": {"r": 4, "config_A_B": "lora"},
    "gralora": {"r": 32, "gralora_k": 2, "hybrid_r": 0},
    "hira": {"r": 32},
    "hra": {"r": 8, "apply_GS": False},
    "ia3": {"feedforward_modules": None},
    "lily": {"r": 32, "num_B": 2, "stride_A": 2},
    "loha": {"r": 8},
    "lokr": {"r": 8, "decompose_both": False, "decompose_factor": -1},
    "miss": {"r": 64, "mini_r": 1, "init_weights": True},
    "oft": {"oft_block_size": 32, "block_share": False, "use_cayley_neumann": True, "num_cayley_neumann_terms": 5},
    "peanut": {"r": 32, "depth": 0},
    "prefixtuning": {"num_virtual_tokens": None, "prefix_projection": False, "encoder_hidden_size": None},
    "prompttuning": {"num_virtual_tokens": None},
    "ptuning": {
        "num_virtual_tokens": None,
        "encoder_hidden_size": None,
        "encoder_reparameterization_type": "MLP",
    },
    "psoft": {
        "r": 32,
        "psoft_svd": "full",
        "psoft_orth": True,
        "psoft_mag_a": True,
        "psoft_mag_b": True,
        "use_cayley_neumann": False,
        "num_cayley_neumann_terms": 5,
    },
    "pvera": {"r": 256},
    "randlora": {"r": 32},
    "road": {"variant": "road_1", "group_size": 64},
    "shira": {"r": 32},
    "supertuning": {"r": 0, "sparsity": 0.99},
    "tinylora": {"r": 2, "u": 64, "weight_tying": 0.0},
    "unilora": {"r": 4, "theta_d_length": 256},
    "vblora": {"r": 4, "num_vectors": 256, "vector_length": 256, "topk": 2},
    "vera": {"r": 256},
}
"""What each type has of its own, with the defaults of peft 0.21.2 (`tuners/*/config.py`); `r` is that of a job that
names none.
"""


def kind_of(adapter: Adapter) -> str:
    """The type's name as it is compared here."""
    name = adapter.type.lower().replace("-", "").replace("_", "")
    return _SAME.get(name, name)


def option(adapter: Adapter, name: str) -> Any:
    """An option of the adapter's type, PEFT's default where the job does not state it."""
    found = adapter.options.get(name)
    return OPTIONS.get(kind_of(adapter), {}).get(name) if found is None else found


def number(adapter: Adapter, name: str) -> int:
    """An option that counts something, 0 where it is not a number."""
    found = option(adapter, name)
    return int(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else 0


def virtual_tokens(adapter: Adapter | None) -> int:
    """How many virtual tokens stand before a sequence; 0 for adapters of other types, and for keys and values."""
    return number(adapter, "num_virtual_tokens") if adapter is not None and kind_of(adapter) in TOKENS else 0


def prefix_tokens(adapter: Adapter | None) -> int:
    """How many positions a learned prefix of keys and values has; 0 without one."""
    return number(adapter, "num_virtual_tokens") if adapter is not None and kind_of(adapter) == "prefixtuning" else 0
