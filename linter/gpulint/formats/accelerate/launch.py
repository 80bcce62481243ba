"""What `accelerate launch` makes of a training run: its options over its config file over its defaults.

The options stand on the command line that starts the config (`project.launcher`), or in a TRL config: `trl <trainer>
--config` hands keys that its trainer does not know to `accelerate launch`. Facts from accelerate 1.15.0
(`commands/launch.py: _validate_launch_command`) and transformers 5.23.0 (`training_args.py: __post_init__`): a
`deepspeed` or `fsdp` of the training arguments wins over what accelerate put into the environment, and so does a
`bf16` or `fp16` that is on.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ...job.origin import Origin
from ...source.node import Entry, Node
from ..core import references
from ..core.arguments import Arguments, Given
from ..core.bindings.kinds import Unsaid
from ..core.bindings.spelling import MIXED_PRECISION
from ..core.format import Problem
from ..core.keys import load
from ..core.placeholders import is_blank
from ..core.sections import Sections
from ..core.world_size import Stated
from .sections import UPSTREAM, deepspeed_file, set_deepspeed, set_degrees, set_fsdp
from .shipped import shipped

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import JobBuilder, Project, Reading
    from ..deepspeed.values import AutoValues

    JsonObject = dict[str, Any]

_KINDS = (("use_deepspeed", "DEEPSPEED"), ("use_fsdp", "FSDP"), ("use_megatron_lm", "MEGATRON_LM"),
          ("multi_gpu", "MULTI_GPU"))  # fmt: skip
"""Switches that say `distributed_type`."""

_SECTIONS = (("fsdp_", "fsdp_config"), ("parallelism_config_", "parallelism_config"), ("dynamo_", "dynamo_config"),
             ("megatron_lm_", "megatron_lm_config"), ("fp8_", "fp8_config"), ("zero3_", "deepspeed_config"),
             ("zero_stage", "deepspeed_config"), ("offload_", "deepspeed_config"),
             ("deepspeed_", "deepspeed_config"), ("gradient_", "deepspeed_config"))  # fmt: skip
"""How an option begins -> the section of a config file that says the same."""

CONFIG = ("config_file", "accelerate_config")


class AccelerateLaunch:
    """One `accelerate launch`, as the config file would say it: `root` is a mapping like its, each key with its place.

    `given` names the config file, `document` is that file; both None without one.
    """

    def __init__(self, options: Node, reading: Reading, project: Project) -> None:
        self.reading = reading
        self.project = project
        named = Arguments(options, dashes=True)
        self.given = named.text(*CONFIG) or named.blank(*CONFIG)
        self.shipped = self.given is not None and self.given.key == "accelerate_config" and shipped(self.given.value)
        self.document: Document | None = self._file()
        self.path = reading.config.path
        base = self.document.root if self.document is not None and self.document.roots else None
        self.root = _merged(base, options)
        self.keys = Sections(self.root)

    def _file(self) -> Document | None:
        given = self.given
        if given is None or is_blank(given.value):
            return None
        if self.shipped:
            return references.plain_document(shipped(given.value) or {}, given.value)
        found = references.find(given.value, given.entry.key.path or self.reading.config.path, self.project)
        if found.document is None or not found.document.roots or not found.document.root.is_mapping:
            assumption = self._guess(given.value)[1]
            self.reading.problems.append(references.unresolved(given.entry, given.key, given.value, found, assumption))
            return None
        self.reading.references[given.key] = found.document
        _stand(found.document.root, found.document.path)
        return found.document

    @property
    def file_path(self) -> str:
        """The config file; "" without one."""
        return self.document.path if self.document is not None else ""

    @property
    def kind(self) -> str:
        """`distributed_type`; "" where nothing says it."""
        given = self.keys.text("distributed_type")
        return given.value if given else ""

    @property
    def unknown(self) -> bool:
        """Whether its config file is not here, and no option says how the run is sharded."""
        return self.given is not None and self.document is None and not self.kind

    @staticmethod
    def _guess(reference: str) -> tuple[JsonObject | None, str]:
        """What the name of a config file that is not here says of sharding, as the file would, and in words."""
        hint, name = references.hint_from_name(reference), os.path.basename(reference).lower()
        if hint.stage is not None:
            device = "cpu" if hint.offload else "none"
            section: JsonObject = {"zero_stage": hint.stage, "offload_optimizer_device": device}
            section |= {"offload_param_device": device} if hint.stage == 3 else {}
            words = f"ZeRO stage {hint.stage}{' with offload to the CPU' if hint.offload else ''} (from its name)"
            return {"distributed_type": "DEEPSPEED", "deepspeed_config": section}, words
        if "fsdp" in name:
            section = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_sharding_strategy": "FULL_SHARD"}
            return {"distributed_type": "FSDP", "fsdp_config": section}, "FSDP (from its name)"
        if re.search(r"ddp|multi_?gpu|single", name):
            return {}, "plain data parallelism (from its name)"
        return None, "anything from plain data parallelism to ZeRO-3"

    @property
    def precision(self) -> Given | None:
        """`mixed_precision`, where it is one."""
        given = self.keys.text("mixed_precision")
        return given if given and not isinstance(MIXED_PRECISION.read(given.value), Unsaid) else None

    @property
    def stated(self) -> Stated | None:
        """The processes that it starts, one a GPU, over all machines."""
        given = self.keys.integer("num_processes", least=1)
        if given is None:
            return None
        if self.shipped and self.given and given.entry.key.path is None and given.entry not in self._own():
            note = f"num_processes of {self.given.value}"
            return Stated(given.value, self.given.entry, self.given.key, note)
        return Stated(given.value, given.entry, given.key, "one process a GPU")

    def _own(self) -> tuple[Entry, ...]:
        return tuple(self.reading.config.root.entries())

    @property
    def stage(self) -> int | None:
        """The ZeRO stage that it runs; None without DeepSpeed, or where its file is not known."""
        if self.kind != "DEEPSPEED":
            return None
        file = deepspeed_file(self.keys)
        if file:
            found = references.find(file.value, file.entry.key.path or self.path, self.project)
            entry = found.document.root.find("zero_optimization.stage") if found.document else None
            hint = references.hint_from_name(file.value).stage
            return entry.value.value if entry is not None and isinstance(entry.value.value, int) else hint
        stage = self.keys.integer("deepspeed_config.zero_stage", least=0)
        return stage.value if stage else 2

    def apply(self, builder: JobBuilder, values: AutoValues, word: str) -> None:
        """`parallelism` as it says; `word` is accelerate's for the mixed precision that the training runs in."""
        before = dict(builder.job.origins)
        if self.unknown:
            self._apply_guess(builder, values, word)
            return
        self._precision(word)
        if self.kind == "DEEPSPEED":
            builder.default("parallelism.fsdp", None)
            self._deepspeed(builder, values)
        elif self.kind == "FSDP":
            set_fsdp(builder, self.keys, self.project.versions, word)
        set_degrees(builder, self.keys)
        self._set_compile(builder)
        self._set_float8(builder)
        for path, origin in builder.job.origins.items():
            if before.get(path) is not origin:
                builder.job.origins[path] = self._placed(origin)

    def _apply_guess(self, builder: JobBuilder, values: AutoValues, word: str) -> None:
        """What the file's name says; where it says nothing, sharding is unstated and estimated at its extremes."""
        assert self.given is not None
        guess, words = self._guess(self.given.value)
        before = dict(builder.job.origins)
        if guess is None:
            builder.job.unstated.append("parallelism.zero.stage")
        keys = Sections(references.plain_node(guess or {}))
        if "deepspeed_config" in keys:
            set_deepspeed(builder, keys, self.reading, self.project, values)
        elif "fsdp_config" in keys:
            set_fsdp(builder, keys, self.project.versions, word)
        where = "is filled in when the job starts" if is_blank(self.given.value) else "is not here"
        note = f"{self.given.value} {where}; {words} stands in"
        for path, origin in builder.job.origins.items():
            if before.get(path) is not origin and origin.kind != "default":
                builder.job.origins[path] = Origin("assumed", note)
        if guess is None:
            builder.assumed("parallelism.zero", None, note)

    def _deepspeed(self, builder: JobBuilder, values: AutoValues) -> None:
        if set_deepspeed(builder, self.keys, self.reading, self.project, values, self.file_path):
            return
        clip = values.arguments.get("max_grad_norm")
        ours = {
            "gradient_accumulation_steps": (
                values.gradient_accumulation_steps,
                "gradient_accumulation_steps",
                "stated",
            ),
            "gradient_clipping": (clip.value, "max_grad_norm", clip.basis) if clip else (None, "", ""),
        }
        for name, (value, argument, basis) in ours.items():
            given = self.keys.number(f"deepspeed_config.{name}")
            if given is not None and given.value and values.client == "transformers" and value is not None:
                self._compare(given, value, argument, basis)

    def _compare(self, given: Given, value: float, argument: str, basis: str) -> None:
        """Report a value that becomes part of the DeepSpeed config and differs from the training argument."""
        if given.value == value:
            return
        words = {
            "value": str(given.entry.value.raw or given.entry.value.value),
            "other": f"{argument}: {value:g}",
            "message": "Transformers refuses a DeepSpeed config that differs from the training arguments",
            "basis": basis,
            "upstream": UPSTREAM,
        }
        place = given.entry.key.path
        self.reading.problems.append(Problem("contradiction", given.key, given.entry.value.span, words, place))

    def _precision(self, word: str) -> None:
        """Report a `mixed_precision` that the training arguments overrule (`ACCELERATE_MIXED_PRECISION`)."""
        given = self.precision
        if given is None or word == "no" or given.value.lower() in (word, "fp8"):
            return
        words = {"value": given.value, "other": word, "upstream": "transformers 5.23.0"}
        place = given.entry.key.path
        self.reading.problems.append(Problem("overruled", given.key, given.entry.value.span, words, place))

    def _set_compile(self, builder: JobBuilder) -> None:
        backend = self.keys.text("dynamo_config.dynamo_backend")
        if backend and backend.value.lower() not in ("no", "none") and not builder.job.compile:
            builder.from_entry("compile", True, backend.entry, backend.key)

    def _set_float8(self, builder: JobBuilder) -> None:
        """`mixed_precision: fp8`, where the training runs in what accelerate was told: torchao unless TE is named."""
        given, origin = self.precision, builder.job.origins.get("precision.autocast")
        told = self.keys.text("fp8_config.backend", "fp8_config.fp8_backend")
        if given and given.value.lower() == "fp8" and origin is not None and origin.span == given.entry.value.span:
            engine = told is not None and told.value.lower() == "te"
            builder.from_entry("precision.compute", "float8-te" if engine else "float8", given.entry, given.key)

    def _placed(self, origin: Origin) -> Origin:
        """An option of a command is known by its own name; what a shipped config says stands where that is named."""
        if origin.kind != "file" or origin.span is None:
            return origin
        if self.shipped and self.given is not None and origin.span.start == origin.span.end == 0:
            span, key_span = self.given.entry.value.span, self.given.entry.key.span
            note = f"{origin.key} of {self.given.value}"
            file = self.given.entry.key.path or self.path
            return origin._replace(note=note, key=self.given.key, file=file, span=span, key_span=key_span)
        launcher = self.project.launcher
        if launcher is not None and origin.file == launcher.path and origin.key is not None:
            return origin._replace(key=origin.key.rpartition(".")[2])
        return origin


