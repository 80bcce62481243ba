import json

import pytest

from gpulint.formats.core.format import JobBuilder
from gpulint.formats.core.releases import stating
from gpulint.formats.deepspeed.config import apply
from gpulint.formats.deepspeed.values import Argument, AutoValues
from gpulint.job.job import Adapter, Zero
from gpulint.source.read import parse


@pytest.fixture
def ds(bench):
    return bench("deepspeed", "json")


def applied(config, values=None, prepare=None):
    document = parse(json.dumps(config), "ds.json", "json")
    builder = JobBuilder(parse("model: m\n", "train.yaml", "yaml"), "some tool 1.0")
    if prepare:
        prepare(builder.job)
    problems = apply(builder, document, values or AutoValues())
    return builder.job, problems


def contradictions(problems):
    return [(item.key, item.values["value"], item.values["other"]) for item in problems if item.kind == "contradiction"]


def test_silence_means_deepspeeds_defaults(ds):
    job = ds.job('{"train_batch_size": 8, "zero_optimization": {"stage": 2}}')
    assert job.parallelism.zero == Zero(stage=2, overlap_comm=False)
    assert job.origins["parallelism.zero.reduce_bucket_size"].note == "default of DeepSpeed 0.19.8"
    assert job.origins["parallelism.zero.stage"].key == "zero_optimization.stage"


def test_overlap_follows_the_stage():
    assert applied({"zero_optimization": {"stage": 3}})[0].parallelism.zero.overlap_comm is True


@pytest.mark.parametrize("prefix", ["stage3_", ""])
def test_both_spellings_of_stage_3_sizes(prefix):
    section = {
        "stage": 3,
        f"{prefix}max_live_parameters": 1e6,
        f"{prefix}param_persistence_threshold": 10,
        f"{prefix}prefetch_bucket_size": 7,
    }
    zero = applied({"zero_optimization": section})[0].parallelism.zero
    assert (zero.max_live_parameters, zero.param_persistence_threshold, zero.prefetch_bucket_size) == (1_000_000, 10, 7)


def test_offload_objects_and_their_defaults():
    section = {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": False, "ratio": 0.5},
        "offload_param": {"device": "nvme"},
    }
    zero = applied({"zero_optimization": section})[0].parallelism.zero
    assert (zero.offload_optimizer.device, zero.offload_optimizer.pin_memory, zero.offload_optimizer.ratio) == (
        "cpu",
        False,
        0.5,
    )
    assert (zero.offload_parameters.device, zero.offload_parameters.pin_memory) == ("nvme", True)


def test_old_offload_switches_still_count():
    job, problems = applied({"zero_optimization": {"stage": 2, "cpu_offload": True}})
    assert job.parallelism.zero.offload_optimizer.device == "cpu"
    assert [(item.kind, item.key, item.values["instead"]) for item in problems] == [
        ("deprecated-key", "zero_optimization.cpu_offload", "`offload_optimizer` says it now")
    ]


def test_zero_optimization_true_is_stage_1():
    assert applied({"zero_optimization": True})[0].parallelism.zero.stage == 1
    assert applied({"zero_optimization": False})[0].parallelism.zero.stage == 0
    assert applied({})[0].parallelism.zero.stage == 0


def test_auto_sizes_come_from_the_hidden_size():
    section = {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
    }
    job, _ = applied({"zero_optimization": section}, AutoValues(hidden_size=4096))
    zero = job.parallelism.zero
    assert (zero.reduce_bucket_size, zero.prefetch_bucket_size, zero.param_persistence_threshold) == (
        4096 * 4096, int(0.9 * 4096 * 4096), 40960,
    )  # fmt: skip
    assert "4096" in job.origins["parallelism.zero.reduce_bucket_size"].note


def test_auto_stays_unknown_without_a_model_or_a_client():
    section = {"stage": 3, "reduce_bucket_size": "auto"}
    for values in (AutoValues(), AutoValues(client="", hidden_size=4096)):
        job, _ = applied({"zero_optimization": section}, values)
        assert job.origins["parallelism.zero.reduce_bucket_size"].kind == "default"
        assert "auto" in job.origins["parallelism.zero.reduce_bucket_size"].note


