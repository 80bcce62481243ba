import pytest

from gpulint.estimator.states.parameters import parameters
from gpulint.formats.core.registry import recognise
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.models.resolve import resolve
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

from .origins import TRAINING, missing

SFT = """\
model: Qwen/Qwen2.5-7B-Instruct
tuner_type: lora
torch_dtype: bfloat16
max_length: 2048
per_device_train_batch_size: 2
lora_rank: 16
deepspeed: zero2
"""
GRPO = """\
model: Qwen/Qwen2.5-7B
rlhf_type: grpo
tuner_type: full
use_vllm: true
vllm_mode: colocate
sleep_level: 1
offload_model: true
offload_optimizer: true
max_completion_length: 1024
"""


@pytest.fixture
def swift(bench):
    return bench("ms_swift")


def test_sft(swift):
    assert recognise(parse(SFT, "a.yaml", "yaml")).name == "ms_swift"
    job = swift.job(SFT, gpus=4)
    assert (job.model, job.method, job.adapter.r) == ("Qwen/Qwen2.5-7B-Instruct", "lora", 16)
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (2, 2, 2048)
    assert (job.parallelism.zero.stage, job.activation_checkpointing) == (2, "full")
    assert job.adapter.targets == "all-linear"
    assert missing(job, TRAINING) == []


def test_grpo(swift):
    job = swift.job(GRPO)
    assert (job.objective, job.rl.vllm, job.rl.vllm_sleep, job.rl.policy_offload) == ("grpo", "colocate", True, True)
    assert (job.rl.generations, job.rl.vllm_gpu_memory_utilization, job.rl.reference_model) == (8, 0.9, True)
    assert job.trainable == ["^(?!.*(?:vision|visual|audio_tower|projector|merger|aligner|mlp1))"]
    assert missing(job, TRAINING) == []


def test_without_a_length_the_model_decides(swift):
    job = swift.job(SFT.replace("max_length: 2048\n", ""))
    assert (job.sequence_length, job.origins["sequence_length"].kind) == (None, "assumed")


def test_keys(swift):
    (problem,) = swift.problems(SFT.replace("lora_rank", "lora_rnak"), "unknown-key")
    assert (problem.values["suggestion"], problem.values["treatment"], problem.span.line) == ("lora_rank", "refused", 6)
    (old,) = swift.problems(SFT.replace("tuner_type", "train_type"), "deprecated-key")
    assert old.values["replacement"] == "tuner_type"
    assert swift.problems(SFT, "unknown-key") == []


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"micro_batch_size": 1}, "micro_batch_size", 1),
        ({"sequence_length": 512}, "sequence_length", 512),
        ({"activation_checkpointing": "none"}, "activation_checkpointing", "none"),
        ({"weights.quantization.method": "bnb-nf4"}, "weights.quantization.method", "bnb-nf4"),
        ({"parallelism.zero.stage": 3}, "parallelism.zero.stage", 3),
        ({"parallelism.zero.offload_optimizer.device": "cpu"}, "parallelism.zero.offload_optimizer.device", "cpu"),
    ],
)
def test_edits(swift, changes, path, value):
    _, job = swift.change(SFT, changes)
    assert job.get(path) == value


def test_the_length_of_an_online_row_is_the_prompt_s_and_the_completion_s(swift):
    text, job = swift.change(GRPO, {"sequence_length": 4096})
    assert "max_length: 3072" in text
    assert (job.sequence_length, job.rl.completion_length) == (4096, 1024)


@pytest.mark.parametrize(
    ("command", "objective"), [("sft", "sft"), ("pt", "pretrain"), ("rlhf --rlhf_type kto", "kto"), ("infer", None)]
)
def test_command_line(tmp_path, command, objective):
    (tmp_path / "run.sh").write_text(f"NPROC_PER_NODE=4 NNODES=2 swift {command} --model x/y --max_length 512\n")
    jobs = open_jobs(recognise_file(str(tmp_path / "run.sh")), Settings(root=str(tmp_path)))
    if objective is None:
        assert (jobs.opened, jobs.reason) == ([], "swift infer is not a training command")
        return
    (opened,) = jobs.opened
    assert (opened.reading.job.objective, opened.reading.job.hardware.gpus) == (objective, 8)


@pytest.mark.parametrize(
    ("variables", "flags", "device_map", "packing"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1", "", "auto", False),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2", "", None, False),
        ("CUDA_VISIBLE_DEVICES=0", "--padding_free true", None, False),
        ("CUDA_VISIBLE_DEVICES=0", "--packing true", None, True),
    ],
)
def test_one_process_spreads_a_model_and_only_packing_fills_rows(tmp_path, variables, flags, device_map, packing):
    (tmp_path / "run.sh").write_text(f"{variables} swift sft --model x/y --max_length 512 {flags}\n")
    (opened,) = open_jobs(recognise_file(str(tmp_path / "run.sh")), Settings(root=str(tmp_path))).opened
    job = opened.reading.job
    assert (job.parallelism.device_map, job.packing) == (device_map, packing)


def test_a_classifier_has_a_head_of_its_labels(swift):
    job = swift.job(f"{SFT}task_type: seq_cls\nnum_labels: 3\n", gpus=1)
    assert (job.objective, job.labels) == ("classification", 3)
    assert swift.job(f"{SFT}task_type: causal_lm\n", gpus=1).objective == "sft"


