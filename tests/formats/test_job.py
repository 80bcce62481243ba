import json

import pytest

from gpulint.job.job import Job, field_paths
from gpulint.source.document import SourceError

PLAN = """\
gpulint: job/v1
model: meta-llama/Llama-3.1-8B   # 8 B
micro_batch_size: 2
sequence_length: 4096
weights: {dtype: bf16}
"""


@pytest.fixture
def job(bench):
    return bench("job")


class TestReading:
    def test_every_field_has_an_origin(self, job):
        read = job.job(PLAN)
        assert all(
            path in read.origins for path in field_paths() if read.get(path.rpartition(".")[0] or path) is not None
        )
        assert read.origins["micro_batch_size"].span.line == 3
        assert read.origins["attention"].note == "default of job/v1"
        assert read.origins["weights.dtype"].key == "weights.dtype"

    def test_yaml_json_and_toml_say_the_same(self, bench):
        values = {"gpulint": "job/v1", "model": "a/b", "micro_batch_size": 3, "weights": {"dtype": "float16"}}
        toml = 'gpulint = "job/v1"\nmodel = "a/b"\nmicro_batch_size = 3\n[weights]\ndtype = "float16"\n'
        yaml = "gpulint: job/v1\nmodel: a/b\nmicro_batch_size: 3\nweights:\n  dtype: float16\n"
        jobs = [bench("job", "json").job(json.dumps(values)), bench("job", "toml").job(toml), bench("job").job(yaml)]
        assert jobs[0] == jobs[1] == jobs[2]
        assert bench("job", "toml").job(toml).origins["weights.dtype"].span.line == 5

    def test_it_is_what_validate_makes_of_it(self, job):
        plain = {"model": "a/b", "loss": "liger", "parallelism": {"zero": {"stage": 3, "offload_optimizer": "cpu"}}}
        text = "gpulint: job/v1\nmodel: a/b\nloss: liger\nparallelism:\n  zero: {stage: 3, offload_optimizer: cpu}\n"
        read = job.job(text, gpus=8)
        expected = Job.validate(plain)
        expected.hardware.gpus = 8
        assert read == expected

    def test_short_spellings_have_the_place_of_their_key(self, job):
        read = job.job(PLAN + "loss: liger\nparallelism:\n  zero:\n    stage: 3\n    offload_optimizer: cpu\n")
        assert read.origins["loss.kernel"].span.line == 6
        assert read.origins["parallelism.zero.offload_optimizer.device"].key == "parallelism.zero.offload_optimizer"

    def test_a_model_may_stand_inline(self, job):
        read = job.job("gpulint: job/v1\nmodel:\n  model_type: llama\n  hidden_size: 64\n")
        assert read.model == {"model_type": "llama", "hidden_size": 64}
        assert read.origins["model"].span.line == 3

    def test_null_is_absent(self, job):
        read = job.job(PLAN + "adapter: null\nattention: null\n")
        assert (read.adapter, read.attention, read.origins["attention"].kind) == (None, "sdpa", "default")