def test_transformers_fills_prefetch_for_stage_3_only():
    section = {"stage": 2, "stage3_prefetch_bucket_size": "auto", "reduce_bucket_size": "auto"}
    zero = applied({"zero_optimization": section}, AutoValues(hidden_size=100))[0].parallelism.zero
    assert (zero.reduce_bucket_size, zero.prefetch_bucket_size) == (10_000, 50_000_000)


@pytest.mark.parametrize("section", [{"bf16": {"enabled": True}}, {"bf16": {"enabled": "auto"}}, {}])
def test_bf16_is_16_bit_weights_with_a_master_copy(section):
    job, _ = applied(section, AutoValues(bf16=True))
    assert (job.weights.dtype, job.precision.autocast, job.precision.master_weights) == ("bfloat16", None, True)


def test_precision_left_alone_without_fp16_and_bf16():
    job, _ = applied({"zero_optimization": {"stage": 0}}, AutoValues(bf16=False, fp16=False))
    assert (job.weights.dtype, job.precision.master_weights) == (None, False)


def test_16_bit_weights_without_mixed_precision_still_get_an_fp32_partition():
    def half(job):
        job.weights.dtype = "bfloat16"

    job, _ = applied({"zero_optimization": {"stage": 2}}, AutoValues(bf16=False), half)
    assert job.precision.master_weights


@pytest.mark.parametrize(
    ("client", "dtype"), [("transformers", "float32"), ("accelerate", "bfloat16"), ("", "bfloat16")]
)
def test_zero_init_makes_float32_weights_without_mixed_precision(client, dtype):
    def half(job):
        job.weights.dtype = "bfloat16"

    values = AutoValues(bf16=False, fp16=False, client=client)
    job, _ = applied({"zero_optimization": {"stage": 3}}, values, half)
    assert (job.weights.dtype, job.precision.master_weights) == (dtype, dtype != "float32")


def test_bf16_master_weights_are_no_copy():
    config = {
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
    }
    job, _ = applied(config, AutoValues(bf16=True))
    assert (job.precision.master_weights, job.optimizer.state_dtype) == (False, "bfloat16")


def test_torch_autocast_keeps_float32_weights():
    config = {"zero_optimization": {"stage": 1}, "torch_autocast": {"enabled": True, "dtype": "bfloat16"}}
    job, _ = applied(config, AutoValues(bf16=False, fp16=False))
    assert (job.precision.autocast, job.precision.master_weights) == ("bfloat16", False)


@pytest.mark.parametrize(("stage", "dtype"), [(2, "bfloat16"), (3, None)])
def test_the_engine_casts_lora_weights_but_not_under_zero_init(stage, dtype):
    def with_adapter(job):
        job.adapter = Adapter(prepare_kbit=True)

    job, _ = applied(
        {"zero_optimization": {"stage": stage}, "bf16": {"enabled": True}}, AutoValues(bf16=True), with_adapter
    )
    assert (job.adapter.dtype, job.adapter.prepare_kbit) == (dtype, dtype is None)


def test_gradients_that_are_added_at_once():
    job, _ = applied({"bf16": {"enabled": True, "immediate_grad_update": True}})
    assert job.parallelism.zero.immediate_gradients
    assert not applied({"bf16": {"enabled": True}})[0].parallelism.zero.immediate_gradients


@pytest.mark.parametrize(("version", "pinned"), [("0.19.4", False), ("0.19.5", True), (None, True)])
def test_offloaded_memory_is_pinned_from_a_release_on(ds, version, pinned):
    text = '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}'
    job = ds.job(text, versions={"deepspeed": version} if version else {})
    assert job.parallelism.zero.offload_optimizer.pin_memory is pinned


@pytest.mark.parametrize(
    ("version", "refused"),
    [("0.19.6", []), ("0.19.7", ["mics_shard_size"]), (None, ["amp", "mics_shard_size"])],
)
def test_removed_keys_are_those_of_the_stated_release(ds, version, refused):
    text = '{"amp": {"enabled": true}, "zero_optimization": {"stage": 3, "mics_shard_size": 8}}'
    versions = {"deepspeed": version} if version else {}
    with stating(versions, {}):
        problems = ds.problems(text, "deprecated-key", versions=versions)
    assert sorted(item.key.rpartition(".")[2] for item in problems) == refused


