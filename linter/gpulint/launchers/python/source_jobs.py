"""From the calls of a Python file to the jobs that it runs: an engine, a training run, or generation."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ...job.origin import Origin
from ...repository.script_options import SINKS, dotted
from ...source.document import Document
from ...source.node import Node
from ..launch import Decided, Launch, Resources
from .call_table import OBJECTIVES, TRAINERS, found_in
from .hosts import state_hosts
from .placement import is_on_gpu, method_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...source.node import Entry
    from .call_table import Found
    from .module import Module

MAX_JOBS = 10
"""Jobs of one file."""

_ASIDE = re.compile(SINKS["aside"], re.IGNORECASE)


class Jobs(NamedTuple):
    """The jobs of a file, the calls that they come from, and why there is none."""

    launches: list[Launch]
    found: list[Found]
    reason: str


NOTHING = "starts no job that gpulint can read"


def jobs_in(module: Module, program: str) -> Jobs:
    """The jobs of a file; `program` is what the file is called."""
    found = found_in(module)
    made = _Maker(module, found, program)
    launches = [made.engine(item) for item in found if item.row.role == "engine"]
    reason = NOTHING
    if made.of("arguments"):
        launches += [made.training(item) for item in made.of("arguments")]
    elif made.of("trainer") and made.of("model"):
        reason = "gives its trainer arguments that only the command line tells"
    elif any(call.name.endswith(".backward") for call in module.calls):
        reason = "trains in a loop of its own" if made.of("model") else NOTHING
    else:
        loads = made.of("model")
        launches += [made.generation(item) for item in loads if is_on_gpu(module, item)]
        if loads and not launches:
            reason = "puts no model on a GPU that gpulint can tell"
    return Jobs(launches[:MAX_JOBS], found, reason)


class _Maker:
    """Makes launches of the calls of a file."""

    def __init__(self, module: Module, found: list[Found], program: str) -> None:
        self.module, self.found, self.program = module, found, program

    def of(self, role: str) -> list[Found]:
        """The calls of a role."""
        return [item for item in self.found if item.row.role == role and self._counts(item)]

    def _counts(self, item: Found) -> bool:
        """Whether a call is of the job itself: `pipeline(model=model)` takes a model that is there."""
        if item.row.role != "model" or item.call.name.endswith("from_pretrained"):
            return True
        entry = item.entries.get("model_name_or_path")
        return entry is not None and isinstance(entry.value.value, str) and not entry.value.value.startswith("${")

    def engine(self, item: Found) -> Launch:
        """The job of an engine."""
        return self._launch(item, item.row.format, item.said, [item])

    def generation(self, model: Found) -> Launch:
        """The job of a model that is loaded to generate."""
        said = {**self._loaded(model), **self._methods("max_new_tokens")}
        return self._launch(model, "hf_inference", said, [model])

    def training(self, arguments: Found) -> Launch:
        """The job of a trainer's arguments: with the model, its quantisation and the adapter that go with them."""
        trainer = self._trainer_of(arguments)
        model = self._model_of(trainer)
        adapter, unknown = self._adapter_of(trainer)
        used = [item for item in (model, adapter, trainer, arguments) if item is not None]
        said: dict[str, Entry] = {}
        said |= self._loaded(model) if model is not None else {}
        said |= adapter.said if adapter is not None else {}
        said |= self._methods("gradient_checkpointing")
        said |= self._of_trainer(trainer, model)
        said |= arguments.entries
        self._name_trainer(said, arguments, trainer, model)
        launch = self._launch(arguments, "hf_trainer", said, used, unknown)
        return launch._replace(loads=model is not None and "quantization_config" not in said)

    def _loaded(self, model: Found) -> dict[str, Entry]:
        """What loading says; without a quantised type the defaults of its packing say nothing."""
        said = model.said
        dtype = method_dtype(self.module, model)
        if dtype is not None:
            said = {**said, "dtype": dtype}
        return said

    def _methods(self, key: str) -> dict[str, Entry]:
        """What methods of the model say under a key."""
        found = [item.said[key] for item in self.of("method") if key in item.said]
        return {key: found[0]} if found else {}

    def _of_trainer(self, trainer: Found | None, model: Found | None) -> dict[str, Entry]:
        """What a trainer is given beside its arguments; its model, where it names one."""
        said = dict(trainer.entries) if trainer is not None else {}
        named = said.get("model_name_or_path")
        if named is not None and (model is not None or str(named.value.value).startswith("${")):
            del said["model_name_or_path"]
        return said

    def _name_trainer(
        self, said: dict[str, Entry], arguments: Found, trainer: Found | None, model: Found | None
    ) -> None:
        """The library whose trainer runs and what it trains for, which no argument says."""
        at = (trainer or arguments).call.node.func
        unsloth = model is not None and model.row.library == "unsloth"
        library = (trainer.row.library if trainer is not None else "") or arguments.row.library
        library = "trl" if "trl" in (library, arguments.row.library) else library
        said["trainer_library"] = self.module.implied("trainer_library", "unsloth" if unsloth else library, at)
        objective = _objective(trainer) or _objective(arguments) or (_of_model(model) if model is not None else "")
        if objective:
            said["trainer_objective"] = self.module.implied("trainer_objective", objective, at)
        if unsloth and model is not None:
            said["use_unsloth"] = self.module.implied("use_unsloth", True, model.call.node.func)

    def _trainer_of(self, arguments: Found) -> Found | None:
        """The trainer that is given these arguments, or the only one."""
        trainers = self.of("trainer")
        for item in trainers:
            given = item.argument("args", "1")
            if given is not None and self.module.made(given, item.call.scope) is arguments.call.node:
                return item
        alone = [item for item in trainers if item.argument("args", "1") is not None]
        return alone[0] if len(alone) == len(self.of("arguments")) == 1 else None

    def _model_of(self, trainer: Found | None) -> Found | None:
        """The model that a trainer trains: the one of its argument, else the first that is none beside it."""
        models = self.of("model")
        given = trainer.argument("model", "0") if trainer is not None else None
        if given is not None and isinstance(self.module.value(given, trainer.call.scope), str):  # type: ignore[union-attr]
            return None
        name = dotted(given) if given is not None else ""
        same = [item for item in models if name and item.call.target == name]
        rest = [item for item in models if not _ASIDE.search(item.call.target.replace(".", "_"))]
        return next(iter(same or rest or models), None)

    def _adapter_of(self, trainer: Found | None) -> tuple[Found | None, str]:
        """The adapter that is put on, and what hides one."""
        for item in self.of("adapts"):
            if item.entries or item.implied:
                return item, item.opaque
        given = trainer.argument("peft_config") if trainer is not None else None
        adapts = self.of("adapts")
        described = self.of("adapter")
        if given is None and not adapts:
            return None, ""
        if given is not None and trainer is not None:
            made = self.module.made(given, trainer.call.scope)
            if isinstance(made, ast.Constant) and made.value is None:
                return None, ""
            described = [item for item in described if item.call.node is made] or described
        if len(described) == 1:
            return described[0], described[0].opaque
        return None, "peft_config"

    def _launch(
        self, at: Found, form: str, said: Mapping[str, Entry], used: Iterable[Found], unknown: str = ""
    ) -> Launch:
        document, resources = self.module.document, Resources()
        state_environment(self.module, resources)
        if "hostfile" in said:
            state_hosts(resources, said["hostfile"], document.path)
        root = Node("mapping", list(said.values()), self.module.span(at.call.node))
        config = Document(document.path, "python", document.text, [root], document.comments, [])
        hidden = unknown or next((item.opaque for item in used if item.opaque), "")
        decided: dict[str, Decided] = {}
        if hidden:
            text = f"`{hidden}` may hold further arguments, which only running {self.program} tells"
            decided["unread"] = Decided(text, Origin("derived", text))
        part = f"line {at.call.node.lineno}"
        return Launch(part, form, config, resources, program=self.program, decided=decided, loads=True)


