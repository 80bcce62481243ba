"""What PEFT's adapters other than LoRA add to a linear module, and once to the whole model (peft 0.21.2, tuners/*).

`i` and `o` are a module's input and output features, `r` the rank. Everything is float32 over a 16-bit or packed base
(`cast_adapter_dtype`), but for index tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .adapter_types import OPTIONS, kind_of, number, option
from .lora_targets import NotAdaptable, NotModelled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..job.job import Adapter
    from .adapted_module import AdaptedModule
    from .model import Model


class Part(NamedTuple):
    """A tensor of an adapter: `trained`, or a table that lies beside it; `dtype` None is the adapter's."""

    name: str
    shape: tuple[int, ...]
    trained: bool = True
    dtype: str | None = None


def parts_of(adapter: Adapter, i: int, o: int, rank: int, feedforward: bool = False) -> list[Part]:
    """The tensors that one adapted module gets. Raises NotAdaptable where PEFT refuses the sizes."""
    kind = kind_of(adapter)
    _check(adapter, i, rank)
    if kind == "ia3":
        return [Part("ia3_l_feedforward", (i,)) if feedforward else Part("ia3_l", (o,))]
    return _PARTS[kind](adapter, i, o, rank)


def shared_parts(adapter: Adapter, modules: Sequence[AdaptedModule]) -> list[Part]:
    """The tensors that several of the adapted modules use together."""
    kind = kind_of(adapter)
    if not modules or kind not in ("lily", "pvera", "randlora", "tinylora", "unilora", "vblora", "vera"):
        return []
    sizes = [(module.in_features, module.out_features, module.rank) for module in modules]
    for i, _, each in sizes:
        _check(adapter, i, each)
    widest, highest, rank = (max(values) for values in zip(*sizes, strict=True))
    if kind == "lily":
        return [part for module in modules for part in _lily(adapter, module)]
    if kind == "tinylora":
        tied = float(option(adapter, "weight_tying") or 0.0)
        groups = max(1, round(sum(module.copies for module in modules) * (1 - tied)))
        return [Part("tinylora_v", (groups, number(adapter, "u")))] if tied else []
    if kind == "unilora":
        return [Part("unilora_theta_d", (number(adapter, "theta_d_length"),))]
    if kind == "vblora":
        return [Part("vblora_vector_bank", (number(adapter, "num_vectors"), number(adapter, "vector_length")))]
    if kind == "randlora":
        least = max(min(i, o) for i, o, _ in sizes)
        most = max(max(i, o) for i, o, _ in sizes)
        bases = -(-least // rank)
        return [Part("randlora_A", (rank, 1, least), False), Part("randlora_B", (most, bases, rank), False)]
    rows = 2 * rank if kind == "pvera" else rank
    return [Part(f"{kind}_A", (rows, widest), False), Part(f"{kind}_B", (highest, rank), False)]


MOST_STEPS = 1000
"""Most layers (`depth`) and terms of a series that an adapter's computation is followed through."""


def _check(adapter: Adapter, i: int, rank: int) -> None:
    """Raises NotAdaptable where a count of the type is none, NotModelled where it is out of all proportion."""
    kind = kind_of(adapter)
    for name, default in OPTIONS.get(kind, {}).items():
        value = rank if name == "r" else option(adapter, name)
        if isinstance(default, bool) or not isinstance(default, (int, float)):
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            if value is not None or isinstance(default, float):
                raise NotAdaptable(f"`{name}` of {adapter.type} is not a number: {value!r}")
        elif default >= 1 and value < 1 and name not in ("oft_block_size", "mini_r"):
            raise NotAdaptable(f"`{name}` of {adapter.type} must be at least 1, not {value}")
        elif name in ("depth", "num_cayley_neumann_terms") and value > MOST_STEPS:
            raise NotModelled(f"`{name}` of {adapter.type} is {value}; more than {MOST_STEPS} are not supported")
    if kind == "miss" and option(adapter, "init_weights") == "mini" and number(adapter, "mini_r") < 1:
        raise NotAdaptable("`mini_r` of miss must be at least 1 with `init_weights: mini`")
    if kind == "hra" and rank > i:
        raise NotModelled(f"HRA of {rank} reflections on {i} inputs is not supported")


def prompt_parts(adapter: Adapter, model: Model) -> list[Part]:
    """The virtual tokens of a model and what makes them (tuners/prompt_tuning, p_tuning and prefix_tuning/model.py).

    With n tokens of width h: n h; P-tuning an MLP of three layers over them; a prefix has keys and values of every
    layer instead, n 2 L k (k: the width of all key heads, as PEFT reckons it), with `prefix_projection` through an MLP
    of two layers. Raises NotAdaptable where a size that PEFT needs is not stated.
    """
    kind, n, shape = kind_of(adapter), number(adapter, "num_virtual_tokens"), model.shape
    if n < 1:
        raise NotAdaptable("num_virtual_tokens is not set, and PEFT has no default")
    inner = number(adapter, "encoder_hidden_size") or shape.hidden
    tokens = n * (2 if shape.encoder_layers else 1)
    if kind == "prompttuning":
        return [Part(f"{_ENCODER}.embedding.weight", (tokens, shape.hidden))]
    if kind == "ptuning":
        if str(option(adapter, "encoder_reparameterization_type")).upper() != "MLP":
            raise NotModelled("P-tuning with an LSTM is not modelled")
        sizes = (shape.hidden, inner), (inner, inner), (inner, shape.hidden)
        return [Part(f"{_ENCODER}.embedding.weight", (tokens, shape.hidden)), *_mlp(f"{_ENCODER}.mlp_head", sizes)]
    width = shape.hidden // max(1, shape.heads) * shape.kv_heads
    every = 2 * shape.layers * width
    if not option(adapter, "prefix_projection"):
        return [Part(f"{_ENCODER}.embedding.weight", (n, every))]
    return [
        Part(f"{_ENCODER}.embedding.weight", (n, width)),
        *_mlp(f"{_ENCODER}.transform", ((width, inner), (inner, every))),
    ]


def _mlp(name: str, sizes: Sequence[tuple[int, int]]) -> list[Part]:
    """Weights and biases of linear layers with an activation between them."""
    shapes = [(f"{name}.{2 * k}", i, o) for k, (i, o) in enumerate(sizes)]
    return [part for at, i, o in shapes for part in (Part(f"{at}.weight", (o, i)), Part(f"{at}.bias", (o,)))]


_ENCODER = "prompt_encoder"


def _lily(adapter: Adapter, module: AdaptedModule) -> list[Part]:
    """Downward projections that `stride_A` neighbouring layers share, and `num_B` upward ones that all layers do."""
    groups, r = -(-module.copies // max(1, number(adapter, "stride_A"))), module.rank
    name = module.name.rpartition(".")[2]
    upward = Part(f"lily.{name}.B", (number(adapter, "num_B") * r, module.out_features))
    return [Part(f"lily.{name}.A", (groups * r, module.in_features)), upward]


def _adalora(_: Adapter, i: int, o: int, r: int) -> list[Part]:
    return [Part("lora_A", (r, i)), Part("lora_E", (r, 1)), Part("lora_B", (o, r)), Part("ranknum", (1,), False)]


def _vera(adapter: Adapter, _: int, o: int, r: int) -> list[Part]:
    kind = kind_of(adapter)
    return [Part(f"{kind}_lambda_b", (o,)), Part(f"{kind}_lambda_d", (2 * r if kind == "pvera" else r,))]


def _loha(_: Adapter, i: int, o: int, r: int) -> list[Part]:
    return [Part(f"hada_w{n}_{side}", (o, r) if side == "a" else (r, i)) for n in (1, 2) for side in "ab"]


def _lokr(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    """A Kronecker product: each factor whole, or a low-rank pair where that is smaller."""
    factor = number(adapter, "decompose_factor") or -1
    (m, n), (h, k) = factorization(i, factor), factorization(o, factor)
    first = [Part("lokr_w1", (h, m))]
    if option(adapter, "decompose_both") and r < max(h, m) / 2:
        first = [Part("lokr_w1_a", (h, r)), Part("lokr_w1_b", (r, m))]
    if r < max(k, n) / 2:
        return [*first, Part("lokr_w2_a", (k, r)), Part("lokr_w2_b", (r, n))]
    return [*first, Part("lokr_w2", (k, n))]


def _miss(adapter: Adapter, _: int, o: int, r: int) -> list[Part]:
    """Of `bat` and of the plain form the same count; `mini` repeats a narrow block over the outputs."""
    return [Part("miss_block", (r, number(adapter, "mini_r") if option(adapter, "init_weights") == "mini" else o))]


def _oft(adapter: Adapter, i: int, _: int, r: int) -> list[Part]:
    """The strict upper triangles of the blocks, and where they stand in them."""
    blocks, size = rotation_blocks(adapter, i, r)
    cells = size * (size - 1) // 2
    tables = [Part(name, (cells,), False, "int64") for name in ("rows", "cols")]
    return [Part("oft_R", (1 if option(adapter, "block_share") else blocks, cells)), *tables]


def rotation_blocks(adapter: Adapter, i: int, r: int) -> tuple[int, int]:
    """OFT's and BOFT's blocks of a module with `i` inputs, and their size; PEFT adjusts OFT's to a divisor of `i`."""
    if kind_of(adapter) == "boft":
        count, size = number(adapter, "boft_block_num"), number(adapter, "boft_block_size")
        size = i // count if count else size
        if not size or i % size:
            raise NotAdaptable(f"BOFT's blocks do not divide {i} inputs")
        return i // size, size
    size = number(adapter, "oft_block_size")
    if not size and not r:
        raise NotAdaptable("OFT has neither `r` nor `oft_block_size`")
    if size:
        size = _divisor(i, size)
        return i // size, size
    count = _divisor(i, r)
    return count, i // count


def _divisor(whole: int, wanted: int) -> int:
    """The divisor of `whole` next to `wanted` (oft/layer.py `adjust_oft_parameters`)."""
    if 0 < wanted <= whole and whole % wanted == 0:
        return wanted
    higher = next((n for n in range(max(1, wanted), whole + 1) if whole % n == 0), whole)
    lower = next((n for n in range(min(wanted, whole), 1, -1) if whole % n == 0), 1)
    return lower if wanted - lower <= higher - wanted else higher


def _boft(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    """Blocks, output scales and a permutation of the inputs as a whole matrix for each butterfly factor.

    Without the CUDA extension PEFT takes one factor, whatever is stated (`boft_n_butterfly_factor`).
    """
    blocks, size = rotation_blocks(adapter, i, r)
    factors = max(1, number(adapter, "boft_n_butterfly_factor"))
    return [
        Part("boft_R", (factors, blocks, size, size)),
        Part("boft_s", (o, 1)),
        Part("boft_P", (factors, i, i), False, "float32"),
    ]


def _shira(_: Adapter, i: int, o: int, r: int) -> list[Part]:
    """As many single weights as a low-rank pair would have, and where they stand."""
    count = r * (i + o)
    return [Part("shira_weight", (count,)), Part("shira_indices", (2, count), False, "int32")]


def _supertuning(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    """The weights that `sparsity` leaves, where they stand, and a low-rank pair where a rank is stated."""
    count = int(i * o * (1 - float(option(adapter, "sparsity"))))
    found = [Part("supertuning_values", (count,)), Part("supertuning_indices", (count,), False, "int32")]
    pair = [Part("supertuning_lora_A", (r, i)), Part("supertuning_lora_B", (o, r))]
    return found + pair if adapter.options.get("r") else found


def _unilora(_: Adapter, i: int, o: int, r: int) -> list[Part]:
    """Which element of the learned vector stands where in a low-rank pair, and times what."""
    shapes = {"A": (r, i), "B": (o, r)}
    indices = [Part(f"unilora_indices_{side}", shape, False, "int64") for side, shape in shapes.items()]
    return indices + [Part(f"unilora_scales_{side}", shape, False) for side, shape in shapes.items()]


def _tinylora(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    """`u` numbers, of which a square between frozen singular vectors is made; tied ones belong to several modules."""
    u = number(adapter, "u")
    own = [] if option(adapter, "weight_tying") else [Part("tinylora_v", (u,))]
    return [
        *own,
        Part("tinylora_A", (r, i), False),
        Part("tinylora_B", (o, r), False),
        Part("tinylora_P", (u, r, r), False),
    ]


def _psoft(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    """A rotation between frozen singular vectors.

    Those of the inputs are rows cut from the whole decomposition, which stays with them, unless it is a `lowrank` one.
    """
    if not option(adapter, "psoft_orth"):
        raise NotModelled("PSOFT without psoft_orth is not modelled")
    cells = r * (r - 1) // 2
    found = [Part("psoft_R", (cells,)), *(Part(name, (cells,), False, "int64") for name in ("rows", "cols"))]
    found += [Part(f"vector_{side}", (r,)) for side in "ab" if option(adapter, f"psoft_mag_{side}")]
    rows = r if str(option(adapter, "psoft_svd")) == "lowrank" else min(i, o)
    return [*found, Part("psoft_A", (rows, i), False, "float32"), Part("psoft_B", (o, r), False, "float32")]


def _peanut(adapter: Adapter, _: int, o: int, r: int) -> list[Part]:
    depth = number(adapter, "depth")
    middle = [Part(f"peanut_{name}_{n}", (r, r)) for name in ("encoder", "decoder") for n in range(depth)]
    return [Part("peanut_A", (r, o)), *middle, Part("peanut_B", (o, r))]


def _deft(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    projection = Part("deft_P", (o, min(r, o)))
    return [projection] if option(adapter, "para") else [projection, Part("deft_R", (min(r, o), i))]


def _vblora(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    vectors, length = number(adapter, "num_vectors"), number(adapter, "vector_length")
    if not length or i % length or o % length:
        raise NotAdaptable(f"VB-LoRA's vector_length {length} does not divide {i} and {o} features")
    shapes = (r, i // length, vectors), (o // length, r, vectors)
    return [Part(f"vblora_logits_{side}", shape) for side, shape in zip("AB", shapes, strict=True)]


def _delora(_: Adapter, i: int, o: int, r: int) -> list[Part]:
    pair = [Part("delora_A", (r, i)), Part("delora_B", (o, r)), Part("delora_lambda", (1,))]
    return [*pair, Part("delora_w_norm", (i,), False)]


def _glora(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    """What the weight is multiplied by and what is added to it, each a low-rank product, a column or one number.

    The three paths of a bias are empty where there is none; they hold zeros of the base's dtype.
    """
    form = str(option(adapter, "config_A_B"))
    if form not in ("lora", "vector", "constant"):
        raise NotModelled(f"GLoRA with config_A_B {form} is not modelled")
    shapes = {"lora": (("d", (o, r)), ("u", (r, i))), "vector": (("", (o, 1)),), "constant": (("", (1,)),)}[form]
    paths = [Part(f"glora_{path}{side}", shape) for path in "AB" for side, shape in shapes]
    return [*paths, *(Part(f"glora_{path}", (n,), False, "bfloat16") for path, n in (("C", i), ("D", o), ("E", o)))]


def _gralora(adapter: Adapter, i: int, o: int, r: int) -> list[Part]:
    k, general = max(1, number(adapter, "gralora_k")), number(adapter, "hybrid_r")
    if i % k or o % k:
        raise NotAdaptable(f"GraLoRA's gralora_k {k} does not divide {i} and {o} features")
    pair = [Part("gralora_A", (k, i // k, r)), Part("gralora_B", (k, r, o // k))]
    whole = [Part("gralora_A_general", (general, i)), Part("gralora_B_general", (o, general))]
    return pair + whole if general else pair


def _c3a(adapter: Adapter, i: int, o: int, _: int) -> list[Part]:
    size = number(adapter, "block_size")
    if not size or i % size or o % size:
        raise NotAdaptable(f"C3A's block_size {size} does not divide {i} and {o} features")
    return [Part("c3a_kernel", (o // size, i // size, size))]


def _road(adapter: Adapter, _: int, o: int, __: int) -> list[Part]:
    size = {"road_2": o, "road_4": 2 * o}.get(str(option(adapter, "variant")), o // 2)
    return [Part("road_theta", (size,)), Part("road_alpha", (size,))]


def _randlora(_: Adapter, i: int, o: int, r: int) -> list[Part]:
    least = min(i, o)
    bases = -(-least // r)
    return [Part("randlora_lambda", (r, bases)), Part("randlora_gamma", (bases, least))]


_PARTS: dict[str, Callable[[Adapter, int, int, int], list[Part]]] = {
    "adalora": _adalora,
    "beft": lambda _, __, o, ___: [Part("beft_bias", (1, o))],
    "boft": _boft,
    "c3a": _c3a,
    "deft": _deft,
    "delora": _delora,
    "fourierft": lambda adapter, *_: [Part("fourierft_spectrum", (number(adapter, "n_frequency"),))],
    "glora": _glora,
    "gralora": _gralora,
    "hira": lambda _, i, o, r: [Part("hira_A", (r, i)), Part("hira_B", (o, r))],
    "hra": lambda _, i, __, r: [Part("hra_u", (i, r))],
    "lily": lambda adapter, _, __, r: [Part("lily_router", (number(adapter, "num_B"), r))],
    "loha": _loha,
    "lokr": _lokr,
    "miss": _miss,
    "oft": _oft,
    "peanut": _peanut,
    "psoft": _psoft,
    "pvera": _vera,
    "randlora": _randlora,
    "road": _road,
    "shira": _shira,
    "supertuning": _supertuning,
    "tinylora": _tinylora,
    "unilora": _unilora,
    "vblora": _vblora,
    "vera": _vera,
}


def factorization(whole: int, factor: int) -> tuple[int, int]:
    """Two factors of `whole`, the smaller first: `factor` where it divides, else the closest pair up to it.

    Of the pairs whose sum does not grow (tuners/lokr/layer.py `factorization`, after LyCORIS).
    """
    if factor > 0 and whole % factor == 0:
        return factor, whole // factor
    most = whole if factor == -1 else factor
    small, large = 1, whole
    while small < large:
        step = next(n for n in range(small + 1, whole + 1) if whole % n == 0)
        other = whole // step
        if step + other > 1 + whole or step > most:
            break
        small, large = step, other
    return min(small, large), max(small, large)
