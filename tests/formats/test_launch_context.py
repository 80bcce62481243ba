"""What `accelerate launch`, a program's name and stated versions do to a training config that is read with them."""

import pytest

from gpulint.estimator.estimate_job import estimate
from gpulint.formats.core.format import Project
from gpulint.formats.core.registry import find
from gpulint.launchers.commands.flags import read_flags
from gpulint.launchers.commands.wrappers import manner_of
from gpulint.launchers.shell.script import whole
from gpulint.launchers.shell.shell import commands
from gpulint.source.read import parse

SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: a/b\nlearning_rate: 2e-4\ngradient_accumulation_steps: 4\n"
AXOLOTL = "base_model: Qwen/Qwen2.5-0.5B\ndatasets: [{path: a/b, type: alpaca}]\nsequence_len: 512\nbf16: true\n"
FACTORY = (
    "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\ndo_train: true\nfinetuning_type: full\nbf16: true\n"
    "per_device_train_batch_size: 1\ncutoff_len: 512\n"
)
ZERO = """\
distributed_type: DEEPSPEED
num_processes: 4
deepspeed_config:
  zero_stage: 2
  offload_optimizer_device: cpu
"""


def options(line):
    """The options of `accelerate launch` as a launcher's flags."""
    document = parse(f"x {line}\n", "run.sh", "shell")
    (command,) = commands(whole(document))
    return read_flags(command.words[1:], document, manner_of("accelerate launch")).document


def read(form, text, line="", files=None, program="", versions=None):
    def open_file(reference, _from_path):
        content = (files or {}).get(reference)
        return parse(content, reference, reference.rpartition(".")[2]) if content is not None else None

    launcher = options(line) if line else None
    project = Project("", None, None, None, open_file, launcher, versions or {}, program)
    return find(form).read(parse(text, "config.yaml", "yaml"), project)


