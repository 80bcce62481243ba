"""Transformers Trainer and TRL configs, YAML and JSON: `trl sft --config`, alignment-handbook, open-r1, open-instruct,
Firefly, and scripts around `transformers.Trainer`.

The program that reads a file decides its defaults (`flavours.py`); what TrainingArguments mean is in
`training_arguments.py`, trainers and objectives in `trl.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...job.origin import Origin
from ...job.weights import Quantization
from ...upstream import transformers, trl
from ...upstream.behaviour import default_of, earlier
from ..accelerate.elsewhere import sharded_elsewhere
from ..accelerate.launch import launch_of
from ..core.backends.trainer import BATCH
from ..core.bindings.kinds import FLAG, POSITIVE, WORD
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Default, Derived, Fixed, Key, Table, only
from ..core.format import Format, NoJobError, Problem, Reading
from ..core.key_changes import as_written
from ..core.keys import key_problems, load
from ..core.releases import last_with
from ..core.sections import Also
from ..core.typos import slip
from .changes import SAYS, peft, zero
from .frozen_parts import set_trainable
from .loading import set_device_map, set_packing
from .peft_arguments import ADAPTER, METHOD, WEIGHTS
from .placeholder_keys import settle
from .released_profile import released
from .sharding import set_sharding
from .trainer_profiles import LIBRARY, OBJECTIVE, Flavour, flavour_of, program_of
from .training_arguments import (
    ATTENTION,
    CHECKPOINTING,
    COMPILE,
    EVALUATION,
    MODEL,
    OPTIMIZER,
    PRECISION,
    launch_of_run,
    set_evaluation,
    set_versions,
    smooths,
)
from .trl import LENGTHS, ONLINE, PREFERENCE, RL, set_objective
from .unsloth import set_unsloth
from .usual_launch import UsualLaunch

if TYPE_CHECKING:
    from ...job.job import Job
    from ...source.document import Document
    from ...source.node import Entry
    from ..accelerate.launch import AccelerateLaunch
    from ..core.arguments import Given
    from ..core.bindings.rows import Row
    from ..core.format import Project

NAME = "hf_trainer"
UPSTREAM = "transformers 5.23.0, trl 1.16.0"

LIGER = {"rope": "rope", "rms_norm": "norm", "swiglu": "mlp", "geglu": "mlp"}
"""Keys of `liger_kernel_config` by what they replace in a layer, unless they say no."""


def read(document: Document, project: Project) -> Reading:
    """The Job of a training config, every memory field with its origin."""
    flavour = released(flavour_of(document, project.program), project.versions)
    reader = Reader(document, project, NAME, flavour.upstream, keys=Also(document.root, flavour.options))
    trains = reader.given(FLAG, "do_train")
    if reader.on("do_predict") and trains and not trains.value:
        raise NoJobError(document.path, "trains nothing: `do_train` is false, and it predicts")
    if reader.given(POSITIVE, "pre_seq_len"):
        raise NoJobError(document.path, "P-Tuning v2 of ChatGLM (`pre_seq_len`): gpulint does not know its prefixes")
    reading = reader.reading
    reading.program = project.program
    launch = launch_of(reading, project, trl=flavour.name == "trl")
    reader.defaults = {**_online_defaults(reader, flavour), "launch": launch, "flavour": flavour}
    reader.bind(TABLE.rows)
    if flavour.own_loop:
        reading.problems = [item for item in reading.problems if item.kind != "contradiction"]
    reading.problems = _key_problems(document, flavour, project.program) + reading.problems
    reading.foreign = _foreign(reader, flavour)
    return reading


def _foreign(reader: Reader, flavour: Flavour) -> list[Entry]:
    """The options of a command that no argument of the Trainer has, and that nothing above asked for."""
    if reader.document.syntax != "flags" or not flavour.own_parser:
        return []
    known = load(NAME)["properties"].keys() | reader.keys.asked
    return [entry for entry in reader.document.root.entries() if entry.key.value not in known]


def _flavour(reader: Reader) -> Flavour:
    flavour: Flavour = reader.defaults["flavour"]
    return flavour


def _set_versions(reader: Reader) -> None:
    flavour = _flavour(reader)
    set_versions(reader, flavour.versions, f"what {flavour.title} runs on")


def _set_objective(reader: Reader) -> None:
    set_objective(reader, reader.keys, reader.project.program, reader.defaults.get("objective"))


def _set_caches(reader: Reader) -> None:
    """Whether evaluation passes keep keys and values: models do before transformers 5, unless the program says no.

    run_clm.py says nothing; TRL turns them off beside checkpointing (sft_trainer.py); of other scripts nobody knows.
    """
    job, flavour = reader.job, _flavour(reader)
    release = flavour.versions[transformers.NAME]
    old = not transformers.USE_CACHE_OFF.at(release) and job.objective in ("sft", "pretrain")
    if not old or not job.evaluation.micro_batch_size:
        return
    note = f"transformers {release} keeps keys and values in evaluation passes"
    if flavour.name == "run-clm" or (flavour.name == "trl" and job.activation_checkpointing == "none"):
        reader.derived("evaluation.caches", True, note, "evaluation.micro_batch_size")
    elif flavour.name == "transformers":
        job.unstated.append("evaluation.caches")


_TILED = frozenset({"sft", "dpo", "kto", "grpo", "rloo"})
"""Objectives whose trainers in trl 1.16.0 patch the head with `add_fused_lm_head`; the rest are in trl.experimental."""


def _key_problems(document: Document, flavour: Flavour, program: str) -> list[Problem]:
    """Keys that nothing knows. A program with keys of its own accepts what it likes: there only a key that looks like
    a misspelt one is reported, and a value of the wrong kind for an argument of the Trainer itself. So it is where
    nothing says that TRL's own scripts read the file: a script around its trainers has arguments of its own, too.
    """
    problems = key_problems(document, NAME)
    if document.syntax == "python":
        return [item for item in problems if item.kind != "unknown-key" or _misspelt_in(item, document)]
    started = program_of(program)
    if program.startswith("trl ") or (started is not None and not started.own_parser):
        return problems
    written, known = set(document.root.keys()), load(NAME)["properties"]
    kept = []
    for item in problems:
        if item.kind in ("wrong-type", "wrong-value"):
            keep = "x-classes" not in known.get(item.key.partition(".")[0], {})
        elif item.kind == "deprecated-key":
            keep = not flavour.own_parser and item.key in known
        elif item.values.get("since") or item.values.get("until"):
            keep = not flavour.own_parser and "x-classes" not in known.get(item.key, {"x-classes": []})
        else:
            keep = item.kind == "unknown-key" and _misspelt(item.key, item.values["suggestion"], written)
        if keep and item.kind == "unknown-key":
            item = item._replace(values={**item.values, "upstream": flavour.upstream})
        if keep:
            kept.append(item)
    return kept


def _misspelt_in(problem: Problem, document: Document) -> bool:
    """Whether a keyword of a Python file, and no argument of another call, is surely a known one misspelt."""
    entry = document.root.entry(problem.key)
    written = set(document.root.keys())
    own = entry is not None and entry.key.raw == problem.key and problem.key not in _OF_OTHER_CALLS
    return own and _misspelt(problem.key, problem.values["suggestion"], written)


_OF_OTHER_CALLS = frozenset({"device_map", "tp_plan", "unsloth_checkpointing", LIBRARY, OBJECTIVE})
"""Keys of a Python file that no trainer's arguments have."""


