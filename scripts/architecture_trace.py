"""Draft an architecture table from a Transformers class: shapes as expressions over its config fields.

The model is built on torch's meta device from a config whose integers remember where they come from; every shape
that reaches `torch.empty` and its kin is then an expression (`num_key_value_heads*head_dim`). Existence conditions
are not traced: `draft` states what one config makes, and a person adds the `when` of optional rows.

Needs torch and transformers. Used by `python -m scripts.models draft` and `annotate`.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTO_CLASSES = {
    "CTC": "AutoModelForCTC",
    "CausalLM": "AutoModelForCausalLM",
    "ImageTextToText": "AutoModelForImageTextToText",
    "MultimodalLM": "AutoModelForMultimodalLM",
    "Seq2SeqLM": "AutoModelForSeq2SeqLM",
    "SpeechSeq2Seq": "AutoModelForSpeechSeq2Seq",
    "MaskedLM": "AutoModelForMaskedLM",
    "ImageClassification": "AutoModelForImageClassification",
    "Model": "AutoModel",
}
_INDEX = re.compile(r"\.(\d+)(?=\.|$)")


class Row(NamedTuple):
    """One parameter or buffer of a built model; `kind` is the class of the module that holds it."""

    name: str
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    kind: str
    buffer: bool


class Traced(int):
    """An integer that remembers the expression it came from."""

    text: str

    def __new__(cls, value: int, text: str) -> Traced:  # noqa: PYI034
        """`value`, written `text` in a table."""
        self = super().__new__(cls, value)
        self.text = text
        return self

    def _with(self, other: Any, sign: str, value: Any, swapped: bool = False) -> Any:
        if isinstance(other, float) or not isinstance(value, int):
            return value
        left, right = _text(self), _text(other)
        if swapped:
            left, right = right, left
        if sign == "*" and (left == "1" or right == "1"):
            return Traced(value, right if left == "1" else left)
        if sign != "+":
            left, right = _grouped(left), _grouped(right)
        return Traced(value, f"{left}{sign}{right}")

    def __add__(self, other: Any) -> Any:
        return self._with(other, "+", int(self) + other)

    def __radd__(self, other: Any) -> Any:
        return self._with(other, "+", other + int(self), swapped=True)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "-", int(self) - other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, "-", other - int(self), swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, "*", int(self) * other)

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, "*", other * int(self), swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, "//", int(self) // other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, "//", other // int(self), swapped=True)

    def __deepcopy__(self, memo: Any) -> Traced:
        return self

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if other == 2:
            return self * self
        return pow(int(self), other, modulus)


def _text(value: Any) -> str:
    return value.text if isinstance(value, Traced) else str(int(value))


def _grouped(text: str) -> str:
    return text if re.fullmatch(r"[\w.]+|at\([\w.]+,\d+\)", text) else f"({text})"


def _trace_config(config: Any, prefix: str = "", depth: int = 0) -> None:
    for name, value in list(vars(config).items()):
        if name.startswith("_"):
            continue
        if isinstance(value, int) and not isinstance(value, (bool, Traced)):
            vars(config)[name] = Traced(value, prefix + name)
        elif isinstance(value, (list, tuple)) and value and all(type(item) is int for item in value):
            vars(config)[name] = [Traced(item, f"at({prefix}{name},{at})") for at, item in enumerate(value)]
        elif hasattr(value, "model_type") and depth < 3:
            _trace_config(value, f"{prefix}{name}.", depth + 1)


def _recorder(torch: Any) -> tuple[Any, dict[int, tuple[str, ...]]]:
    """A torch function mode that notes the expressions behind every new tensor's shape, and the notes."""
    shapes: dict[int, tuple[str, ...]] = {}
    kept: list[Any] = []
    factories = {getattr(torch, name) for name in ("empty", "zeros", "ones", "randn", "rand", "full")}

    class Recorder(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            if not isinstance(made, torch.Tensor) or id(made) in shapes:
                return made
            if func in factories:
                size = args[0] if args and isinstance(args[0], (list, tuple)) else args
                note = tuple(_text(dim) for dim in size)
            else:
                alike = (a for a in args if isinstance(a, torch.Tensor) and a.shape == made.shape and id(a) in shapes)
                note = next((shapes[id(argument)] for argument in alike), ())
            if len(note) == made.dim():
                shapes[id(made)] = note
                kept.append(made)
            return made

    return Recorder(), shapes


@contextlib.contextmanager
def _noted_parameters(torch: Any, shapes: dict[int, tuple[str, ...]]) -> Iterator[None]:
    original = torch.nn.Parameter.__new__

    def new(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        made = original(cls, data, requires_grad)
        if data is not None and id(data) in shapes:
            shapes[id(made)] = shapes[id(data)]
        return made

    torch.nn.Parameter.__new__ = new
    try:
        yield
    finally:
        torch.nn.Parameter.__new__ = original


def build(config: dict[str, Any], auto_class: str = "CausalLM", trace: bool = False) -> list[Row]:
    """The parameters and persistent buffers of the model that Transformers makes of `config`, tied ones once."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    pytorch_utils = importlib.import_module("transformers.pytorch_utils")
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    fields = copy.deepcopy(config)
    made = mapping[fields.pop("model_type")].from_dict(fields)
    if trace:
        _trace_config(made)
    factory = getattr(transformers, AUTO_CLASSES[auto_class])
    recorder, shapes = _recorder(torch)
    with torch.device("meta"), recorder, _noted_parameters(torch, shapes):
        model = factory.from_config(made)
        modules = dict(model.named_modules())
        parameters = dict(model.named_parameters())
        tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - set(parameters)
        buffers = {name: value for name, value in model.state_dict().items() if name not in parameters}
        rows = []
        for name, tensor in [*parameters.items(), *buffers.items()]:
            if name in tied:
                continue
            module = modules[name.rpartition(".")[0]]
            kind = type(module).__name__
            if isinstance(module, torch.nn.Linear):
                kind = "Linear"
            elif isinstance(module, pytorch_utils.Conv1D):
                kind = "Conv1D"
            elif isinstance(module, torch.nn.Embedding):
                kind = "Embedding"
            shape = tuple(int(dim) for dim in tensor.shape)
            dims = shapes.get(id(tensor), tuple(str(dim) for dim in shape))
            if len(dims) != len(shape):
                dims = tuple(str(dim) for dim in shape)
            rows.append(Row(name, shape, dims, kind, name not in parameters))
    return rows


RMS_CLASSES = ("T5LayerNorm", "MT5LayerNorm", "UMT5LayerNorm", "CpmAntLayerNorm")
"""Classes called LayerNorm that subtract no mean."""


def norm_kind(config: dict[str, Any], auto_class: str) -> str | None:
    """`rms` or `layer`, whichever most norms of the model outside its vision and audio towers are."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    fields = copy.deepcopy(config)
    made = mapping[fields.pop("model_type")].from_dict(fields)
    with torch.device("meta"):
        model = getattr(transformers, AUTO_CLASSES[auto_class]).from_config(made)
    names = [
        type(module).__name__
        for name, module in model.named_modules()
        if not re.search(r"vision|visual|audio|projector", name)
    ]
    rms = sum("RMS" in name or name in RMS_CLASSES for name in names)
    layer = sum("LayerNorm" in name and "RMS" not in name and name not in RMS_CLASSES for name in names)
    return None if rms == layer == 0 else "rms" if rms >= layer else "layer"


def template(name: str) -> tuple[str, int | None]:
    """A state-dict name with `{0}` for its first index, and that index."""
    match = _INDEX.search(name)
    if match is None:
        return name, None
    return f"{name[: match.start()]}.{{0}}{name[match.end() :]}", int(match.group(1))


def draft(config: dict[str, Any], auto_class: str) -> list[dict[str, Any]]:
    """Rows of a table as one config makes them: name, shape, linear, buffer and the layers that have it."""
    found: dict[tuple[str, tuple[str, ...]], dict[str, Any]] = {}
    for row in build(config, auto_class, trace=True):
        name, index = template(row.name)
        dims = row.dims if row.kind != "Conv1D" or len(row.dims) != 2 else row.dims[::-1]
        entry = found.setdefault((name, dims), {"name": name, "shape": list(dims), "kind": row.kind})
        if row.buffer:
            entry["buffer"] = True
        if index is not None:
            entry.setdefault("layers", []).append(index)
    return list(found.values())