def test_gradient_accumulation_dtype():
    job, _ = applied({"data_types": {"grad_accum_dtype": "fp32"}})
    assert job.precision.gradients == "float32"


@pytest.mark.parametrize(
    ("kind", "parameters", "name"),
    [
        ("Adam", {}, "fused_adam"),
        ("AdamW", {"torch_adam": True}, "adamw_torch"),
        ("OneBitAdam", {}, "onebitadam"),
        ("Lion", {}, "lion_32bit"),
        ("SGD", {}, "sgd"),
    ],
)
def test_the_files_optimizer_takes_over(kind, parameters, name):
    job, _ = applied({"optimizer": {"type": kind, "params": parameters}})
    assert job.optimizer.name == name


def test_the_clients_optimizer_stays_without_one():
    def lion(job):
        job.optimizer.name = "lion_8bit"

    assert applied({}, prepare=lion)[0].optimizer.name == "lion_8bit"


def test_batches_of_a_file_alone(ds):
    text = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}}'
    job = ds.job(text, gpus=8)
    assert (job.micro_batch_size, job.gradient_accumulation_steps) == (2, 4)
    assert job.origins["gradient_accumulation_steps"].key == "train_batch_size"


def test_train_batch_size_alone_means_no_accumulation(ds):
    job = ds.job('{"train_batch_size": 64, "zero_optimization": {"stage": 1}}', gpus=8)
    assert (job.micro_batch_size, job.gradient_accumulation_steps) == (8, 1)


def test_the_arithmetic_must_hold(ds):
    text = (
        '{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, '
        '"zero_optimization": {"stage": 1}}'
    )
    (problem,) = ds.problems(text, "contradiction", gpus=8)
    assert (problem.key, problem.values["value"]) == ("train_batch_size", "100")
    assert "2 x 4 x 8" in problem.values["other"]
    assert ds.problems(text, "contradiction") == []


def test_transformers_refuses_literals_that_differ_from_its_own():
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "bf16": {"enabled": False},
        "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": 0.1}},
    }
    values = AutoValues(
        micro_batch_size=1,
        gradient_accumulation_steps=2,
        bf16=True,
        arguments={"max_grad_norm": Argument(1.0, "stated"), "weight_decay": Argument(0.0, "default")},
    )
    job, problems = applied(config, values)
    assert contradictions(problems) == [
        ("bf16.enabled", "false", "bf16: true"),
        ("train_micro_batch_size_per_gpu", "4", "micro_batch_size: 1"),
        ("optimizer.params.weight_decay", "0.1", "weight_decay: 0 (its default)"),
        ("gradient_clipping", "0.5", "max_grad_norm: 1"),
    ]
    assert all(problem.path == "ds.json" for problem in problems)
    assert job.micro_batch_size is None


def test_accelerate_follows_the_file():
    job, problems = applied({"train_micro_batch_size_per_gpu": 4}, AutoValues(client="accelerate", micro_batch_size=1))
    assert job.micro_batch_size == 4
    assert contradictions(problems) == []