def launch_of(reading: Reading, project: Project, *, trl: bool = False) -> AccelerateLaunch | None:
    """How `accelerate launch` starts the config; None where nothing says that it does.

    With `trl` the config's own keys may say it, where no command line does.
    """
    options = project.launcher.root if project.launcher is not None else None
    if options is None or not any(_is_option(str(key)) for key in options.keys()):  # noqa: SIM118  (a Node)
        options = _trl_options(reading.config.root) if trl else None
    return AccelerateLaunch(options, reading, project) if options is not None else None


def _is_option(key: str) -> bool:
    """Whether a key is an option of `accelerate launch` that moves memory; `torchrun` has none of that name."""
    name = key.replace("-", "_")
    listed = ("config_file", "num_processes", "mixed_precision", *(switch for switch, _ in _KINDS))
    return name in listed or any(name.startswith(prefix) for prefix, _ in _SECTIONS)


def _trl_options(root: Node) -> Node | None:
    """The keys of a TRL config that only `accelerate launch` knows."""
    known = load("hf_trainer")["properties"]
    entries = [
        entry
        for entry in root.entries()
        if entry.key.value in CONFIG or "accelerate launch" in known.get(str(entry.key.value), {}).get("x-classes", ())
    ]
    wanted = any(entry.key.value in CONFIG or _is_option(str(entry.key.value)) for entry in entries)
    return Node("mapping", entries, root.span) if wanted else None


