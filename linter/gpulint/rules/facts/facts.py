"""What rules may speak of: facts about one reading, derived when a rule first asks.

A fact is a dotted name. Named facts are functions registered with `@fact`; their docstring is the meaning that
the documentation prints. Besides them are open families: every Job field by its path, `config.<key>` of the
checked file, `option.<name>` of a server in any spelling, `deepspeed.<key>` of the DeepSpeed config in force,
`launch.<name>` of the launcher that starts it, `origin.<field>` (file, default, assumed ...) of a Job field, and
`item.<value>` in rules with `each`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ...estimator import budget
from ...formats.core.arguments import Arguments
from ..expression import UNKNOWN
from ..quantity import CONSTANTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...estimator.estimate import Estimate, Spread
    from ...formats.core.arguments import Given
    from ...formats.core.format import Problem, Project, Reading
    from ...hardware.gpu import Gpu
    from ...job.job import Job
    from ...models.model import Model
    from ...source.node import Entry, Node

CONFIG, DEEPSPEED, ITEM, LAUNCH, OPTION, ORIGIN = "config.", "deepspeed.", "item.", "launch.", "option.", "origin."

KEYS = (CONFIG, DEEPSPEED, LAUNCH, OPTION)
"""Families of what is written somewhere: rules may ask whether it is, and point there."""

MAX_ESTIMATES = 24
"""What-if estimates that the conditions of all rules may ask for on one file."""


class Fact(NamedTuple):
    """A named fact: its unit, what it means, how it is derived, and its type in words."""

    unit: str
    meaning: str
    derive: Callable[[Facts], Any]
    type: str


FACTS: dict[str, Fact] = {}


def fact(path: str, unit: str = "", type: str = "") -> Callable[[Callable[[Facts], Any]], Callable[[Facts], Any]]:  # noqa: A002
    """Register a function as the fact `path`; its docstring is the meaning.

    A type that is not given follows: "Whether ..." is true or false, what has a unit a whole number, all else text.
    """

    def register(derive: Callable[[Facts], Any]) -> Callable[[Facts], Any]:
        assert path not in FACTS, f"two functions derive the fact {path}"
        meaning = " ".join((derive.__doc__ or "").split())
        follows = "true or false" if meaning.startswith("Whether") else "whole number" if unit else "text"
        FACTS[path] = Fact(unit, meaning, derive, type or follows)
        return derive

    return register


class Facts:
    """The facts of one reading. `reads` collects the paths that were asked for since it was last cleared.

    `shared` is what the findings of the job share, by its class: the search for changes.
    """

    def __init__(self, reading: Reading, project: Project, gpu: Gpu | None) -> None:
        self.reading = reading
        self.project = project
        self.gpu = gpu
        self.job: Job = reading.job
        self.item: Problem | None = None
        self.reads: set[str] = set()
        self.model_reason = ""
        self.estimate_reason = ""
        self.shared: dict[type, Any] = {}
        self._steps = 0
        self._outline: Estimate | bool | None = False
        self._told: Estimate | bool | None = False
        self._values: dict[str, Any] = {}
        self._model: Model | bool | None = False
        self._estimates: dict[tuple[tuple[str, Any], ...], Estimate | None] = {}

    def of(self, reading: Reading) -> Facts:
        """The facts of the same job in another state; a model that is the same is not looked up again."""
        other = Facts(reading, self.project, self.gpu)
        if reading.job.model == self.job.model and reading.config.path == self.reading.config.path:
            other._model, other.model_reason = self.model, self.model_reason
        return other

    def get(self, path: str) -> Any:
        """The value of a fact; UNKNOWN where it cannot be derived."""
        self.reads.add(path)
        if path.startswith(ITEM):
            return self._of_item(path[len(ITEM) :])
        try:
            return self._values[path]
        except KeyError:
            value = self._values[path] = self._derive(path)
            return value

    def has(self, path: str) -> Any:
        """Whether the key of a path of KEYS is written, null included, or the launcher says it.

        UNKNOWN for an option that further words of the command may add.
        """
        self.reads.add(path)
        if path.startswith(LAUNCH):
            return path[len(LAUNCH) :] in (self.reading.launch or {})
        found = self.entry(path) is not None
        return UNKNOWN if not found and path.startswith(OPTION) and self.reading.further else found

    def peak_if(self, changes: dict[str, Any]) -> Any:
        """Process bytes of the fullest GPU with Job fields changed; UNKNOWN where not estimable."""
        self.reads.add("estimate.peak")
        estimate = self.estimate_with(changes)
        return UNKNOWN if estimate is None else estimate.needed

    def entry(self, path: str) -> Entry | None:
        """The entry that a `config.`, `deepspeed.` or `option.` path names, None where the key is not written."""
        if path.startswith(CONFIG):
            return self.reading.config.root.find(path[len(CONFIG) :])
        if path.startswith(OPTION):
            given = self.option(path)
            return given.entry if given is not None else None
        root = self.deepspeed_root() if path.startswith(DEEPSPEED) else None
        return root.find(path[len(DEEPSPEED) :]) if root is not None else None

    def option(self, path: str) -> Given | None:
        """An option of the server, `option.tp_size`, or a key inside one, however it is written."""
        options = self.reading.options
        if options is None:
            options = self.reading.options = Arguments(self.reading.config.root, dashes=True)
        return options.raw(path[len(OPTION) :])

    def deepspeed_root(self) -> Node | None:
        """The DeepSpeed config in force: the file itself, the one it names, or the one it holds."""
        if self.reading.format == "deepspeed":
            return self.reading.config.root
        for key, document in self.reading.references.items():
            if "deepspeed" in key and document.root.is_mapping:
                return document.root
        held = self.reading.config.root.get("deepspeed")
        return held if held is not None and held.is_mapping else None

    def deepspeed_path(self) -> str:
        """The file that holds `deepspeed_root`."""
        for key, document in self.reading.references.items():
            if "deepspeed" in key:
                return document.path
        return self.reading.config.path

    @property
    def folder(self) -> str:
        """The folder of the checked file, where a local model may lie."""
        return os.path.dirname(self.reading.config.path) or "."

    @property
    def model(self) -> Model | None:
        """The resolved model; None where it is unknown, `model_reason` then says why."""
        if self._model is False:
            self._model = self._resolve()
        return self._model  # type: ignore[return-value]

    @property
    def opened(self) -> Job:
        """The job with what only the model's name says as an open fact."""
        from ...estimator.states.guessed import opened

        return opened(self.job, self.model)

    @property
    def may_be_stored(self) -> list[str | None]:
        """The `quant_method`s that a checkpoint may have besides what its name says."""
        from ...estimator.states.guessed import PATH, method_of

        origin = self.opened.origins.get(PATH)
        return [method_of(value) for value in origin.values] if origin is not None else []

    @property
    def estimate(self) -> Estimate | None:
        """The estimate of the job as written; None where it cannot be made, `estimate_reason` then says why."""
        return self.estimate_with({})

    @property
    def told(self) -> Estimate | None:
        """The estimate as every command tells it: with a `high` that holds what decides nothing, too.

        Rules ask for `estimate`, which spares that: its verdict and its `low` are the same.
        """
        if self._told is False:
            found = self.estimate
            widens = found is not None and found.kind == "training" and self.gpu is not None
            self._told = self._estimated(self.job, spread="always") if widens else found
        return self._told  # type: ignore[return-value]

    @property
    def outline(self) -> Estimate | None:
        """The estimate as far as it holds without the allocator's replay: not `process`, `reserved` and `high`.

        Without a GPU nothing else is asked of most jobs; with one, whether a job fits asks for all of it.
        """
        if self.gpu is not None or () in self._estimates:
            return self.estimate
        if self._outline is False:
            self._outline = self._estimated(self.job, replay=False)
        return self._outline  # type: ignore[return-value]

    @property
    def steps(self) -> int:
        """The work of the estimate of the job as written."""
        return self._steps if self.estimate is not None else 0

    def estimate_with(self, changes: dict[str, Any]) -> Estimate | None:
        """The estimate with Job fields changed, made once."""
        key = tuple(sorted((path, repr(value)) for path, value in changes.items()))
        if key not in self._estimates:
            if len(self._estimates) > MAX_ESTIMATES:
                return None
            before = budget.spent()
            self._estimates[key] = self._estimated(self.job.with_changes(changes) if changes else self.job)
            if not changes:
                self._steps = budget.spent() - before
        return self._estimates[key]

    def _estimated(self, job: Job, *, replay: bool = True, spread: Spread = "doubt") -> Estimate | None:
        model = self.model
        if model is None:
            self.estimate_reason = self.model_reason
            return None
        from ...estimator.estimate import NotEstimable
        from ...estimator.estimate_job import estimate_job
        from ...models.lora import NotAdaptable

        try:
            return estimate_job(job, model, self.gpu, replay=replay, spread=spread)
        except (NotEstimable, NotAdaptable) as error:
            if job is self.job:
                self.estimate_reason = str(error)
            return None

    def _resolve(self) -> Model | None:
        reference = self.job.model
        if reference is None:
            self.model_reason = "the config sets no model"
            return None
        from ...models.model import UnknownModel
        from ...models.resolve import resolve

        try:
            return resolve(reference, self.folder, self.project.root)
        except UnknownModel as error:
            self.model_reason = str(error)
            return None

    def _of_item(self, name: str) -> Any:
        if self.item is None:
            return UNKNOWN
        return self.item.key if name == "key" else self.item.values.get(name) or UNKNOWN

    def _of_launch(self, name: str) -> Any:
        """What the launcher says; null where it does not, UNKNOWN where no launcher is known."""
        if self.reading.launch is None:
            return UNKNOWN
        said = self.reading.launch.get(name)
        return None if said is None else UNKNOWN if filled_at_launch(said[0]) else said[0]

    def _derive(self, path: str) -> Any:
        known = FACTS.get(path)
        if known is not None:
            return known.derive(self)
        if path in CONSTANTS:
            return CONSTANTS[path]
        if path.startswith(OPTION):
            given = self.option(path)
            if given is None:
                return UNKNOWN if self.reading.further else None
            return UNKNOWN if filled_at_launch(given.value) else given.value
        if path.startswith((CONFIG, DEEPSPEED)):
            entry = self.entry(path)
            if entry is None and path.startswith(DEEPSPEED) and self.deepspeed_root() is None:
                return UNKNOWN
            value = entry.value.plain() if entry is not None else None
            return UNKNOWN if filled_at_launch(value) else value
        if path.startswith(LAUNCH):
            return self._of_launch(path[len(LAUNCH) :])
        if path.startswith(ORIGIN):
            origin = self.job.origins.get(path[len(ORIGIN) :])
            return origin.kind if origin is not None else UNKNOWN
        return _plain(self.job.get(path))


def filled_at_launch(value: Any) -> bool:
    """Whether a value is a placeholder of a template: `${MODEL}`, `$MODEL`, `{{ model }}`, `<model>`."""
    if not isinstance(value, str):
        return False
    text = value.strip()
    return (
        "${" in text
        or "{{" in text
        or (text.startswith("$") and text[1:].isidentifier())
        or (text.startswith("<") and text.endswith(">"))
    )


def _plain(value: Any) -> Any:
    """A Job part (`parallelism.zero`) is true where it exists."""
    return True if hasattr(value, "__dataclass_fields__") else value
