"""What servers have in common: options under several spellings, degrees of parallelism, quantisation, versions."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ...upstream.behaviour import earlier
from ..core.arguments import Arguments
from ..core.bindings.kinds import POSITIVE, TEXT, WHOLE_TEXT, WORD, Kind
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Written
from ..core.bindings.spelling import AMP, FLOAT8, GGML, PREFIXED, dtype
from ..core.keys import key_problems, load
from ..core.releases import last_with
from ..core.world_size import set_hardware
from .json_arguments import section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.bindings.reader import Blank
    from ..core.bindings.rows import Row, Source, Step
    from ..core.format import Problem, Project, Reading

    Methods = Mapping[str, tuple[str, float | None]]

_CACHE_DTYPES = {
    "auto": "auto", "float16": "float16", "fp16": "float16", "half": "float16", "bfloat16": "bfloat16",
    "bf16": "bfloat16", "float32": "float32", "fp8": "fp8", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
    "fp8_e4m3fn": "fp8_e4m3", "int8": "int8", "int4": "int4", "fp4_e2m1": "fp4_e2m1", "nvfp4": "fp4_e2m1",
}  # fmt: skip
"""Spellings of the dtype of a KV cache -> the Job's."""

DTYPE = dtype(refuses=PREFIXED | AMP | GGML | FLOAT8)


class Engine(NamedTuple):
    """A server: its format and schema, the estimator's engine, the key of its version, the version that is described.

    `prefixes`: its parser takes the beginning of an option that no other option begins with (argparse).
    """

    name: str
    engine: str
    version: str
    title: str
    prefixes: bool = False

    @property
    def upstream(self) -> str:
        """The version whose defaults hold: `sglang 0.5.23`."""
        return f"{self.title} {self.version}"


class Options(Arguments):
    """A server's options; `speculative_config.method` is a key of what an option holds as a mapping or as JSON."""

    __slots__ = ()

    def raw(self, *names: str) -> Given | None:
        """The first of `names` that the file has, whatever its value (null included)."""
        for name in names:
            option, dot, part = name.partition(".")
            found = section(self, option).get(part) if dot and name not in self else super().raw(name)
            if found is not None:
                return found
        return None


def _filled_in(reader: Reader, field: str, _given: Given, default: Source) -> Source:
    """What a blank stands for: the default, until another program fills the value in."""
    note = default.note or f"default of {reader.upstream}"
    unstated = field == "inference.max_model_len"
    return Assumed(default.value, f"{{value}} is filled in when the job starts; {note}", unstated)


class Server(Reader):
    """A server's config being read into a Job.

    `options` are its keys that are options of the engine, each with the option's first spelling; `version` is the one
    that is stated, once `set_version` has run the one that counts.
    """

    __slots__ = ("engine", "options", "version")

    def __init__(
        self, document: Document, project: Project, engine: Engine, *, blank: Blank | None = _filled_in
    ) -> None:
        keys = Options(document.root, dashes=True)
        self.options = options_of(document, engine)
        for written, option in self.options.items():
            entry = keys.entries.get(written.replace("-", "_"))
            if entry is not None:
                keys.entries[option.replace("-", "_")] = entry
        super().__init__(document, project, engine.name, engine.upstream, keys=keys, blank=blank)
        self.engine = engine
        self.version = project.versions.get(engine.name)
        self.reading.options = keys

    def problems(self) -> list[Problem]:
        """Unknown and removed options."""
        known = load(self.engine.name)["properties"]
        other = {written for written in self.options if written not in known}
        return key_problems(self.document, self.engine.name, known=other)


def server(engine: Engine) -> tuple[Row, ...]:
    """What every server's Job says."""
    note = f"a server of {engine.title}"
    return (
        Fixed("kind", Derived("inference", note)),
        Fixed("objective", Derived("sft", "nothing is trained")),
        Fixed("inference.engine", Derived(engine.engine, note)),
        set_version("inference.version", f"versions.{engine.name}"),
    )


def set_version(*fields: str) -> Step:
    """The version that the launcher states, else the described one, or the newest that knows every option."""

    def step(reader: Reader) -> None:
        assert isinstance(reader, Server)
        source, given = _version(reader)
        reader.version = source.value
        for field in fields:
            reader.put(field, source, given)
        note = source.note if isinstance(source, Derived) else ""
        reader.put("versions", source._replace(value=reader.job.versions) if note else reader.job.versions)

    return step


def _version(reader: Server) -> tuple[Source, Given | None]:
    if reader.version:
        return Derived(reader.version, "the version that the launcher states"), None
    known = load(reader.engine.name)["properties"]
    found, given = reader.engine.version, None
    for written in map(str, reader.document.root.keys()):
        name = written.partition(".")[0]
        option = reader.options.get(name, name.replace("_", "-"))
        _, last = last_with(reader.engine.name, option, known.get(option, {}))
        if last and earlier(last, found) != found:
            found, given = last, reader.keys.raw(written)
    return (Written(found, f"{given.key} was last known to it"), given) if given else (Default(found), None)