class TestAccelerate:
    @pytest.mark.parametrize(("form", "text"), [("hf_trainer", SFT), ("axolotl", AXOLOTL), ("llamafactory", FACTORY)])
    def test_options_shard_the_run(self, form, text):
        job = read(form, text, "--use_deepspeed --zero_stage 3 --offload_param_device cpu --num_processes 8").job
        assert (job.parallelism.zero.stage, job.parallelism.zero.offload_parameters.device) == (3, "cpu")
        assert job.hardware.gpus == 8
        origin = job.origins["parallelism.zero.stage"]
        assert (origin.file, origin.key, origin.span.line) == ("run.sh", "zero_stage", 1)

    @pytest.mark.parametrize(("form", "text"), [("hf_trainer", SFT), ("axolotl", AXOLOTL), ("llamafactory", FACTORY)])
    def test_the_config_file_is_found_in_its_own_line(self, form, text):
        reading = read(form, text, "--config_file acc.yaml", {"acc.yaml": ZERO})
        zero, origins = reading.job.parallelism.zero, reading.job.origins
        assert (zero.stage, zero.offload_optimizer.device, reading.job.hardware.gpus) == (2, "cpu", 4)
        assert (origins["parallelism.zero.stage"].file, origins["parallelism.zero.stage"].span.line) == ("acc.yaml", 4)
        assert reading.references["config_file"].path == "acc.yaml"

    def test_an_option_wins_over_the_file(self):
        job = read("hf_trainer", SFT, "--config_file acc.yaml --zero_stage 3 --num-processes 2", {"acc.yaml": ZERO}).job
        assert (job.parallelism.zero.stage, job.parallelism.zero.offload_optimizer.device) == (3, "cpu")
        assert job.hardware.gpus == 2

    @pytest.mark.parametrize(("form", "text"), [("hf_trainer", SFT), ("axolotl", AXOLOTL), ("llamafactory", FACTORY)])
    def test_a_file_that_is_not_here_may_shard_or_not(self, form, text):
        for name in ("acc.yaml", "$ACCELERATE_CONFIG"):
            reading = read(form, text, f"--config_file {name}")
            job = reading.job
            assert job.unstated == ["hardware.gpus", "parallelism.zero.stage"]
            assert (job.parallelism.zero, job.parallelism.fsdp, job.hardware.gpus) == (None, None, 8)
            assert job.origins["parallelism.zero"].kind == "assumed"
            kinds = {problem.kind: problem for problem in reading.problems}
            assert ("unresolved-reference" in kinds) is (name == "acc.yaml")
        job.hardware.gpu = "a100-80gb"
        found = estimate(job)
        sharded = estimate(job.with_changes({"parallelism.zero.stage": 3, "unstated": []}))
        assert found.per_gpu.low <= sharded.per_gpu.low < found.per_gpu.process <= found.per_gpu.high

    @pytest.mark.parametrize(
        ("name", "stage", "device", "sharding"),
        [
            ("configs/deepspeed_zero3_offload.yaml", 3, "cpu", None),
            ("zero2.yaml", 2, "none", None),
            ("configs/fsdp_qlora.yaml", None, None, "full_shard"),
            ("multi_gpu.yaml", None, None, None),
        ],
    )
    def test_the_name_of_a_file_that_is_not_here_says_what_stands_in(self, name, stage, device, sharding):
        job = read("hf_trainer", SFT, f"--config_file {name}").job
        zero, fsdp = job.parallelism.zero, job.parallelism.fsdp
        assert ((zero.stage, zero.offload_optimizer.device) if zero else (None, None)) == (stage, device)
        assert (fsdp.sharding if fsdp else None) == sharding
        assert job.unstated == ["hardware.gpus"]

    def test_an_option_that_says_the_sharding_needs_no_file(self):
        job = read("hf_trainer", SFT, "--config_file acc.yaml --use_deepspeed --zero_stage 3").job
        assert (job.parallelism.zero.stage, job.unstated) == (3, ["hardware.gpus"])

    def test_another_kind_on_the_command_line_wins_over_the_file(self):
        job = read("hf_trainer", SFT, "--config_file acc.yaml --use_fsdp", {"acc.yaml": ZERO}).job
        assert job.parallelism.zero is None
        assert job.parallelism.fsdp.version == 1

    def test_fsdp_options_win_over_the_unprefixed_keys_of_the_file(self):
        config = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  sharding_strategy: NO_SHARD\n"
        line = "--config_file acc.yaml --fsdp_sharding_strategy SHARD_GRAD_OP"
        job = read("hf_trainer", SFT, line, {"acc.yaml": config}).job
        assert job.parallelism.fsdp.sharding == "shard_grad_op"

    def test_the_arguments_own_deepspeed_wins(self):
        files = {"ds.json": '{"zero_optimization": {"stage": 1}}'}
        job = read("hf_trainer", SFT + "deepspeed: ds.json\n", "--use_deepspeed --zero_stage 3", files).job
        assert job.parallelism.zero.stage == 1

    def test_a_deepspeed_file_that_the_accelerate_file_names(self):
        config = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
        files = {"acc.yaml": config, "ds.json": '{\n  "zero_optimization": {"stage": 3},\n  "gradient_clippin": 1.0\n}'}
        reading = read("hf_trainer", SFT, "--config_file acc.yaml", files)
        assert reading.job.parallelism.zero.stage == 3
        assert reading.job.origins["parallelism.zero.stage"].file == "ds.json"
        assert [(item.key, item.path) for item in reading.problems] == [("gradient_clippin", "ds.json")]

    def test_a_file_that_is_not_there_is_reported_at_the_word(self):
        (problem,) = [p for p in read("axolotl", AXOLOTL, "--config_file no.yaml").problems if p.kind != "unknown-key"]
        assert (problem.kind, problem.path, problem.values["reference"]) == (
            "unresolved-reference",
            "run.sh",
            "no.yaml",
        )

    def test_other_accumulation_steps_are_refused(self):
        config = ZERO + "  gradient_accumulation_steps: 2\n"
        (problem,) = read("hf_trainer", SFT, "--config_file acc.yaml", {"acc.yaml": config}).problems
        assert (problem.kind, problem.path, problem.span.line) == ("contradiction", "acc.yaml", 6)

    def test_its_mixed_precision_holds_where_the_arguments_have_none(self):
        plain = "model_name_or_path: a/b\ntrain_folder: x\noutput_dir: o\nlearning_rate: 1e-5\n"
        assert read("hf_trainer", plain, "--mixed_precision bf16").job.precision.autocast == "bfloat16"
        assert read("hf_trainer", plain + "fp16: true\n", "--mixed_precision bf16").job.precision.autocast == "float16"
        assert read("hf_trainer", plain).job.precision.autocast is None

    def test_torchrun_says_nothing_about_sharding(self):
        job = read("hf_trainer", SFT, "--nproc_per_node 8").job
        assert (job.parallelism.zero, job.parallelism.fsdp) == (None, None)

    def test_a_full_fine_tune_of_llamafactory_under_launched_zero3_is_not_upcast(self):
        assert read("llamafactory", FACTORY).job.weights.dtype == "float32"
        assert read("llamafactory", FACTORY, "--use_deepspeed --zero_stage 3").job.weights.dtype == "bfloat16"


