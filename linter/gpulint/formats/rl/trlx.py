"""trlx: the YAML of a TRLConfig, trained through accelerate.

Facts from trlx 0.7.0 (trlx/data/configs.py, trlx/data/method_configs.py, trlx/trainer/accelerate_*.py,
trlx/models/modeling_ppo.py), read statically. `from_pretrained` without a dtype: float32 weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core.backends.training_loop import USUAL, runs_on
from ..core.bindings.kinds import INTEGER, POSITIVE, TEXT, WHOLE_TEXT
from ..core.bindings.reader import Reader
from ..core.bindings.rows import NEVER, Assumed, Default, Derived, Fixed, Key, Table, Written
from ..core.bindings.spelling import optimizer
from ..core.format import Format, NoJobError, Reading
from ..core.keys import key_problems
from ..core.model_facts import find_model
from ..core.world_size import set_hardware

if TYPE_CHECKING:
    from ...source.document import Document
    from ..core.format import Project
    from ..core.key_changes import Keys

NAME = "trlx"
UPSTREAM = "trlx 0.7.0"

_OBJECTIVES = {"ppo": "ppo", "sft": "sft", "rft": "sft"}
"""The method's name without `config` -> the Job's objective."""

_OPTIMIZER = optimizer(own={"adam_8bit_bnb": "adamw_bnb_8bit", "adamw_8bit_bnb": "adamw_bnb_8bit"}, any_other=True)


def read(document: Document, project: Project) -> Reading:
    """The Job of a run. Raises NoJobError for NeMo's trainers, models with an encoder, and ILQL."""
    reader = Reader(document, project, NAME, UPSTREAM)
    if reader.value(TEXT, "train.trainer", default="").startswith("NeMo"):
        raise NoJobError(document.path, "trained by NeMo, whose config it names")
    if reader.value(TEXT, "model.model_arch_type", default="causal") != "causal":
        raise NoJobError(document.path, "a model with an encoder and a decoder")
    reader.bind(TABLE.rows)
    reader.reading.problems = key_problems(document, NAME)
    return reader.reading


def _set_objective(reader: Reader) -> None:
    name = reader.given(TEXT, "method.name")
    word = name.value.lower().removesuffix("config") if name else "ppo"
    if word not in _OBJECTIVES:
        raise NoJobError(reader.document.path, f"{word}: gpulint does not know its heads and losses")
    reader.put("objective", Written(_OBJECTIVES[word]) if name else "ppo", name)


def _set_trained(reader: Reader) -> None:
    """LoRA by `peft_config`; with `num_layers_unfrozen` the last layers, of which PPO keeps a frozen copy."""
    job, entry = reader.job, reader.keys.raw("model.peft_config")
    rank, layers = reader.given(POSITIVE, "model.peft_config.r"), reader.given(INTEGER, "model.num_layers_unfrozen")
    if entry and rank:
        reader.set("method", entry, "lora")
        reader.derived("adapter.type", "lora", "peft_config", "method")
        reader.derived("rl.reference_model", False, "the reference is the model without its adapter", "method")
    elif layers is None or layers.value < 0:
        reader.default("rl.reference_model", job.objective == "ppo", "a whole copy of the model")
    elif (model := find_model(job.model, reader.document.path, reader.project.root)) is None:
        reader.assumed("trainable", None, "the model's layers are not known")
    else:
        last = range(max(0, model.shape.layers - layers.value), model.shape.layers)
        reader.set("trainable", layers, [rf"\.{index}\." for index in last] or ["lm_head"])
        reader.derived("rl.reference_model", False, "the frozen layers are shared with the reference", "trainable")


def _set_steps(reader: Reader) -> None:
    whole, part = reader.given(POSITIVE, "train.batch_size"), reader.given(POSITIVE, "train.minibatch_size")
    if whole and part:
        steps = max(1, whole.value // part.value)
        reader.set("gradient_accumulation_steps", part, steps, "batch_size / minibatch_size")


def _method(reading: Reading, value: str) -> Keys | None:
    if value == "full":
        return {"model.peft_config": None}
    adapter = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 16, "lora_alpha": 32}
    return {} if reading.job.method == "lora" else {"model.peft_config": adapter} if value == "lora" else None


def _optimizer(_reading: Reading, value: str) -> Keys | None:
    word = {"adamw_8bit": "adamw_8bit_bnb", "adamw_torch": "adamw"}.get(value)
    return {"optimizer.name": word} if word else None


_LATER: dict[str, Any] = {
    "default": Assumed(None, "no key says it"),
    "blank": Assumed(None, "{key} is filled in when the job starts"),
}

TABLE = Table(
    (
        *runs_on(),
        Fixed("kind", Derived("training", "a run of trlx")),
        _set_objective,
        Key("model", "model.model_path", WHOLE_TEXT, Assumed(None, "model_path is to be filled in")),
        lambda reader: set_hardware(reader, reader.project, None, sharded=False),
        Fixed("weights.dtype", Default("float32", "from_pretrained without a dtype")),
        Fixed(
            "rl.value_model", Default("head", "AutoModelForCausalLMWithHydraValueHead"),
            when=lambda job: job.objective == "ppo",
        ),
        _set_trained,
        Key("adapter.r", "model.peft_config.r", POSITIVE, when=lambda job: job.method == "lora"),
        # `batch_size` stays in a change: what goes through the model at once is its part
        Key("micro_batch_size", "train.minibatch_size", POSITIVE),
        Key("micro_batch_size", "train.batch_size", POSITIVE, back=NEVER, **_LATER),
        _set_steps,
        Key("sequence_length", "train.seq_length", POSITIVE, **_LATER),
        Fixed("padded", Default(True, "prompts and responses are padded to one length")),
        Key("optimizer.name", "optimizer.name", _OPTIMIZER, back=NEVER),
        Key("rl.completion_length", "method.gen_kwargs.max_new_tokens", POSITIVE),
        *USUAL,
    ),
    says={"method": _method, "optimizer.name": _optimizer},
    ignored=frozenset({"gradient_accumulation_steps"}),
)  # fmt: skip

FORMAT = Format.of_table(NAME, "trlx config", UPSTREAM, read, TABLE, "not in the file: accelerate")
