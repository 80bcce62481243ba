"""What the servers beside vLLM have in common: options under several spellings, degrees of parallelism, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...upstream.behaviour import earlier
from ..core.arguments import Arguments
from ..core.format import JobBuilder, Problem, Reading
from ..core.keys import key_problems, load
from ..core.releases import last_known, still_known
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

CACHE_DTYPES = {
    "auto": "auto", "float16": "float16", "fp16": "float16", "half": "float16", "bfloat16": "bfloat16",
    "bf16": "bfloat16", "float32": "float32", "fp8": "fp8", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2",
    "fp8_e4m3fn": "fp8_e4m3", "int8": "int8", "int4": "int4", "fp4_e2m1": "fp4_e2m1", "nvfp4": "fp4_e2m1",
}  # fmt: skip
"""Spellings of the dtype of a KV cache -> the Job's."""

DTYPES = {
    "half": "float16", "float16": "float16", "fp16": "float16", "float": "float32", "float32": "float32",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
}  # fmt: skip


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


class Server:
    """A server's config being read into a Job."""

    __slots__ = ("arguments", "builder", "document", "engine", "options", "project", "version")

    def __init__(self, document: Document, project: Project, engine: Engine) -> None:
        self.document = document
        self.project = project
        self.engine = engine
        self.builder = JobBuilder(document, engine.upstream)
        self.arguments = Arguments(document.root, dashes=True)
        self.options = options_of(document, engine)
        for written, option in self.options.items():
            entry = self.arguments.entries.get(written.replace("-", "_"))
            if entry is not None:
                self.arguments.entries[option.replace("-", "_")] = entry
        self.version = project.versions.get(engine.name)

    def begin(self) -> Reading:
        """The reading, with what every server's Job says."""
        builder, engine = self.builder, self.engine
        builder.derived("kind", "inference", f"a server of {engine.title}")
        builder.derived("objective", "sft", "nothing is trained")
        builder.derived("inference.engine", engine.engine, f"a server of {engine.title}")
        note = "the version that the launcher states"
        if self.version:
            builder.derived("inference.version", self.version, note)
            builder.derived(f"versions.{engine.name}", self.version, note)
            builder.derived("versions", builder.job.versions, note)
        else:
            self._newest_that_fits()
        return Reading(engine.name, engine.upstream, self.document, builder.job)

    def _newest_that_fits(self) -> None:
        """The described version, or the newest that still knows every option of the file."""
        known, builder, engine = load(self.engine.name)["properties"], self.builder, self.engine
        found, given = engine.version, None
        for written, option in self.options.items():
            last = last_known(known.get(option, {}))
            if last and earlier(last, found) != found:
                found, given = last, self.arguments.raw(written)
        self.version = found
        for path in ("inference.version", f"versions.{engine.name}"):
            if given:
                builder.from_entry(path, found, given.entry, given.key, f"{given.key} was last known to it")
            else:
                builder.default(path, found)
        builder.default("versions", builder.job.versions)

    def put(self, path: str, kind: str, names: tuple[str, ...], default: Any, note: str = "", **options: Any) -> Any:
        """Set a field from the first of `names` that says a value of `kind` (a getter of Arguments); the value."""
        blank = self.arguments.blank(*names)
        given = None if blank else getattr(self.arguments, kind)(*names, **options)
        if given is not None:
            self.builder.from_entry(path, given.value, given.entry, given.key)
            return given.value
        if blank is not None:
            self.unknown(path, default, blank, note)
        else:
            self.builder.default(path, default, note)
        return default

    def unknown(self, path: str, value: Any, blank: Given, note: str = "") -> None:
        """A field whose value another program fills in."""
        told = f"{blank.value} is filled in when the job starts"
        self.builder.assumed(path, value, f"{told}; {note or f'default of {self.engine.upstream}'}")
        if path == "inference.max_model_len":
            self.builder.job.unstated.append(path)

    def set_model(self, *names: str) -> None:
        """The served model; None where the file does not name it."""
        blank = self.arguments.blank(*names)
        given = self.arguments.text(*names)
        if blank is not None:
            self.builder.assumed("model", None, f"{blank.value} is filled in when the job starts")
        elif given is not None:
            self.builder.from_entry("model", given.value, given.entry, given.key)
        else:
            self.builder.assumed("model", None, "the model is named elsewhere")

    def set_dtype(self, default: Any, note: str, *names: str) -> None:
        """The dtype of the weights; the checkpoint's own unless stated."""
        given = None if self.arguments.blank(*names) else self.arguments.text(*names)
        if given and given.value in DTYPES:
            self.builder.from_entry("weights.dtype", DTYPES[given.value], given.entry, given.key)
        elif given:
            self.builder.from_entry("weights.dtype", None, given.entry, given.key, "the checkpoint's own")
        else:
            self.builder.default("weights.dtype", default, note)

    def set_quantization(self, methods: dict[str, tuple[str, float | None]], *names: str) -> None:
        """How the weights are packed: as stated, or as the checkpoint is."""
        named = None if self.arguments.blank(*names) else self.arguments.text(*names)
        row = methods.get(named.value) if named else None
        if named and row:
            self.builder.from_entry("weights.quantization.method", row[0], named.entry, named.key)
            self.builder.from_entry("weights.quantization.bits", row[1], named.entry, named.key)
        elif named:
            note = "as the checkpoint is quantised"
            self.builder.from_entry("weights.quantization", None, named.entry, named.key, note)
        else:
            self.builder.default("weights.quantization", None, "as the checkpoint is quantised")

    def set_cache_dtype(self, *names: str) -> None:
        """The dtype of the KV cache; that of the model for a spelling that nobody knows."""
        given = None if self.arguments.blank(*names) else self.arguments.text(*names)
        if given is not None:
            value = CACHE_DTYPES.get(given.value.lower(), "auto")
            self.builder.from_entry("inference.kv_cache_dtype", value, given.entry, given.key)
        else:
            self.builder.default("inference.kv_cache_dtype", "auto")

    def set_degrees(self, *rows: tuple[str, tuple[str, ...]]) -> int:
        """Degrees of parallelism, each 1 by default; their product."""
        return set_degrees(self.builder, self.arguments, self.project, rows)

    def set_gpus(self, gpus: int, note: str) -> None:
        """The GPUs that the degrees need, where nobody said another number."""
        set_hardware(self.builder, self.project, None, sharded=False)
        if self.project.gpus is None:
            self.builder.derived("hardware.gpus", gpus, note, "parallelism.tensor")

    def problems(self) -> list[Problem]:
        """Unknown and removed options; those that the stated version still knows are fine."""
        known = load(self.engine.name)["properties"]
        other = {written for written in self.options if written not in known}
        found = key_problems(self.document, self.engine.name, known=other)
        stated = self.project.versions.get(self.engine.name)
        return [item for item in found if not still_known(item, _schema_of(item, known), stated)]