def _objective(item: Found | None) -> str:
    """What a trainer or its arguments train for, by the class."""
    if item is None:
        return ""
    name = item.call.name.rpartition(".")[2]
    if item.call.name.startswith("trl."):
        return next((found for begin, found in TRAINERS.items() if name.startswith(begin)), "")
    return item.row.objective


def _of_model(model: Found) -> str:
    name = model.call.name.removesuffix(".from_pretrained").rpartition(".")[2]
    return next((found for part, found in OBJECTIVES.items() if name.endswith(part)), "") or model.row.objective


def state_environment(module: Module, resources: Resources) -> None:
    """Variables that the file sets for itself: `os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"`."""
    for node in module.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(target, ast.Subscript) or module.name(target.value) != "os.environ":
            continue
        assert isinstance(node, ast.Assign)
        name, value = module.value(target.slice, module.scope), module.value(node.value, module.scope)
        if not isinstance(name, str) or not isinstance(value, str):
            continue
        span = module.span(node.value)
        resources.tell(f"environment.{name}", value, module.document.path, name, span)
        devices = [part for part in value.split(",") if part.strip()]
        if name == "CUDA_VISIBLE_DEVICES" and devices and all(part.strip().isdigit() for part in devices):
            resources.state("gpus_per_node", len(devices), module.document.path, name, span)
