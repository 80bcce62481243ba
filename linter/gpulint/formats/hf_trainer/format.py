"""Transformers Trainer and TRL configs, YAML and JSON: `trl sft --config`, alignment-handbook, open-r1, open-instruct,
Firefly, and scripts around `transformers.Trainer`.

The program that reads a file decides its defaults (`flavours.py`); what TrainingArguments mean is in
`training_arguments.py`, trainers and objectives in `trl.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...upstream import transformers, trl
from ...upstream.behaviour import default_of, earlier
from ..accelerate.launch import AccelerateLaunch, launch_of
from ..core.arguments import Arguments
from ..core.format import Format, JobBuilder, NoJobError, Problem, Reading, written_by
from ..core.keys import key_problems, load
from ..core.releases import released
from ..core.typos import slip
from .frozen_parts import set_trainable
from .peft_arguments import set_adapter, set_dtype, set_method, set_quantization
from .placeholder_keys import settle
from .sharding import set_sharding
from .trainer_profiles import Flavour, flavour_of, program_of
from .training_arguments import (
    Run,
    set_attention,
    set_batch,
    set_checkpointing,
    set_compile,
    set_evaluation,
    set_model,
    set_optimizer,
    set_precision,
    set_versions,
    smooths,
)
from .trl import ONLINE, PREFERENCE, set_lengths, set_objective, set_rl
from .unsloth import set_unsloth
from .usual_launch import UsualLaunch

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.arguments import Given
    from ..core.format import Project

NAME = "hf_trainer"
UPSTREAM = "transformers 5.23.0, trl 1.16.0"

LIGER = {"rope": "rope", "rms_norm": "norm", "swiglu": "mlp", "geglu": "mlp"}
"""Keys of `liger_kernel_config` by what they replace in a layer, unless they say no."""

_TRAINING = frozenset(
    {
        "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
        "num_train_epochs", "lr_scheduler_type", "gradient_checkpointing", "warmup_ratio", "warmup_steps", "max_steps",
        "logging_steps", "save_steps", "eval_strategy", "evaluation_strategy", "bf16", "fp16", "optim", "weight_decay",
        "output_dir", "save_strategy", "activation_checkpointing",
    }
)  # fmt: skip
"""Keys of TrainingArguments that a training config nearly always has some of."""

_ANY_SCRIPT = frozenset({"output_dir", "bf16", "fp16"})
"""Of those, what a script that generates or scores takes as well."""

_OTHERS = frozenset(
    {
        "base_model", "_component_", "architectures", "finetuning_type", "stage", "infer_backend", "export_dir",
        "compute_environment", "distributed_type", "checkpoint_dir", "peft_type", "gpulint", "defaults", "trainer",
        "recipe", "apiVersion", "kind", "services", "resources", "zero_optimization", "zero_stage",
    }
)  # fmt: skip
"""Keys that say another tool: its file may hold the same words."""


def recognise(document: Document) -> bool:
    """A model key with TrainingArguments keys beside it; without one, a file mostly of TrainingArguments keys.

    `peft_type` excludes adapter_config.json, unless training keys stand beside it.
    """
    root = document.root
    keys = set(root.keys())
    training = keys & _TRAINING
    if keys & (_OTHERS - {"peft_type"}) or document.syntax == "toml" or ("peft_type" in keys and len(training) < 2):
        return False
    if "model_name_or_path" in keys:
        return bool(training - _ANY_SCRIPT)
    if not keys & {"per_device_train_batch_size", "gradient_accumulation_steps"} or len(training) < 3:
        return False
    known = load(NAME)["properties"]
    return sum(key in known for key in keys) * 2 > len(keys)


def read(document: Document, project: Project) -> Reading:
    """The Job of a training config, every memory field with its origin."""
    if Arguments(document.root).is_on("do_predict") and _is_off(Arguments(document.root).flag("do_train")):
        raise NoJobError(document.path, "trains nothing: `do_train` is false, and it predicts")
    if Arguments(document.root).integer("pre_seq_len", least=1):
        raise NoJobError(document.path, "P-Tuning v2 of ChatGLM (`pre_seq_len`): gpulint does not know its prefixes")
    flavour = released(flavour_of(document, project.program), project.versions)
    builder = JobBuilder(document, flavour.upstream)
    reading = Reading(NAME, flavour.upstream, document, builder.job, program=project.program)
    launch = launch_of(reading, project, trl=flavour.name == "trl")
    run = Run(builder, Arguments(document.root), project, reading, flavour.defaults, launch)
    builder.derived("kind", "training", "a training config")
    set_versions(run, flavour.versions, f"what {flavour.title} runs on")
    set_model(run)
    objective = set_objective(builder, run.arguments, project.program, flavour.defaults.get("objective"))
    _set_labels(run, objective)
    set_batch(run)
    set_precision(run)
    set_dtype(run)
    set_method(run)
    set_quantization(run)
    set_adapter(run)
    set_trainable(run)
    set_optimizer(run)
    set_checkpointing(run)
    set_attention(run)
    set_compile(run)
    _set_loss(run, flavour, objective)
    given, unsloth = run.arguments.flag("use_unsloth"), flavour.defaults.get("unsloth")
    if given and given.value and unsloth:
        set_unsloth(run, given, unsloth, "full")
    _set_packing(run, flavour)
    set_rl(builder, run.arguments, _online_defaults(run, flavour), objective)
    set_lengths(builder, run.arguments, flavour.defaults, objective)
    best = flavour.name in ("run-clm", "run-mlm")
    set_evaluation(run, metrics=best, trainers=("transformers", "trl") if flavour.trl else ("transformers",))
    _set_caches(run, flavour, objective)
    set_sharding(run, _launch(run, flavour))
    _force_reentrant(run, flavour)
    settle(builder, run.arguments)
    if flavour.own_loop:
        reading.problems = [item for item in reading.problems if item.kind != "contradiction"]
    reading.problems = _key_problems(document, flavour, project.program) + reading.problems
    return reading


def _set_caches(run: Run, flavour: Flavour, objective: str) -> None:
    """Whether evaluation passes keep keys and values: models do before transformers 5, unless the program says no.

    run_clm.py says nothing; TRL turns them off beside checkpointing (sft_trainer.py); of other scripts nobody knows.
    """
    job = run.builder.job
    old = not transformers.USE_CACHE_OFF.at(flavour.versions[transformers.NAME]) and objective in ("sft", "pretrain")
    if not old or not job.evaluation.micro_batch_size:
        return
    note = f"transformers {flavour.versions['transformers']} keeps keys and values in evaluation passes"
    if flavour.name == "run-clm" or (flavour.name == "trl" and job.activation_checkpointing == "none"):
        run.builder.derived("evaluation.caches", True, note, "evaluation.micro_batch_size")
    elif flavour.name == "transformers":
        job.unstated.append("evaluation.caches")


def _is_off(given: Given | None) -> bool:
    return given is not None and not given.value


_TILED = frozenset({"sft", "dpo", "kto", "grpo", "rloo"})
"""Objectives whose trainers in trl 1.16.0 patch the head with `add_fused_lm_head`; the rest are in trl.experimental."""


def _key_problems(document: Document, flavour: Flavour, program: str) -> list[Problem]:
    """Keys that nothing knows. A program with keys of its own accepts what it likes: there only a key that looks like
    a misspelt one is reported, and a value of the wrong kind for an argument of the Trainer itself. So it is where
    nothing says that TRL's own scripts read the file: a script around its trainers has arguments of its own, too.
    """
    problems = key_problems(document, NAME)
    started = program_of(program)
    if program.startswith("trl ") or (started is not None and not started.own_parser):
        return problems
    written, known = set(document.root.keys()), load(NAME)["properties"]
    kept = []
    for item in problems:
        if item.kind in ("wrong-type", "wrong-value"):
            keep = "x-classes" not in known.get(item.key.partition(".")[0], {})
        elif item.kind == "deprecated-key":
            keep = not flavour.own_parser
        else:
            keep = item.kind == "unknown-key" and _misspelt(item.key, item.values["suggestion"], written)
        if keep and item.kind == "unknown-key":
            item = item._replace(values={**item.values, "upstream": flavour.upstream})
        if keep:
            kept.append(item)
    return kept


def _misspelt(key: str, suggestion: str, written: set[str]) -> bool:
    return bool(suggestion) and suggestion not in written and slip(key, suggestion)


def _set_loss(run: Run, flavour: Flavour, objective: str) -> None:
    """Where the logits live. TRL 1.16 projects in tiles and never holds them; Liger fuses them in a plain Trainer."""
    builder = run.builder
    liger = run.arguments.flag("use_liger_kernel", "use_liger")
    chosen = run.arguments.mapping("liger_kernel_config")
    fused = chosen.flag("fused_linear_cross_entropy")
    if liger:
        run.put("liger_kernels", liger)
        off = [(part, flag) for key, part in LIGER.items() if (flag := chosen.flag(key)) and not flag.value]
        if off:
            left = {"rope", "norm", "mlp"} - {part for part, _ in off}
            run.put("liger_parts", off[0][1], sorted(left))
    else:
        builder.default("liger_kernels", False)
    chunked = flavour.defaults["loss"] == "chunked" and objective in _TILED
    former = _former_trl_key(run) if chunked else None
    if smooths(run, objective):
        return
    if former:
        version = _last_known(former)
        run.put("loss.kernel", former, "torch", f"{former.key} is {version}'s, which holds the whole logits")
        run.put("versions.trl", former, version.removeprefix("trl "), f"{former.key} was last known to it")
    elif chunked:
        note = f"{builder.upstream} scores tokens in tiles without the whole logits"
        builder.default("loss.kernel", "chunked", note)
        builder.default("loss.chunk", flavour.defaults["loss_chunk"], "tokens a tile (trl/kernels/chunked_logprob.py)")
    elif liger and liger.value and objective in ("sft", "pretrain"):
        plain = chosen.flag("cross_entropy")
        if not (fused and not fused.value):
            run.put("loss.kernel", liger, "liger")
        elif plain and plain.value:
            run.put("loss.kernel", plain, "liger_cross_entropy")
        else:
            builder.default("loss.kernel", "torch")
    else:
        builder.default("loss.kernel", "torch")
    _set_preference(run, flavour, objective)


OWN_TRAINERS = ("transformers", "ms-swift")
"""Programs whose preference trainers are not TRL's: ms-swift has a `concatenated_forward` and a reference of its own
(swift/rlhf_trainers/dpo_trainer.py, pipelines/train/rlhf.py 4.6)."""


def _set_preference(run: Run, flavour: Flavour, objective: str) -> None:
    """How TRL's preference trainers take log-probabilities and hold their reference, by release."""
    version = run.builder.job.versions.get(trl.NAME)
    if version is None or flavour.name in OWN_TRAINERS:
        return
    if not trl.ROW_BY_ROW.at(version) and objective in PREFERENCE:
        note = f"trl {version} takes the log-softmax of all logits at once"
        run.builder.derived("loss.log_softmax", "whole", note, "versions.trl")
    elif run.builder.job.loss.kernel == "torch" and trl.KERNEL.at(version) and objective in PREFERENCE | ONLINE:
        note = f"trl {version} has a kernel read the log-probabilities off the logits"
        run.builder.derived("loss.log_softmax", "kernel", note, "versions.trl")
    if trl.REFERENCE_APART.at(version) and objective in ("dpo", "kto"):
        note = "loaded as a model of its own, beside the policy's outputs"
        run.builder.derived("rl.reference_apart", True, note, "versions.trl")