def served_model(*names: str) -> Row:
    """The served model; None where the file does not name it."""
    filled = Assumed(None, "{value} is filled in when the job starts")
    return Key("model", names, WHOLE_TEXT, Assumed(None, "the model is named elsewhere"), blank=filled)


def stored_dtype(names: str, default: Default, kind: Kind = DTYPE, back: Any = None) -> Row:
    """The dtype of the weights; the checkpoint's own for a word that is none (`auto`)."""
    other = Written(None, "the checkpoint's own")
    return Key("weights.dtype", names, kind, default, back=back, other=other, blank=default)


def quantization(
    methods: Methods, names: str | tuple[str, ...], written: Mapping[str, str] = MappingProxyType({})
) -> tuple[Row, ...]:
    """How the weights are packed: as `methods` say, else as the checkpoint is.

    `written` are the methods that the engine applies while it loads 16-bit weights, and its words for them.
    """
    note, path = "as the checkpoint is quantised", "weights.quantization"
    return (
        Key(f"{path}.method", names, TEXT, to={word: row[0] for word, row in methods.items()}, back=written),
        Key(f"{path}.bits", names, TEXT, to={word: row[1] for word, row in methods.items()}, back=NEVER),
        Key(path, names, TEXT, Default(None, note), lambda *_: None, NEVER, note=note),
    )


def cache_dtype(names: str | tuple[str, ...], back: Mapping[str, str] | None = None, default: Any = "auto") -> Row:
    """The dtype of the KV cache; that of the model for a spelling that nobody knows."""
    words = {**{dtype: dtype for dtype in _CACHE_DTYPES.values()}, **(back or {})}
    path = "inference.kv_cache_dtype"
    return Key(path, names, WORD, default, _CACHE_DTYPES, words, other=Written("auto"), blank=Default("auto"))


def degrees(*rows: Key) -> tuple[Row, ...]:
    """Degrees of parallelism, each 1 by default; one that is filled in later takes the GPUs that are left."""

    def step(reader: Reader) -> None:
        unset = [row for row in rows if row.field not in reader.job.origins]
        stated = {row.field: reader.given(POSITIVE, *row.names) for row in unset}
        product = 1
        for given in stated.values():
            product *= given.value if given else 1
        asked = reader.project.asked or reader.project.gpus
        left = max(1, (asked or 1) // product)
        for row in unset:
            given, blank = stated[row.field], reader.keys.blank(*row.names)
            if given or not blank:
                reader.put(row.field, Written(given.value) if given else 1, given)
                continue
            reader.reading.blanks.pop(blank.key, None)
            told = f"{blank.value} is filled in when the job starts; "
            told += "the GPUs that it is given" if asked and left else "one"
            reader.put(row.field, Assumed(left or 1, told, unstated=not asked))
            left = 0

    return step, *rows


def gpus_of_degrees(note: str) -> Step:
    """The GPUs that the degrees need, where nobody said another number."""

    def step(reader: Reader) -> None:
        set_hardware(reader, reader.project, None, sharded=False)
        if reader.project.gpus is None:
            plan = reader.job.parallelism
            gpus = plan.tensor * plan.pipeline * (plan.data or 1) * plan.context
            reader.derived("hardware.gpus", gpus, note, "parallelism.tensor")

    return step


def options_of(document: Document, engine: Engine) -> dict[str, str]:
    """Each key of a config that is an option of the engine, and the first spelling of that option."""
    known = load(engine.name)["properties"]
    underscored = _is_underscored(known)
    found: dict[str, str] = {}
    for key in list(document.root.keys()):
        name = str(key).replace("-", "_") if underscored else str(key).replace("_", "-")
        if name not in known and engine.prefixes and len(name) > 1:
            begun = {known[option].get("x-option", option) for option in known if option.startswith(name)}
            current = {option for option in begun if "x-removed" not in known[option]}
            name = current.pop() if len(current) == 1 else name
        if name in known:
            found[str(key)] = known[name].get("x-option", name)
    return found


def spelled_as(engine: Engine) -> Any:
    """An option as the file spells it already, else with the dashes or underscores of the engine."""

    def spelled(reading: Reading, key: str) -> str:
        known = load(engine.name)["properties"]
        option = key if _is_underscored(known) else key.replace("_", "-")
        first = known.get(option, {}).get("x-option", option)
        found = [written for written, meant in options_of(reading.config, engine).items() if meant == first]
        return found[-1] if found else option

    return spelled


def _is_underscored(known: Mapping[str, Any]) -> bool:
    return any("_" in name for name in known)


def _schema_of(problem: Problem, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = known.get(problem.key.replace("_", "-"), known.get(problem.key, {}))
    return found