def _misspelt(key: str, suggestion: str, written: set[str]) -> bool:
    return bool(suggestion) and suggestion not in written and slip(key, suggestion)


def _set_loss(reader: Reader, flavour: Any, objective: str) -> None:
    """Where the logits live. TRL 1.16 projects in tiles and never holds them; Liger fuses them in a plain Trainer."""
    liger, config = reader.given(FLAG, "use_liger_kernel", "use_liger"), "liger_kernel_config."
    reader.set("liger_kernels", liger, bool(liger and liger.value))
    off = [(part, flag) for key, part in LIGER.items() if (flag := reader.given(FLAG, config + key)) and not flag.value]
    if liger and off:
        reader.set("liger_parts", off[0][1], sorted({"rope", "norm", "mlp"} - {part for part, _ in off}))
    chunked = flavour.defaults["loss"] == "chunked" and objective in _TILED
    former = _former_trl_key(reader) if chunked else None
    if smooths(reader, objective):
        return
    fused, plain = reader.given(FLAG, f"{config}fused_linear_cross_entropy"), reader.on(f"{config}cross_entropy")
    if former:
        version = _last_with(former)
        reader.set("loss.kernel", former, "torch", f"{former.key} is trl {version}'s, which holds the whole logits")
        reader.set("versions.trl", former, version, f"{former.key} was last known to it")
    elif chunked:
        note = f"{reader.upstream} scores tokens in tiles without the whole logits"
        reader.default("loss.kernel", "chunked", note)
        reader.default("loss.chunk", flavour.defaults["loss_chunk"], "tokens a tile (trl/kernels/chunked_logprob.py)")
    elif liger and liger.value and objective in ("sft", "pretrain"):
        apart = fused is not None and not fused.value
        kernel = ("liger_cross_entropy" if plain else "torch") if apart else "liger"
        reader.set("loss.kernel", plain if apart else liger, kernel)
    else:
        reader.default("loss.kernel", "torch")
    _set_preference(reader, flavour, objective)


