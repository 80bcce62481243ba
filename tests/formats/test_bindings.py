"""Tables of formats: how a row is read, and that each row reads back what it writes."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpulint.formats.core.bindings.kinds import FLAG, INTEGER, NUMBER, POSITIVE, TEXT, WORDS, Unsaid, integer
from gpulint.formats.core.bindings.reader import Reader, by_release
from gpulint.formats.core.bindings.rows import (
    LEAVE,
    NEVER,
    Assumed,
    Default,
    Derived,
    Fixed,
    Key,
    Table,
    Written,
    among,
    only,
    renamed,
    within,
)
from gpulint.formats.core.bindings.spelling import DTYPE, PREFIXED, SHORT, attention, dtype, optimizer, schedule
from gpulint.formats.core.format import Format, Project
from gpulint.formats.core.keys import load, object_shape
from gpulint.formats.core.registry import FORMAT_NAMES, find
from gpulint.formats.core.sections import Sections
from gpulint.job.job import Adapter, Hardware, Job, Rl
from gpulint.source.edit.edit import apply
from gpulint.source.read import parse
from gpulint.upstream.behaviour import Default as ReleaseDefault

TABLES = {name: form.table for name in FORMAT_NAMES if (form := find(name)).table is not None}
ROWS = [(name, row) for name, table in TABLES.items() for row in table.key_rows()]

PROJECT = Project("/nowhere", None, None, None, lambda *_: None)

JOB = Job(
    micro_batch_size=3, sequence_length=130, adapter=Adapter(r=7), rl=Rl(prompt_length=67, completion_length=63),
    hardware=Hardware(gpus=12),
)  # fmt: skip
"""What conversions of values go by; sizes that share no factor."""

ROUNDED = {
    ("tgi", "inference.kv_cache_dtype"): "fp8", ("lmdeploy", "inference.kv_cache_dtype"): "fp8",
    ("verl", "loss.kernel"): "liger",
}  # fmt: skip
"""Values that a tool has a narrower word for: its fp8 is e4m3, its fused loss works in chunks."""

WORDS_OF = {"method": ("full", "lora"), "objective": ("grpo", "ppo"), "activation_checkpointing": ("none", "full")}
"""Values of fields that are written as something else."""

WITHOUT_SCHEMA = {"hf_inference"}
"""Tables of what Python files say, where Python itself takes any keyword."""

NOT_IN_SCHEMA = {
    "vllm": {"model_tag"},
    "openrlhf": {"flash_attn"},
    "accelerate": {
        "fsdp_config.offload", "fsdp_config.cpu_offload", "fsdp_config.mixed_precision_policy",
        "fsdp_config.mixed_precision", "fsdp_config.transformer_cls_names_to_wrap",
    },
    "hf_trainer": {
        "block_size", "data_max_length", "do_lora", "enable_lora", "enable_peft", "exclude_modules", "freeze_encoder",
        "lora", "lora_enable", "lora_exclude_modules", "lora_rank", "lora_target", "max_duration_in_seconds",
        "max_seq_len", "max_sequence_length", "max_source_length", "model_id", "model_max_len", "model_max_length",
        "model_name", "modules_to_save", "num_labels", "pad_to_max_length", "peft_method", "r", "seq_length",
        "sequence_length", "target_modules", "target_parameters", "task_name", "train_mode", "use_8bit_optimizer",
        "use_backbone_lora", "use_flash_attention_2", "use_flash_attn", "use_llm_lora", "use_lora", "use_peft_lora",
        "use_qlora", "use_reentrant",
    },
    "megatron": {"moe_expert_parallel_size", "deepspeed_activation_checkpointing"},
    "ms_swift": {"batch_size", "use_flash_attn"},
    "megatron_bridge": {"dataset.pack_sequences_in_batch"},
    "slime": {"moe_expert_parallel_size", "use_custom_fsdp", "sglang_mem_fraction_static"},
    "nemo_rl": {"policy.megatron_cfg.virtual_pipeline_model_parallel_size"},
    "trtllm": {
        "quantization", "quantization_type", "tensor_parallel_count", "max_decoder_seq_len", "enable_chunked_context",
        "checkpoint_dir", "tp_size", "pp_size", "cp_size", "ep_size", "moe_expert_parallel_size", "tokens_per_block",
        "kv_cache_free_gpu_memory_fraction", "kv_cache_free_gpu_mem_fraction", "quant_config.quant_algo",
    },
}  # fmt: skip
"""Keys that launchers give (arguments without a flag, Truss's engine builder), that a fork has (Megatron-DeepSpeed),
that are passed on to another tool (SGLang), that other programs around a trainer have, and that upstream has no more.
"""


def values_of(row):
    """Values of the field that a row may write."""
    if isinstance(row.back, Mapping):
        return st.sampled_from(list(row.back) or ["awq"])
    if isinstance(row.to, Mapping):
        return st.sampled_from(list(row.to.values()))
    if row.field in WORDS_OF:
        return st.sampled_from(WORDS_OF[row.field])
    if row.kind is FLAG:
        return st.booleans()
    if row.kind.name.startswith("a whole number"):
        return st.integers(min_value=row.kind.least or 0, max_value=1 << 40)
    return st.sampled_from(row.kind.samples)


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[f"{name}-{row.field}-{row.names[0]}" for name, row in ROWS])
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_row_reads_back_what_it_writes(name, row, data):
    value = data.draw(values_of(row))
    job = JOB.with_changes({row.field: value})
    written = row.written(value, job)
    if isinstance(written, Unsaid):
        assert row.back is not None or row.to is not None
    elif written is not None and ROUNDED.get((name, row.field)) != value:
        text = json.dumps(nested(row.names[0].split("."), written))
        reader = Reader(parse(text, "c.json", "json"), PROJECT, name, "tool 1.2")
        reader.job = copy.deepcopy(JOB)
        reader.bind([dataclasses.replace(row, when=None)])
        said = reader.job.get(row.field) if reader.has_set(row.field) else unsaid(row.field)
        assert said == value


def unsaid(field):
    """What a field of a part is where nothing says it."""
    job = Job()
    job.assign(field, None)
    part, _, name = field.rpartition(".")
    owner = job.get(part) if part else job
    return next(item.default for item in dataclasses.fields(owner) if item.name == name)


def nested(steps, value):
    """A value below its keys."""
    return {steps[0]: nested(steps[1:], value)} if steps else value


@pytest.mark.parametrize("name", sorted(set(TABLES) - WITHOUT_SCHEMA))
def test_keys_of_rows_are_keys_of_the_schema(name):
    named = {key for row in TABLES[name].key_rows() for key in row.names}
    assert {key for key in named - NOT_IN_SCHEMA.get(name, set()) if not is_key(load(name), key)} == set()


def is_key(schema, key):
    """Whether a schema has a dotted key, or leaves its section open."""
    part = schema
    for step in key.split("."):
        shape = object_shape(schema, part)
        name = next((name for name in (step, step.replace("_", "-")) if name in shape.properties), None)
        if name is None:
            return part is not schema and not shape.unknown
        part = shape.properties[name]
    return True


# how a row is read


def read(text, *rows, **options):
    reader = Reader(
        parse(text, "c.yaml", "yaml"),
        PROJECT,
        "x",
        "tool 1.2",
        **options,
    )
    reader.bind(rows)
    return reader


def origin(reader, field):
    return (reader.job.get(field), reader.job.origins[field].kind, reader.job.origins[field].note)


def test_a_key_and_its_default():
    row = Key("micro_batch_size", "batch", POSITIVE, Default(3, "its README"))
    assert origin(read("batch: 5\n", row), "micro_batch_size") == (5, "file", "")
    assert origin(read("other: 5\n", row), "micro_batch_size") == (3, "default", "its README")


def test_a_plain_default_is_the_upstreams():
    row = Key("micro_batch_size", "batch", POSITIVE, 3)
    assert origin(read("{}", row), "micro_batch_size") == (3, "default", "default of tool 1.2")


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("5", (5, "file", "as written")),
        ("null", (7, "file", "null is all")),
        ("${B}", (None, "assumed", "${B} is filled in when the job starts")),
        ("[1]", (3, "default", "default of tool 1.2")),
        ("0", (3, "default", "default of tool 1.2")),
    ],
)
def test_what_a_key_may_say(written, found):
    row = Key(
        "micro_batch_size", "batch", POSITIVE, 3, note="as written", null=Written(7, "null is all"),
        blank=Assumed(None, "{key} is {value}", unstated=True),
    )  # fmt: skip
    reader = read(f"batch: {written}\n", row)
    assert origin(reader, "micro_batch_size") == found
    assert reader.job.unstated == (["micro_batch_size"] if written == "${B}" else [])


def test_a_word_that_the_row_does_not_know():
    row = Key("attention", "attn", TEXT, "sdpa", {"fa": "flash_attention_2"}, other=Written("eager", "the slow one"))
    assert origin(read("attn: fa\n", row), "attention") == ("flash_attention_2", "file", "")
    assert origin(read("attn: xyz\n", row), "attention") == ("eager", "file", "the slow one")
    assert origin(read("attn: [fa]\n", row), "attention") == ("sdpa", "default", "default of tool 1.2")


def test_the_first_row_that_says_a_field_wins():
    rows = (
        Key("activation_checkpointing", "offload", FLAG, to={True: "offload"}),
        Key("activation_checkpointing", "checkpointing", FLAG, "none", {True: "full", False: "none"}),
    )
    assert read("offload: true\ncheckpointing: true\n", *rows).job.activation_checkpointing == "offload"
    assert read("offload: false\ncheckpointing: true\n", *rows).job.activation_checkpointing == "full"
    assert read("{}", *rows).job.activation_checkpointing == "none"


def test_older_spellings():
    row = Key("sequence_length", ("max_length", "max_seq"), POSITIVE)
    assert read("max_seq: 130\n", row).job.sequence_length == 130
    assert read("max_seq: 130\nmax_length: 67\n", row).job.sequence_length == 67
    assert read("max_length: no\nmax_seq: 130\n", row).job.sequence_length == 130
    assert "sequence_length" not in read("{}", row).job.origins


def test_conditions_and_sections():
    rows = (
        Key("framework", "strategy", TEXT, to={"megatron": "megatron"}),
        *only(lambda job: job.framework == "megatron", *within("m", Key("parallelism.tensor", "tp", POSITIVE, 1))),
        *only(lambda job: job.framework is None, lambda reader: reader.assumed("parallelism.tensor", 5, "a step")),
    )
    assert read("strategy: megatron\nm: {tp: 3}\n", *rows).job.parallelism.tensor == 3
    assert read("m: {tp: 3}\n", *rows).job.parallelism.tensor == 5


def test_a_word_that_says_what_follows():
    none = Derived(None, "no FSDP")
    row = Key("parallelism.fsdp", "strategy", TEXT, to=lambda word, _: Unsaid.OTHER if word == "fsdp" else none)
    assert origin(read("strategy: ddp\n", row), "parallelism.fsdp") == (None, "derived", "no FSDP")
    assert not read("strategy: fsdp\n", row).has_set("parallelism.fsdp")


def test_keys_of_a_section():
    reader = read("model: {dim: 130, mlp: {width: 67}}\nrest: 1\n")
    assert reader.section("model").section("mlp").given(POSITIVE, "width").key == "model.mlp.width"
    assert reader.section("model").given(POSITIVE, "mlp.width").key == "model.mlp.width"
    assert reader.section("model").value(POSITIVE, "dim") == 130
    assert reader.section("model").given(POSITIVE, "dim").key == "model.dim"
    assert reader.section("rest").value(POSITIVE, "dim") is None
    assert reader.section("model").job is reader.job


def test_rows_under_the_keys_of_another_tool():
    names = {"batch": ("run.size", "run.old_size"), "steps": ()}
    row, other = renamed(names, Key("micro_batch_size", ("batch", "steps"), POSITIVE), Fixed("compile", False))
    assert row.names == ("run.size", "run.old_size")
    assert read("run: {old_size: 67}\nbatch: 5\n", row, other).job.micro_batch_size == 67


def test_values_from_elsewhere():
    rows = (
        Key("method", "lora", FLAG, lambda _: LEAVE),
        Fixed("method", lambda reader: LEAVE if reader.value(FLAG, "full", default=True) else "full"),
        Fixed("method", Derived("lora", "always", "model")),
        Fixed("compile", lambda reader: Default(reader.job.method == "lora", "since it is LoRA")),
        Fixed("adapter", None),
    )
    reader = read("{}", *rows)
    assert origin(reader, "method") == ("lora", "derived", "always")
    assert origin(reader, "compile") == (True, "default", "since it is LoRA")
    assert origin(reader, "adapter") == (None, "default", "default of tool 1.2")


def test_what_a_shipped_config_says_is_a_default():
    document = parse("batch: 5\n", "c.yaml", "yaml")
    document.root.entry("batch").key.path = "shipped.yaml"
    reader = Reader(document, PROJECT, "x", "tool 1.2", shipped="shipped.yaml")
    reader.bind([Key("micro_batch_size", "batch", POSITIVE, 3)])
    assert origin(reader, "micro_batch_size") == (5, "default", "default of tool 1.2")


def test_rows_say_anew_what_another_tool_has_set():
    outer = read("model: m\n", Fixed("micro_batch_size", 3), Fixed("compile", False))
    document = parse("inner: {batch: 5}\n", "d.yaml", "yaml")
    inner = Reader.over(outer, document, Sections(document.root.get("inner"), "inner"), "other 2.0")
    inner.bind([
        Key("micro_batch_size", "batch", POSITIVE, 7), Key("micro_batch_size", "rows", POSITIVE, 11),
        Key("compile", "compile", FLAG), Fixed("padded", lambda _: LEAVE),
    ])  # fmt: skip
    assert origin(outer, "micro_batch_size") == (5, "file", "")
    assert outer.job.origins["micro_batch_size"][2:4] == ("d.yaml", "inner.batch")
    assert origin(outer, "compile") == (False, "default", "default of tool 1.2")
    assert "padded" not in outer.job.origins


def test_a_default_by_release():
    default = by_release([ReleaseDefault("tool", "head", "columns", "head.py", until="0.5")], "head", "blocks")

    def at(version):
        project = PROJECT._replace(versions={"tool": version} if version else {})
        return default(Reader(parse("{}", "c.yaml", "yaml"), project, "x", "tool 1.2"))

    assert [at("0.4.9"), at("0.5"), at(None)] == ["columns", "blocks", "blocks"]


# how a change is written

FLAGS = Table(
    (
        Key("sequence_length", ("max_length", "max_seq"), POSITIVE),
        Key(
            "micro_batch_size", "tokens", POSITIVE, to=lambda tokens, _: tokens // 130, back=lambda rows, _: rows * 130,
            adds=False,
        ),
        Key("micro_batch_size", "batch", POSITIVE, 1),
        Key("activation_checkpointing", "offload", FLAG, to={True: "offload"}),
        Key("activation_checkpointing", "checkpointing", FLAG, "none", {True: "full", False: "none"}),
        Key("compile", "compile", FLAG, back=NEVER),
        Key("padded", "padded", FLAG),
        Key("packing", "packing", FLAG),
    ),
    says={"padded": lambda *_: LEAVE, "packing": lambda *_: None},
    total="rows",
)  # fmt: skip


def bound(document, project):
    reader = Reader(document, project, "x", "tool 1.2")
    reader.bind(FLAGS.rows)
    return reader.reading


FORM = Format.of_table("x", "x", "tool 1.2", bound, FLAGS)


@pytest.mark.parametrize(
    ("text", "changes", "after"),
    [
        ("batch: 2\n", {"micro_batch_size": 3}, "batch: 3\n"),
        ("tokens: 260\n", {"micro_batch_size": 3}, "tokens: 390\n"),
        ("tokens: null\nbatch: 2\n", {"micro_batch_size": 3}, "tokens: null\nbatch: 3\n"),
        ("max_seq: 9\n", {"sequence_length": 67}, "max_seq: 67\n"),
        ("max_length: 9\n", {"sequence_length": 67}, "max_length: 67\n"),
        ("checkpointing: true\n", {"activation_checkpointing": "none"}, "checkpointing: false\n"),
        ("offload: true\ncheckpointing: true\n", {"activation_checkpointing": "full"}, "checkpointing: true\n"),
        ("offload: false\nb: 1\n", {"activation_checkpointing": "offload"}, "offload: true\nb: 1\n"),
        ("compile: true\n", {"compile": False}, None),
        ("padded: false\npacking: no\n", {"padded": True}, "padded: true\npacking: no\n"),
        ("padded: false\npacking: no\n", {"packing": True}, None),
        ("batch: 2\n", {"attention": "eager"}, None),
        ("batch: 2\n", {"micro_batch_size": 3, "attention": "eager"}, None),
        ("batch: 3\nrows: 7\n", {"gradient_accumulation_steps": 5}, "batch: 3\nrows: 15\n"),
    ],
)  # fmt: skip
def test_a_change_is_written_where_the_file_says_the_field(text, changes, after):
    reading = FORM.read(parse(text, "c.yaml", "yaml"), PROJECT)
    edits = FORM.edits(reading, changes)
    assert (FORM.describe(reading, changes) is None) == (after is None)
    assert (apply(text, edits) if edits else None) == after


@pytest.mark.parametrize(
    ("syntax", "text", "after"),
    [("yaml", "rows: 5\nbatch: 2\n", "rows: null\nbatch: 3\n"), ("toml", "rows = 5\nbatch = 2\n", "batch = 3\n")],
)
def test_fields_that_a_change_brings_along_and_nulls(syntax, text, after):
    table = Table(
        (Key("micro_batch_size", "batch", POSITIVE), Key("sequence_length", "rows", POSITIVE)),
        brings=lambda _, changes: {"micro_batch_size": 7, "sequence_length": None}, nulls=True,
    )  # fmt: skip

    def read_it(document, project):
        reader = Reader(document, project, "x", "tool 1.2")
        reader.bind(table.rows)
        return reader.reading

    form = Format.of_table("x", "x", "tool 1.2", read_it, table)
    reading = form.read(parse(text, f"c.{syntax}", syntax), PROJECT)
    assert form.describe(reading, {"micro_batch_size": 3}) == "batch: 3, rows: null"
    assert apply(text, form.edits(reading, {"micro_batch_size": 3})) == after


def test_a_change_to_a_value_that_the_row_may_not_write():
    row = Key("weights.dtype", "dtype", DTYPE, back=among("bfloat16"))
    assert row.written("bfloat16", JOB) == "bfloat16"
    assert row.written("float32", JOB) == Unsaid.OTHER


def test_fields_that_are_said_together_what_the_tool_refuses_and_what_is_told_then():
    table = Table(
        (Key("sequence_length", "length", POSITIVE), Key("packing", "packing", FLAG)),
        together={("method", "adapter.r"): lambda _, part: {"lora": part.get("adapter.r", 16), "lora_alpha": None}},
        told=lambda _, changes: {"recipe": "packed"} if "packing" in changes else None,
        refuses=lambda reading, changes: changes.get("packing", reading.job.packing) and "sequence_length" in changes,
    )

    def read_it(document, project):
        reader = Reader(document, project, "x", "tool 1.2")
        reader.bind(table.rows)
        return reader.reading

    form = Format.of_table("x", "x", "tool 1.2", read_it, table)
    reading = form.read(parse("length: 9\nlora_alpha: 3\n", "c.yaml", "yaml"), PROJECT)
    assert form.describe(reading, {"method": "lora", "adapter.r": 67}) == "lora: 67, no lora_alpha"
    assert form.describe(reading, {"method": "lora", "sequence_length": 5}) == "lora: 16, length: 5, no lora_alpha"
    assert form.describe(reading, {"packing": True}) == "packing: true"
    assert form.describe(reading, {"packing": True, "sequence_length": 5}) == "recipe: packed"
    assert form.edits(reading, {"packing": True, "sequence_length": 5}) is None


def test_a_switch_that_is_on():
    reader = read("a: false\nb: yes\nc: [1]\n")
    assert reader.on("b").key == "b"
    assert (reader.on("a", "b"), reader.on("c"), reader.on("d")) == (None, None, None)


def test_another_file_says_a_part_of_a_change():
    other = parse("batch: 2\n", "dir/other.yaml", "yaml")

    def elsewhere(_reading, changes):
        rest = {path: value for path, value in changes.items() if path != "micro_batch_size"}
        return (other, {"batch": changes["micro_batch_size"]}, rest) if len(rest) < len(changes) else None

    table = dataclasses.replace(FLAGS, elsewhere=elsewhere)
    form = Format.of_table("x", "x", "tool 1.2", bound, table)
    reading = form.read(parse("max_seq: 9\n", "c.yaml", "yaml"), PROJECT)
    both = {"sequence_length": 67, "micro_batch_size": 3}
    assert form.describe(reading, both) == "max_seq: 67; batch: 3 in other.yaml"
    assert [edit.path for edit in form.edits(reading, both)] == ["c.yaml", "dir/other.yaml"]
    assert form.describe(reading, {"micro_batch_size": 3}) == "batch: 3 in other.yaml"
    assert form.describe(reading, {"attention": "eager", "micro_batch_size": 3}) is None


# kinds and spellings


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (FLAG, "yes", True), (FLAG, 0, False), (FLAG, "maybe", Unsaid.WRONG), (FLAG, [True], Unsaid.WRONG),
        (INTEGER, "1e3", 1000), (INTEGER, 1.5, Unsaid.WRONG), (INTEGER, True, Unsaid.WRONG),
        (integer(2), 1, Unsaid.WRONG), (integer(2), 2, 2), (NUMBER, "2e-4", 2e-4), (NUMBER, ".inf", Unsaid.WRONG),
        (TEXT, " ", Unsaid.WRONG), (TEXT, 3, Unsaid.WRONG), (WORDS, "a, b", ["a", "b"]), (WORDS, [], Unsaid.WRONG),
        (DTYPE, "torch.BF16", "bfloat16"), (DTYPE, "amp_bf16", Unsaid.OTHER), (DTYPE, 16, Unsaid.WRONG),
        (dtype(refuses=SHORT | PREFIXED), "bf16", Unsaid.OTHER),
        (dtype(refuses=SHORT | PREFIXED), "half", "float16"),
        (optimizer(), "bitsandbytes.optim.AdamW8bit", "adamw_bnb_8bit"),
        (optimizer(own={"adam": "adamw_torch_fused"}), "Adam", "adamw_torch_fused"),
        (attention(), "flex_attention", "flex"), (attention(), "odd", Unsaid.OTHER),
        (attention(any_other=True), "org/Odd@v1", "org/Odd"),
        (attention(any_other=True), "kernels-community/flash-attn3:fa3", "flash_attention_3"),
    ],
)  # fmt: skip
def test_kinds(kind, written, value):
    assert kind.read(written) == value


@pytest.mark.parametrize(
    ("word", "said"),
    [("Interleaved1F1B", "1f1b"), ("interleaved_zero_bubble", "zero_bubble"), ("x", Unsaid.OTHER), (3, Unsaid.WRONG)],
)
def test_schedules_with_and_without_underscores(word, said):
    assert schedule().read(word) == said


def test_words_that_are_written():
    assert attention(any_other=True, written={"eager": "none"}).write("eager") == "none"
    assert attention(any_other=True).write("org/odd") == "org/odd"
    assert DTYPE.write("bfloat16") == "bfloat16"
    assert dtype(written={"bfloat16": "bf16"}).write("bfloat16") == "bf16"
    assert dtype(refuses={"float64", "fp64", *PREFIXED}).write("float64") == Unsaid.OTHER
    assert optimizer(own={"adam": "adamw_torch_fused"}).write("adamw_torch_fused") == "adam"