class TestWorldSize:
    def test_the_command_line_wins(self, job):
        assert job.job(PLAN + "hardware: {gpus: 4}\n").hardware.gpus == 4
        assert job.job(PLAN + "hardware: {gpus: 4}\n", gpus=2).hardware.gpus == 2

    def test_nobody_says(self, job):
        assert (job.job(PLAN).hardware.gpus, job.job(PLAN).origins["hardware.gpus"].kind) == (1, "assumed")
        assert job.job(PLAN + "parallelism: {zero: {stage: 2}}\n").hardware.gpus == 8
        assert job.job(PLAN + "parallelism: {tensor: 4, pipeline: 2}\n").hardware.gpus == 8

    def test_an_unknown_gpu_is_not_this_formats_business(self, job):
        assert job.job(PLAN + "hardware: {gpu: voodoo-2}\n").hardware.gpu == "voodoo-2"


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "line", "column", "reason"),
        [
            ("kind: trainin\n", 2, 7, "kind must be one of training, inference, not trainin; did you mean training?"),
            ("micro_batch_size: two\n", 2, 19, "micro_batch_size must be a whole number of 1 or more, not two"),
            ("micro_batch_size: 0\n", 2, 19, "micro_batch_size must be a whole number of 1 or more, not 0"),
            ("parallelism:\n  zero:\n    stage: x\n", 4, 12, "parallelism.zero.stage must be a whole number, not x"),
            ('adapter: {r: "8", alpha: x}\n', 2, 26, "adapter.alpha must be a number, not x"),
            ("weights: 3\n", 2, 10, "weights must be a mapping, not 3"),
            ("weights:\n  quantization: {bits: 4}\n", 3, 17, "weights.quantization needs method"),
            ("packing: perhaps\n", 2, 10, "packing must be true or false, not perhaps"),
            ("adapter: {modules_to_save: [1]}\n", 2, 29, "each item of adapter.modules_to_save must be text, not 1"),
            (
                "inference: {gpu_memory_utilization: -1}\n",
                2,
                37,
                "inference.gpu_memory_utilization must be a number of 0 or more, not -1",
            ),
        ],
    )
    def test_the_first_wrong_key_is_named(self, job, text, line, column, reason):
        with pytest.raises(SourceError) as caught:
            job.read("gpulint: job/v1\n" + text)
        assert (caught.value.line, caught.value.column, caught.value.reason) == (line, column, reason)

    def test_another_version(self, job):
        with pytest.raises(SourceError, match="known is job/v1"):
            job.read("gpulint: job/v2\n")

    def test_unknown_keys_are_problems(self, job):
        found = job.problems(PLAN + "micro_batch: 2\nparallelism:\n  zero: {stagee: 3}\n", "unknown-key")
        assert [(item.key, item.values["spelling"]) for item in found] == [
            ("micro_batch", "micro_batch_size"),
            ("parallelism.zero.stagee", "stage"),
        ]


class TestEdits:
    @pytest.mark.parametrize(
        "changes",
        [
            {"micro_batch_size": 1},
            {"loss.kernel": "liger", "attention": "flash_attention_2"},
            {"method": "lora"},
            {"method": "lora", "weights.quantization.method": "bnb-nf4"},
            {"parallelism.zero.stage": 3, "parallelism.zero.offload_optimizer.device": "cpu"},
            {"parallelism.fsdp.sharding": "full_shard"},
            {"inference.max_model_len": 1024},
            {"rl.precompute_reference": True},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("suffix", ["yaml", "json"])
    def test_the_edited_file_is_the_changed_job(self, bench, changes, suffix):
        plan = (
            PLAN
            if suffix == "yaml"
            else json.dumps({"gpulint": "job/v1", "model": "a/b", "weights": {"dtype": "bf16"}}, indent=2)
        )
        text, read = bench("job", suffix).change(plan, changes)
        assert {path: read.get(path) for path in changes} == changes
        assert bench("job", suffix).read(text).problems == []

    def test_lora_is_complete(self, job):
        _, read = job.change(PLAN, {"method": "lora", "weights.quantization.method": "bnb-nf4"})
        assert (read.adapter.r, read.adapter.targets, read.adapter.prepare_kbit) == (16, "all-linear", True)
        assert read.weights.quantization.bits == 4

    def test_zero_brings_the_master_copy(self, job):
        _, read = job.change(PLAN + "precision: {autocast: bfloat16}\n", {"parallelism.zero.stage": 3})
        assert (read.weights.dtype, read.precision.autocast, read.precision.master_weights) == ("bfloat16", None, True)

    def test_a_short_spelling_stays_short(self, job):
        text, _ = job.change(PLAN + "loss: torch  # for now\n", {"loss.kernel": "liger"})
        assert text.endswith("loss: liger  # for now\n")
        assert job.change(PLAN + "loss: torch\n", {"loss.chunk": 8}) is None

    def test_comments_survive(self, job):
        text, _ = job.change(PLAN, {"micro_batch_size": 1})
        assert text == PLAN.replace("micro_batch_size: 2", "micro_batch_size: 1")


@pytest.mark.parametrize(("adapter", "rank"), [("lora", 8), ("{type: vera}", 256), ("{type: vera, r: 64}", 64)])
def test_an_adapter_without_a_rank_has_peft_s(bench, adapter, rank):
    assert bench("job").job(f"gpulint: job/v1\nmethod: lora\nadapter: {adapter}\n").adapter.r == rank