def _stand(node: Node, path: str, depth: int = 0) -> None:
    """Say of every node below that it stands in `path`."""
    node.path = path
    if depth > 8:
        return
    for entry in node.entries():
        entry.key.path = path
        _stand(entry.value, path, depth + 1)


def _merged(base: Node | None, options: Node) -> Node:
    """The mapping of a config file with the options that win over it, each where a config file would say it."""
    top = dict(_last(base))
    sections = {name: dict(_last(entry.value)) for name, entry in top.items() if entry.value.is_mapping}
    flags = {name.replace("-", "_"): entry for name, entry in _last(options).items()}
    for name, entry in flags.items():
        section = next((section for prefix, section in _SECTIONS if name.startswith(prefix)), None)
        if section is None:
            top[name] = _renamed(entry, name)
            continue
        inner = sections.setdefault(section, {})
        for spelling in (name, name.removeprefix("fsdp_")):
            inner.pop(spelling, None)
        inner[name] = _renamed(entry, name)
        if section not in top:
            top[section] = _renamed(entry, section)
    for switch, kind in _KINDS:
        flag = flags.get(switch)
        if flag is not None and flag.value.value in (True, "true", "True"):
            value = Node("scalar", kind, flag.value.span, flag.value.raw)
            value.path = flag.value.path
            top["distributed_type"] = Entry(_renamed(flag, "distributed_type").key, value)
            break
    entries = []
    for name, entry in top.items():
        if name in sections:
            mapping = Node("mapping", list(sections[name].values()), entry.value.span)
            mapping.path = entry.value.path
            entry = Entry(entry.key, mapping)
        entries.append(entry)
    return Node("mapping", entries, (base or options).span)


def _last(node: Node | None) -> dict[str, Entry]:
    if node is None or not node.is_mapping:
        return {}
    return {str(entry.key.value): entry for entry in node.entries()}


def _renamed(entry: Entry, name: str) -> Entry:
    if entry.key.value == name:
        return entry
    key = Node("scalar", name, entry.key.span, entry.key.raw)
    key.path = entry.key.path
    return Entry(key, entry.value)