OWN_TRAINERS = ("transformers", "ms-swift")
"""Programs whose preference trainers are not TRL's: ms-swift has a `concatenated_forward` and a reference of its own
(swift/rlhf_trainers/dpo_trainer.py, pipelines/train/rlhf.py 4.6)."""


def _set_preference(reader: Reader, flavour: Any, objective: str) -> None:
    """How TRL's preference trainers take log-probabilities and hold their reference, by release."""
    version = reader.job.versions.get(trl.NAME)
    if version is None or flavour.name in OWN_TRAINERS:
        return
    if not trl.ROW_BY_ROW.at(version) and objective in PREFERENCE:
        note = f"trl {version} takes the log-softmax of all logits at once"
        reader.derived("loss.log_softmax", "whole", note, "versions.trl")
    elif reader.job.loss.kernel == "torch" and trl.KERNEL.at(version) and objective in PREFERENCE | ONLINE:
        note = f"trl {version} has a kernel read the log-probabilities off the logits"
        reader.derived("loss.log_softmax", "kernel", note, "versions.trl")
    if trl.REFERENCE_APART.at(version) and objective in ("dpo", "kto"):
        note = "loaded as a model of its own, beside the policy's outputs"
        reader.derived("rl.reference_apart", True, note, "versions.trl")


def _online_defaults(reader: Reader, flavour: Flavour) -> dict[str, Any]:
    """The flavour's defaults; where vLLM runs as the release has it that last knew a key of the file."""
    former = _former_trl_key(reader) if flavour.trl else None
    if former is None:
        return flavour.defaults
    version = earlier(flavour.versions[trl.NAME], _last_with(former))
    mode = default_of(trl.DEFAULTS, version, "vllm_mode", flavour.defaults.get("vllm_mode"))
    return {**flavour.defaults, "vllm_mode": mode}


def _last_with(former: Given) -> str:
    """The last release of TRL that took a key."""
    return last_with(NAME, former.key, load(NAME)["properties"][former.key])[1]


def _former_trl_key(reader: Reader) -> Given | None:
    """A key of TRL that the present version refuses: the file runs on an older one."""
    known = load(NAME)["properties"]
    former = (name for name in reader.keys if "trl" in known.get(name, {}).get("x-removed", ""))
    return next((reader.keys.raw(name) for name in former), None)


def _packs(reader: Reader) -> Any:
    if _flavour(reader).name == "firefly" and reader.job.objective == "pretrain":
        return Derived(True, "Firefly packs its pretraining rows", "objective")
    return Default(True, f"{reader.upstream} fills its rows") if reader.defaults.get("packing") else False


def _pads(reader: Reader) -> Default:
    if reader.defaults.get("padded"):
        return Default(True, f"{reader.upstream} pads rows to their greatest length")
    return Default(False, "rows are padded to the longest of a batch")


_LABELS = {
    "cola": 2, "mnli": 3, "mrpc": 2, "qnli": 2, "qqp": 2, "rte": 2, "sst2": 2, "stsb": 1, "wnli": 2,
}  # fmt: skip
"""Classes of GLUE's tasks (run_glue.py; a regression has one)."""