class TestPrograms:
    @pytest.mark.parametrize(
        ("program", "objective"),
        [("trl dpo", "dpo"), ("trl grpo", "grpo"), ("scripts/run_orpo.py", "orpo"), ("train.py", "sft")],
    )
    def test_the_program_says_the_objective(self, program, objective):
        text = "model_name_or_path: a/b\nlearning_rate: 1e-5\nper_device_train_batch_size: 1\n"
        assert read("hf_trainer", text, program=program).job.objective == objective

    def test_the_program_decides_defaults(self):
        text = "model_name_or_path: a/b\nlearning_rate: 1e-5\nper_device_train_batch_size: 1\noutput_dir: o\n"
        job = read("hf_trainer", text, program="fastchat/train/train_mem.py").job
        assert (job.attention, job.padded, job.sequence_length) == ("flash_attention_2", True, 512)
        job = read("hf_trainer", text, program="examples/pytorch/language-modeling/run_clm.py").job
        assert (job.objective, job.packing, job.sequence_length) == ("pretrain", True, 1024)

    def test_a_module_is_known_by_its_path(self):
        assert read("hf_trainer", SFT, program="trl.scripts.dpo").job.objective == "dpo"


class TestVersions:
    def test_an_older_trl_has_its_own_defaults(self):
        job = read("hf_trainer", SFT, versions={"trl": "0.21.0"}).job
        assert (job.activation_checkpointing, job.loss.kernel) == ("none", "torch")
        assert job.versions["transformers"].startswith("4.")
        assert read("hf_trainer", SFT).job.activation_checkpointing == "full"

    def test_a_stated_transformers_is_kept(self):
        job = read("hf_trainer", SFT, versions={"trl": "0.21.0", "transformers": "4.51.0"}).job
        assert job.versions["transformers"] == "4.51.0"
        assert job.origins["versions.transformers"].kind == "derived"

    @pytest.mark.parametrize(("version", "dtype"), [("4.57", "float32"), ("5.1", None)])
    def test_the_dtype_on_loading_follows_transformers(self, version, dtype):
        plain = "model_name_or_path: a/b\ntrain_folder: x\noutput_dir: o\nlearning_rate: 1e-5\n"
        assert read("hf_trainer", plain, versions={"transformers": version}).job.weights.dtype == dtype

    def test_k_bit_preparation_of_an_older_trl(self):
        text = SFT + "use_peft: true\nload_in_4bit: true\n"
        adapter = read("hf_trainer", text, versions={"trl": "0.19.1"}).job.adapter
        assert (adapter.prepare_kbit, adapter.prepared_head, adapter.dtype) == (True, "bfloat16", "bfloat16")
        assert read("hf_trainer", text).job.adapter.prepare_kbit is False


class TestBlanks:
    @pytest.mark.parametrize(
        ("form", "text"),
        [
            ("hf_trainer", SFT + "per_device_train_batch_size: ${B}\nmax_length: ${L}\noptim: ${O}\n"),
            ("axolotl", AXOLOTL.replace("512", "${L}") + "micro_batch_size: ${B}\noptimizer: ${O}\n"),
            ("llamafactory", FACTORY.replace("512", "'{{ l }}'").replace("size: 1", "size: $B") + "optim: $O\n"),
        ],
    )
    def test_batch_and_length_stay_unknown_and_the_rest_says_so(self, form, text):
        job = read(form, text).job
        assert (job.micro_batch_size, job.sequence_length) == (None, None)
        assert job.origins["micro_batch_size"].kind == job.origins["sequence_length"].kind == "assumed"
        assert job.optimizer.name == "adamw_torch_fused"
        assert "O" in job.origins["optimizer.name"].note

    def test_inside_a_deepspeed_file(self):
        content = '{"zero_optimization": {"stage": "${S}"}, "bf16": {"enabled": "${B}"}}'
        reading = read("hf_trainer", SFT + "deepspeed: ds.json\n", files={"ds.json": content})
        assert reading.job.parallelism.zero.stage == 3
        assert reading.job.origins["parallelism.zero.stage"].kind == "assumed"
        assert reading.job.weights.dtype == "bfloat16"
        assert reading.problems == []