def _online_defaults(run: Run, flavour: Flavour) -> dict[str, Any]:
    """The flavour's defaults; where vLLM runs as the release has it that last knew a key of the file."""
    former = _former_trl_key(run) if flavour.trl else None
    if former is None:
        return flavour.defaults
    last = _last_known(former).removeprefix("trl ")
    version = earlier(flavour.versions[trl.NAME], last)
    return {
        **flavour.defaults,
        "vllm_mode": default_of(trl.DEFAULTS, version, "vllm_mode", flavour.defaults.get("vllm_mode")),
    }


def _last_known(former: Given) -> str:
    """The last release that knew a key: `trl 0.24.0`."""
    return str(load(NAME)["properties"][former.key]["x-removed"]).removeprefix("last known to ").partition(";")[0]


def _former_trl_key(run: Run) -> Given | None:
    """A key of TRL that the present version refuses: the file runs on an older one."""
    known = load(NAME)["properties"]
    for name in run.arguments:
        schema = known.get(name, {})
        if "x-removed" in schema and "trl" in schema["x-removed"]:
            return run.arguments.raw(name)
    return None


def _set_packing(run: Run, flavour: Flavour) -> None:
    given = run.arguments.flag("packing")
    if given:
        run.put("packing", given)
    elif flavour.name == "firefly" and run.builder.job.objective == "pretrain":
        run.builder.derived("packing", True, "Firefly packs its pretraining rows", "objective")
    elif flavour.defaults.get("packing"):
        run.builder.default("packing", True, f"{run.builder.upstream} fills its rows")
    else:
        run.builder.default("packing", False)
    full = run.arguments.flag("pad_to_max_length")
    if full:
        run.put("padded", full)
    elif flavour.defaults.get("padded"):
        run.builder.default("padded", True, f"{run.builder.upstream} pads rows to their greatest length")
    else:
        run.builder.default("padded", False, "rows are padded to the longest of a batch")