def test_fp16_and_bf16_exclude_each_other():
    _, problems = applied({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, AutoValues(client="accelerate"))
    assert contradictions(problems) == [("fp16.enabled", "true", "bf16.enabled: true")]


def test_auto_in_a_file_alone_is_for_someone_to_fill(ds):
    text = '{"zero_optimization": {"stage": 1, "reduce_bucket_size": "auto"}, "train_batch_size": "auto"}'
    problems = ds.problems(text, "auto-unfilled")
    assert [problem.key for problem in problems] == ["train_batch_size"]


def test_inline_configs_keep_the_place_of_their_keys():
    text = "deepspeed:\n  zero_optimization:\n    stage: 3\n    offload_parm: {}\n"
    document = parse(text, "c.yaml", "yaml")
    builder = JobBuilder(document, "some tool 1.0")
    (problem,) = apply(builder, document, AutoValues(), "deepspeed")
    assert builder.job.origins["parallelism.zero.stage"].key == "deepspeed.zero_optimization.stage"
    assert (problem.key, problem.span.line, problem.path) == ("deepspeed.zero_optimization.offload_parm", 4, None)


def test_autotp_is_tensor_parallelism():
    assert applied({"tensor_parallel": {"autotp_size": 4}})[0].parallelism.tensor == 4


@pytest.mark.parametrize("value", ['"stage"', "[]", "null", "1e400", '{"stage": {}}'])
def test_nonsense_is_no_crash(ds, value):
    others = f'"bf16": {value}, "optimizer": {value}, "train_batch_size": {value}'
    text = f'{{"zero_optimization": {{"stage": {value}}}, {others}}}'
    assert ds.job(text, gpus=2).parallelism.zero.stage == 0


def test_no_model_and_hardware_assumed(ds):
    job = ds.job('{"zero_optimization": {"stage": 1}}')
    assert job.model is None
    assert (job.hardware.gpus, job.origins["hardware.gpus"].kind) == (8, "assumed")


def test_stage_and_offload_are_edited_in_place(ds):
    text = '{\n  "zero_optimization": {\n    "stage": 2,\n    "overlap_comm": true\n  }\n}\n'
    changes = {"parallelism.zero.stage": 3, "parallelism.zero.offload_parameters.device": "cpu"}
    after, job = ds.change(text, changes)
    assert '"overlap_comm": true' in after
    assert (job.parallelism.zero.stage, job.parallelism.zero.offload_parameters.device) == (3, "cpu")


def test_offload_that_is_there_changes_its_device_only(ds):
    text = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": false}}}'
    after, _ = ds.change(text, {"parallelism.zero.offload_optimizer.device": "none"})
    assert json.loads(after)["zero_optimization"]["offload_optimizer"] == {"device": "none", "pin_memory": False}


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ('{"zero_optimization": {"stage": 2}}', {"method": "lora"}),
        (
            '{"zero_optimization": {"stage": 2, "cpu_offload": true}}',
            {"parallelism.zero.offload_optimizer.device": "none"},
        ),
        ('{"zero_optimization": {"stage": 2}, "train_batch_size": 8}', {"micro_batch_size": 1}),
        ('{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}', {"micro_batch_size": 1}),
    ],
)
def test_what_a_file_cannot_say(ds, text, changes):
    assert ds.change(text, changes) is None


SIDES = {
    "learning_rate": Argument(2e-5, "stated"),
    "adam_beta1": Argument(0.9, "default"),
    "adam_beta2": Argument(0.999, "default"),
    "adam_epsilon": Argument(1e-8, "default"),
    "weight_decay": Argument(0.03, "stated"),
    "max_grad_norm": Argument(1.0, "default"),
    "warmup_steps": Argument(0, "default"),
    "max_steps": Argument(700, "stated"),
}


@pytest.mark.parametrize(
    ("key", "equal", "other"),
    [
        ("optimizer.params.lr", 2e-5, 3e-5),
        ("optimizer.params.betas", [0.9, 0.999], [0.9, 0.95]),
        ("optimizer.params.eps", 1e-8, 1e-6),
        ("optimizer.params.weight_decay", 0.03, 0.0),
        ("scheduler.params.warmup_max_lr", 2e-5, 5e-5),
        ("scheduler.params.warmup_num_steps", 1, 70),
        ("scheduler.params.total_num_steps", 700, 701),
        ("gradient_clipping", 1.0, 0.7),
    ],
)
def test_every_value_is_held_against_its_argument(key, equal, other):
    def found(value):
        config = {}
        part = config
        *sections, name = key.split(".")
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = value
        return contradictions(applied(config, AutoValues(arguments=SIDES))[1])

    assert found("auto") == []
    assert found(equal) == []
    assert [place for place, *_ in found(other)] == [key]
    if not isinstance(equal, list):
        assert [place for place, *_ in found(str(equal))] == [key]


@pytest.mark.parametrize("key", ["train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"])
def test_a_batch_size_in_quotes_is_another_value(key):
    problems = applied({key: "6"}, AutoValues(micro_batch_size=6, gradient_accumulation_steps=6, world_size=1))[1]
    assert key in [place for place, *_ in contradictions(problems)]
    assert contradictions(applied({key: "6"}, AutoValues(client="accelerate"))[1]) == []


def test_an_argument_that_is_not_known_is_no_side():
    assert contradictions(applied({"gradient_clipping": 0.7}, AutoValues())[1]) == []