def set_degrees(
    builder: JobBuilder, arguments: Arguments, project: Project, rows: tuple[tuple[str, tuple[str, ...]], ...]
) -> int:
    """Degrees of parallelism by field, each 1 by default; one that is filled in later takes the GPUs that are left."""
    product = 1
    open_: list[tuple[str, Given]] = []
    for path, names in rows:
        blank = arguments.blank(*names)
        given = None if blank else arguments.integer(*names, least=1)
        if blank:
            open_.append((path, blank))
        elif given:
            builder.from_entry(path, given.value, given.entry, given.key)
            product *= given.value
        else:
            builder.default(path, 1)
    for number, (path, blank) in enumerate(open_):
        told = f"{blank.value} is filled in when the job starts"
        asked = project.asked or project.gpus
        left = max(1, (asked or 1) // product) if number == 0 else 1
        note = "the GPUs that it is given" if asked and number == 0 else "one"
        builder.assumed(path, left, f"{told}; {note}")
        if not asked:
            builder.job.unstated.append(path)
        product *= left
    return product


def options_of(document: Document, engine: Engine) -> dict[str, str]:
    """Each key of a config that is an option of the engine, and the first spelling of that option."""
    known = load(engine.name)["properties"]
    underscored = any("_" in name for name in known)
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


def _schema_of(problem: Problem, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = known.get(problem.key.replace("_", "-"), known.get(problem.key, {}))
    return found