_LABELS = {
    "cola": 2, "mnli": 3, "mrpc": 2, "qnli": 2, "qqp": 2, "rte": 2, "sst2": 2, "stsb": 1, "wnli": 2,
}  # fmt: skip
"""Classes of GLUE's tasks (run_glue.py; a regression has one)."""


def _set_labels(run: Run, objective: str) -> None:
    """The classes of a classifier, where its task or a key says how many."""
    stated = run.arguments.integer("num_labels", least=1)
    task = run.arguments.text("task_name")
    if stated:
        run.put("labels", stated)
    elif objective == "classification" and task and task.value.lower() in _LABELS:
        run.put("labels", task, _LABELS[task.value.lower()])


def _launch(run: Run, flavour: Flavour) -> AccelerateLaunch | UsualLaunch | None:
    """What launches the run: options of `accelerate launch`, or the way that the program's documentation launches a
    full fine-tune on several GPUs, where no command says another.
    """
    if run.launch is not None or run.project.launcher is not None:
        return run.launch
    if flavour.zero_stage and run.builder.job.method == "full" and run.project.gpus != 1:
        return UsualLaunch(flavour)
    return None


def _force_reentrant(run: Run, flavour: Flavour) -> None:
    """TRL forces reentrant checkpointing for PEFT under ZeRO-3 (`sft_trainer.py`)."""
    job = run.builder.job
    zero: Any = job.parallelism.zero
    if flavour.name == "trl" and job.adapter is not None and zero is not None and zero.stage == 3:
        run.builder.derived("reentrant", True, "TRL forces it for PEFT under ZeRO-3", "parallelism.zero.stage")


describe, edits = written_by("hf_trainer.edits")


FORMAT = Format(
    NAME,
    "Transformers/TRL config",
    UPSTREAM,
    recognise,
    read,
    describe,
    edits,
    "`num_processes` of an accelerate config",
)