class TestFloat32:
    def test_norms_and_embeddings_of_an_axolotl_full_fine_tune(self):
        assert "embed_tokens" in read("axolotl", AXOLOTL).job.weights.float32
        for more in ("flash_attention: true\n", "adapter: lora\nlora_r: 8\n", "deepspeed: {zero_optimization: {}}\n"):
            assert read("axolotl", AXOLOTL + more).job.weights.float32 == []

    def test_what_axolotl_widens_and_narrows_again(self):
        """`_configure_embedding_dtypes` makes embeddings and head float32 first, whatever comes after."""
        adapter, four = "adapter: qlora\nlora_r: 8\n", "load_in_4bit: true\n"
        for more in ("flash_attention: true\n", "adapter: lora\nlora_r: 8\n", adapter + four):
            assert "lm_head" in read("axolotl", AXOLOTL + more).job.weights.float32_once
        sharded = "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
        skipped = adapter + four + "embeddings_skip_upcast: true\n"
        for more in ("", adapter + four + sharded, skipped, "deepspeed: {zero_optimization: {stage: 3}}\n"):
            assert read("axolotl", AXOLOTL + more).job.weights.float32_once == []


class TestLowPrecision:
    @pytest.mark.parametrize(
        ("form", "text", "line", "compute"),
        [
            ("axolotl", AXOLOTL + "fp8: true\n", "", "float8"),
            ("llamafactory", FACTORY + "fp8: true\nfp8_backend: te\n", "", "float8-te"),
            ("llamafactory", FACTORY + "fp8: true\n", "", "float8"),
            (
                "hf_trainer",
                "model_name_or_path: a/b\nx: 1\noutput_dir: o\nmax_steps: 1\n",
                "--mixed_precision fp8",
                "float8",
            ),
            ("hf_trainer", SFT, "--mixed_precision fp8", None),
        ],
    )
    def test_float8_linear_layers(self, form, text, line, compute):
        assert read(form, text, line).job.precision.compute == compute

    def test_selective_checkpointing_of_axolotl(self):
        text = AXOLOTL + "gradient_checkpointing: true\nselective_checkpointing: true\n"
        assert read("axolotl", text).job.checkpoint_policy == "attention"

    def test_parameters_that_an_adapter_targets(self):
        text = SFT + "use_peft: true\nlora_target_parameters: [mlp.experts.gate_up_proj]\n"
        assert read("hf_trainer", text).job.adapter.parameters == ["mlp.experts.gate_up_proj"]


class TestExampleScripts:
    def test_a_classifier_has_the_classes_of_its_task(self):
        text = '{"model_name_or_path": "google-bert/bert-base-cased", "task_name": "mnli"}'
        job = read("hf_trainer", text, program="examples/pytorch/text-classification/run_glue.py").job
        assert (job.objective, job.labels, job.sequence_length, job.padded) == ("classification", 3, 128, True)

    def test_a_summariser_reads_and_writes(self):
        text = '{"model_name_or_path": "google-t5/t5-small", "max_target_length": 64}'
        job = read("hf_trainer", text, program="examples/pytorch/summarization/run_summarization.py").job
        assert (job.objective, job.sequence_length, job.target_length) == ("seq2seq", 1024, 64)

    def test_speech_is_read_in_windows_and_its_encoder_may_be_frozen(self):
        text = '{"model_name_or_path": "openai/whisper-small", "freeze_encoder": true}'
        job = read("hf_trainer", text, program="speech-recognition/run_speech_recognition_seq2seq.py").job
        assert (job.objective, job.sequence_length, job.target_length) == ("seq2seq", 1500, 448)
        assert job.trainable == [r"^(?!model\.encoder\.)"]

    def test_sound_is_aligned_in_samples_and_its_features_are_frozen(self):
        text = '{"model_name_or_path": "facebook/wav2vec2-base", "max_duration_in_seconds": 10.5}'
        job = read("hf_trainer", text, program="speech-recognition/run_speech_recognition_ctc.py").job
        assert (job.objective, job.sequence_length) == ("ctc", 168000)
        assert job.trainable == [r"^(?!.*feature_extractor\.)"]

    def test_features_of_sound_may_be_trained(self):
        text = '{"model_name_or_path": "facebook/wav2vec2-base", "freeze_feature_encoder": false}'
        job = read("hf_trainer", text, program="run_speech_recognition_ctc.py").job
        assert (job.sequence_length, job.trainable) == (320000, None)

    def test_a_masked_model_fills_its_rows(self):
        text = '{"model_name_or_path": "FacebookAI/roberta-base", "max_seq_length": 256}'
        job = read("hf_trainer", text, program="run_mlm.py").job
        assert (job.objective, job.sequence_length, job.packing) == ("masked_lm", 256, True)