def _set_unsloth(reader: Reader) -> None:
    given, release = reader.on("use_unsloth"), reader.defaults.get("unsloth")
    if given and release:
        own = reader.keys.raw("unsloth_checkpointing")
        offloads = own is not None and own.value == "unsloth"
        off = own is not None and own.value is False and not reader.on("gradient_checkpointing")
        set_unsloth(reader, given, release, "offload" if offloads else "none" if off else "full")


def _set_evaluation(reader: Reader) -> None:
    flavour = _flavour(reader)
    trainers = ("transformers", "trl") if flavour.trl else ("transformers",)
    set_evaluation(reader, metrics=flavour.name in ("run-clm", "run-mlm"), trainers=trainers)


def _launch(reader: Reader) -> AccelerateLaunch | UsualLaunch | None:
    """What launches the run: options of `accelerate launch`, or the way that the program's documentation launches a
    full fine-tune on several GPUs, where no command says another.
    """
    launch, flavour = launch_of_run(reader), _flavour(reader)
    if launch is not None or reader.project.launcher is not None:
        return launch
    usual = flavour.zero_stage and reader.job.method == "full" and reader.project.gpus != 1
    return UsualLaunch(flavour) if usual else None


def _force_reentrant(reader: Reader) -> None:
    """TRL forces reentrant checkpointing for PEFT under ZeRO-3 (`sft_trainer.py`)."""
    job = reader.job
    if _flavour(reader).name == "trl" and job.adapter is not None and job.get("parallelism.zero.stage") == 3:
        reader.derived("reentrant", True, "TRL forces it for PEFT under ZeRO-3", "parallelism.zero.stage")


def _open_loading(reader: Reader) -> None:
    """A script that no table names loads as it likes: what no argument says of the weights may be otherwise."""
    program, job = reader.project.program, reader.job
    if not program or program.startswith("trl ") or program_of(program) is not None or reader.project.loads:
        return
    for path, values in (("weights.dtype", _DTYPES), ("weights.quantization", _PACKINGS)):
        origin = job.origins.get(path)
        if path == "weights.quantization" and (job.method != "lora" or job.weights.quantization is not None):
            continue
        if origin is None or origin.kind in ("default", "assumed"):
            job.origins[path] = (origin or Origin("assumed", "its script loads the model"))._replace(values=values)
            job.unstated.append(path)


_DTYPES = ("bfloat16", "float32")
_PACKINGS = (None, Quantization("bnb-nf4", 4.0))


def _evaluates(job: Job) -> bool:
    return bool(job.evaluation.micro_batch_size)


def _set_device_map(reader: Reader) -> None:
    """How a Python file spreads the model that it loads over the GPUs of its one process."""
    if reader.document.syntax == "python":
        set_device_map(reader)


ROWS: tuple[Row, ...] = (
    Fixed("kind", Derived("training", "a training config")),
    _set_versions,
    *MODEL,
    _set_objective,
    Key("labels", "num_labels", POSITIVE, back=NEVER),
    *only(lambda job: job.objective == "classification", Key("labels", "task_name", WORD, to=_LABELS, back=NEVER)),
    *BATCH,
    *PRECISION,
    *WEIGHTS,
    *METHOD,
    set_packing,
    *ADAPTER,
    set_trainable,
    *OPTIMIZER,
    *CHECKPOINTING,
    *ATTENTION,
    *COMPILE,
    lambda reader: _set_loss(reader, _flavour(reader), str(reader.job.objective)),
    _set_unsloth,
    Key("packing", "packing", FLAG, _packs),
    Key("padded", "pad_to_max_length", FLAG, _pads, back=NEVER),
    *RL,
    *LENGTHS,
    _set_evaluation,
    *only(_evaluates, *EVALUATION),
    _set_caches,
    _set_device_map,
    lambda reader: set_sharding(reader, _launch(reader)),
    _force_reentrant,
    _open_loading,
    lambda reader: settle(reader, reader.keys),
)

TABLE = Table(
    ROWS,
    SAYS,
    together={("method", "weights.quantization.method", "adapter.r"): peft},
    zero=zero,
    elsewhere=sharded_elsewhere(files=True),
    spelled=lambda reading, key: flavour_of(reading.config, reading.program).options.get(key, key),
    named=lambda reading, keys: as_written(reading.config, keys) or {},
)

FORMAT = Format.of_table(
    NAME, "Transformers/TRL config", UPSTREAM, read, TABLE, "`num_processes` of an accelerate config"
)