@pytest.mark.parametrize(
    ("line", "name", "rank"),
    [
        ("use_galore: true\ngalore_optim_per_parameter: true", "galore_adamw", 128),
        ("use_galore: true\ngalore_quantization: true\ngalore_rank: 64", "q_galore_adamw8bit", 64),
    ],
)
def test_galore_replaces_the_optimizer(swift, line, name, rank):
    job = swift.job(f"{SFT}{line}\n", gpus=1)
    assert (job.optimizer.name, job.optimizer.rank, bool(job.optimizer.in_backward)) == (name, rank, False)


def test_liger_s_models_make_logits_in_an_evaluation(swift):
    text = SFT + "use_liger_kernel: true\nsplit_dataset_ratio: 0.01\n"
    assert swift.job(text).evaluation.unfused
    assert not swift.job(SFT + "split_dataset_ratio: 0.01\n").evaluation.unfused
    assert not swift.job(SFT + "use_liger_kernel: true\n").evaluation.unfused


@pytest.mark.parametrize(
    ("version", "name"), [("4.31.0", "adamw_hf"), ("4.54.1", "adamw_torch"), ("4.55.0", "adamw_torch_fused")]
)
def test_the_optimizer_is_the_trainer_s_of_the_release(tmp_path, version, name):
    (tmp_path / "a.yaml").write_text(SFT)
    settings = Settings(root=str(tmp_path), versions={"transformers": version})
    (opened,) = open_jobs(recognise_file(str(tmp_path / "a.yaml")), settings).opened
    assert opened.reading.job.optimizer.name == name


def test_distillation_has_a_teacher(swift):
    text = SFT + "rlhf_type: gkd\nteacher_model: Qwen/Qwen2.5-14B\n"
    job = swift.job(text)
    assert (job.objective, job.rl.teacher) == ("sft", "Qwen/Qwen2.5-14B")
    assert swift.job(SFT + "teacher_model: Qwen/Qwen2.5-14B\n").rl.teacher is None


@pytest.mark.parametrize(
    ("line", "kernel"),
    [
        ("", "liger"),
        ("loss_scale: ignore_empty_think\n", "liger"),
        ("loss_scale: hermes\n", "torch"),
        ("loss_scale: last_round+react\n", "torch"),
        ("enable_dft_loss: true\n", "torch"),
    ],
)
def test_weighed_tokens_leave_liger_s_loss_out(swift, line, kernel):
    assert swift.job(SFT + "use_liger_kernel: true\n" + line).loss.kernel == kernel


def test_names_of_ms_swift_2(swift):
    job = swift.job(
        "model_id_or_path: Qwen/Qwen2-0.5B\nsft_type: full\nbatch_size: 4\n"
        "use_flash_attn: true\ndeepspeed: default-zero3\n",
        gpus=2,
    )
    assert (job.method, job.micro_batch_size, job.attention) == ("full", 4, "flash_attention_2")
    zero = job.parallelism.zero
    assert (zero.stage, zero.overlap_comm, zero.sub_group_size, job.optimizer.name) == (3, True, 10**9, "fused_adam")
    assert "2.5.0" in job.origins["parallelism.zero.stage"].note or job.origins["parallelism.zero.stage"].kind != "file"


def test_lisa_trains_some_layers_at_a_time(swift):
    """`lisa_activated_layers` of a random choice: their number is what counts."""
    full = SFT.replace("tuner_type: lora", "tuner_type: full")
    plain, some = swift.job(full), swift.job(full + "lisa_activated_layers: 2\n")
    model = resolve("Qwen/Qwen2.5-7B-Instruct")
    trained = [
        sum(item.elements for item in parameters(job, model) if item.trainable and item.layers) for job in (plain, some)
    ]
    outside = [item.elements for item in parameters(some, model) if item.trainable and not item.layers]
    assert trained[1] * model.shape.layers == trained[0] * 2
    assert sum(outside) == sum(item.elements for item in parameters(plain, model) if not item.layers)


@pytest.mark.parametrize(
    ("tuner", "rank", "options"),
    [
        ("adalora", 12, {}),
        ("bone", 4, {}),
        ("boft", 16, {"boft_block_size": 4, "boft_block_num": 0, "boft_n_butterfly_factor": 1}),
        ("fourierft", 16, {"n_frequency": 2000}),
        ("vera", 256, {}),
    ],
)
def test_a_tuner_is_what_swift_passes_to_peft(swift, tuner, rank, options):
    adapter = swift.job(SFT.replace("tuner_type: lora", f"tuner_type: {tuner}")).adapter
    assert (adapter.type, adapter.r, adapter.options) == (tuner, rank, options)


def test_vera_takes_modules_of_one_shape(swift):
    assert swift.job(SFT.replace("tuner_type: lora", "tuner_type: vera")).adapter.targets == ["k_proj", "v_proj"]


def test_a_tuner_that_is_not_peft_s_keeps_its_name(swift):
    assert swift.job(SFT.replace("tuner_type: lora", "tuner_type: llamapro")).adapter.type == "llamapro"
