import pytest

from gpulint.formats.core.registry import recognise
from gpulint.formats.hf_trainer import sharding as training_sharding
from gpulint.formats.llamafactory import method as llamafactory_method
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.read import parse

from .origins import ENGINE, INFERENCE, TRAINING, missing

TRAIN = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
dataset: alpaca
template: llama3
output_dir: saves/x
"""
CHAT = "model_name_or_path: meta-llama/Llama-3.1-8B\ntemplate: llama3\n"


class Shape:
    layers = 4


class Tensor:
    def __init__(self, module, role):
        self.module, self.role = module, role


class FakeModel:
    shape = Shape()
    tensors = ()


class Multimodal(FakeModel):
    tensors = (
        Tensor("model.visual.blocks.{0}.attn.qkv", "vision"),
        Tensor("model.language_model.layers.{0}.mlp.up_proj", "up"),
    )


@pytest.fixture(autouse=True)
def models(monkeypatch):
    monkeypatch.setattr(training_sharding, "hidden_size", lambda *_: 4096)
    monkeypatch.setattr(llamafactory_method, "find_model", lambda *_: FakeModel())


@pytest.fixture
def lf(bench):
    return bench("llamafactory")


def name_of(text):
    found = recognise(parse(text, "config.yaml", "yaml"))
    return found.name if found else None


@pytest.mark.parametrize(
    "text",
    [
        TRAIN,
        CHAT + "infer_backend: vllm\n",
        CHAT + "export_dir: out\n",
        CHAT + "adapter_name_or_path: saves/x\n",
        "model_name_or_path: a/b\nfinetuning_type: full\ntask: mmlu\n",
    ],
)
def test_recognition(text):
    assert name_of(text) == "llamafactory"


@pytest.mark.parametrize(
    "text", ["stage: sft\nmodel: x\n", "model_name_or_path: a/b\nlearning_rate: 1e-5\ntemplate: x\n", CHAT]
)
def test_other_files(text):
    assert name_of(text) != "llamafactory"


@pytest.mark.parametrize(
    "extra", ["", "stage: dpo\n", "finetuning_type: full\n", "quantization_bit: 4\n", "finetuning_type: freeze\n"]
)
def test_every_field_that_decides_memory_has_an_origin(lf, extra):
    assert missing(lf.job(TRAIN.replace("stage: sft\n", "") + extra), TRAINING) == []
    assert missing(lf.job(CHAT + "infer_backend: vllm\n"), INFERENCE + ENGINE) == []


class TestTraining:
    def test_defaults(self, lf):
        job = lf.job(TRAIN)
        assert (job.method, job.adapter.r, job.adapter.alpha, job.adapter.targets) == ("lora", 8, 16, "all-linear")
        assert (job.weights.dtype, job.adapter.dtype) == (None, "float32")
        assert (job.sequence_length, job.micro_batch_size, job.packing) == (2048, 8, False)
        assert (job.activation_checkpointing, job.reentrant, job.attention) == ("full", True, "sdpa")
        assert job.precision.autocast is None
        assert job.origins["method"].note == "default of llamafactory 0.9.5"

    def test_full_training_upcasts_the_weights(self, lf):
        job = lf.job(TRAIN + "finetuning_type: full\nbf16: true\n")
        assert (job.weights.dtype, job.precision.autocast) == ("float32", "bfloat16")
        assert job.origins["weights.dtype"].key == "finetuning_type"

    @pytest.mark.parametrize("key", ["pure_bf16: true", "use_badam: true"])
    def test_but_not_pure_bf16_and_badam(self, lf, key):
        job = lf.job(TRAIN + f"finetuning_type: full\nbf16: true\n{key}\n")
        assert job.weights.dtype is None
        assert job.precision.autocast == (None if "pure" in key else "bfloat16")

    def test_nor_under_zero3(self, lf):
        job = lf.job(TRAIN + "finetuning_type: full\nbf16: true\ndeepspeed: examples/deepspeed/ds_z3_config.json\n")
        assert (job.parallelism.zero.stage, job.weights.dtype, job.precision.master_weights) == (3, "bfloat16", True)
        lora = lf.job(TRAIN + "bf16: true\ndeepspeed: examples/deepspeed/ds_z3_config.json\n")
        assert lora.adapter.dtype is None

    def test_freeze_trains_the_last_layers_in_float32(self, lf):
        job = lf.job(TRAIN + "finetuning_type: freeze\nbf16: true\n")
        assert (job.method, job.weights.dtype, job.weights.trainable_dtype) == ("freeze", None, "float32")
        assert job.trainable == [r"\.2\.", r"\.3\."]
        first = lf.job(TRAIN + "finetuning_type: freeze\nfreeze_trainable_layers: -1\nfreeze_trainable_modules: mlp\n")
        assert first.trainable == [r"\.0\.mlp"]

    def test_qlora(self, lf):
        job = lf.job(TRAIN + "quantization_bit: 4\nbf16: true\n")
        packed = job.weights.quantization
        assert (packed.method, packed.bits, packed.double_quant, packed.storage_dtype) == (
            "bnb-nf4",
            4,
            True,
            "bfloat16",
        )
        assert job.adapter.prepare_kbit is False
        assert lf.job(TRAIN + "quantization_bit: 8\n").weights.quantization.method == "bnb-int8"
        hqq = lf.job(TRAIN + "quantization_bit: 4\nquantization_method: hqq\n").weights.quantization
        assert (hqq.method, hqq.bits) == ("hqq", 4)

    def test_new_tokens_train_the_embeddings(self, lf):
        job = lf.job(TRAIN + "add_special_tokens: <a>,<b>\n")
        assert job.adapter.modules_to_save == ["embed_tokens", "lm_head"]
        assert job.origins["adapter.modules_to_save"].key == "add_special_tokens"
        assert lf.job(TRAIN + "resize_vocab: true\nadditional_target: norm\n").adapter.modules_to_save == ["norm"]

    def test_checkpointing_is_on_until_disabled(self, lf):
        assert lf.job(TRAIN + "gradient_checkpointing: false\n").activation_checkpointing == "full"
        assert lf.job(TRAIN + "disable_gradient_checkpointing: true\n").activation_checkpointing == "none"
        assert lf.job(TRAIN + "use_unsloth_gc: true\n").activation_checkpointing == "offload"

    def test_unsloth_wraps_the_model(self, lf):
        text = TRAIN + "use_unsloth: true\nquantization_bit: 4\n"
        job = lf.job(text)
        assert (job.activation_checkpointing, job.adapter.kernels) == ("offload", ["qkv", "o", "mlp"])
        assert (job.loss.kernel, job.versions["unsloth"]) == ("unsloth", "2026.8.19")
        assert (job.liger_kernels, job.liger_parts) == (True, ["norm", "rope"])
        assert job.origins["loss.kernel"].key == "use_unsloth"
        assert lf.job(text + "lora_dropout: 0.1\n").adapter.kernels == []
        assert lf.job(text.replace("stage: sft", "stage: dpo")).loss.kernel == "torch"
        assert lf.job(text.replace("true\nq", "false\nq")).activation_checkpointing == "full"

    def test_stage_pt_packs(self, lf):
        job = lf.job(TRAIN.replace("sft", "pt"))
        assert (job.objective, job.packing) == ("pretrain", True)
        assert lf.job(TRAIN + "neat_packing: true\n").packing is True
        assert lf.job(TRAIN.replace("sft", "pt") + "packing: false\n").packing is False

    def test_label_smoothing_takes_whole_logits_from_liger_too(self, lf):
        assert lf.job(TRAIN + "enable_liger_kernel: true\nlabel_smoothing_factor: 0.1\n").loss.kernel == "smoothed"
        assert lf.job(TRAIN + "label_smoothing_factor: 0.0\n").loss.kernel == "torch"

    def test_liger_leaves_the_logits_to_preference_stages(self, lf):
        assert lf.job(TRAIN + "enable_liger_kernel: true\n").loss.kernel == "liger"
        job = lf.job(TRAIN.replace("sft", "dpo") + "enable_liger_kernel: true\n")
        assert (job.loss.kernel, job.liger_kernels) == ("torch", True)

    def test_reference_models(self, lf):
        dpo = TRAIN.replace("sft", "dpo")
        assert lf.job(dpo).rl.reference_model is False
        assert lf.job(dpo + "finetuning_type: full\n").rl.reference_model is True
        assert lf.job(dpo + "ref_model: a/b\n").rl.reference_model is True
        simpo = lf.job(dpo + "finetuning_type: full\npref_loss: simpo\n")
        assert (simpo.objective, simpo.rl.reference_model) == ("simpo", False)
        assert lf.job(TRAIN.replace("sft", "ppo") + "reward_model: a/r\n").rl.reward_model == "a/r"

    @pytest.mark.parametrize(
        ("keys", "name", "rank", "in_backward"),
        [
            ("use_galore: true\noptim: adamw_torch", "galore_adamw", 16, False),
            ("use_galore: true\noptim: paged_adamw_8bit\ngalore_rank: 64", "galore_adamw_8bit", 64, False),
            ("use_galore: true\ngalore_layerwise: true", "galore_adamw_layerwise", 16, True),
            ("use_apollo: true\napollo_rank: 128", "apollo_adamw", 128, False),
            ("use_badam: true", "badam", None, False),
            ("use_muon: true", "muon", None, False),
        ],
    )
    def test_switches_for_optimizers(self, lf, keys, name, rank, in_backward):
        optimizer = lf.job(TRAIN + f"finetuning_type: full\n{keys}\n").optimizer
        assert (optimizer.name, optimizer.rank, optimizer.in_backward) == (name, rank, in_backward)

    def test_a_multimodal_model_keeps_its_tower_frozen(self, lf, monkeypatch):
        monkeypatch.setattr(llamafactory_method, "find_model", lambda *_: Multimodal())
        full = TRAIN + "finetuning_type: full\n"
        assert lf.job(full).trainable == [r"^(?!(?:model\.visual)\.)"]
        assert lf.job(full + "freeze_vision_tower: false\n").trainable is None

    def test_shipped_deepspeed_files_are_known(self, lf):
        reading = lf.read(TRAIN + "bf16: true\ndeepspeed: examples/deepspeed/ds_z3_offload_config.json\n")
        zero = reading.job.parallelism.zero
        assert (zero.stage, zero.offload_optimizer.device, zero.offload_parameters.device) == (3, "cpu", "cpu")
        assert reading.job.hardware.gpus == 8
        assert reading.problems == []


class TestMegatron:
    TEXT = TRAIN + "finetuning_type: full\nbf16: true\ntensor_model_parallel_size: 2\npipeline_model_parallel_size: 4\n"

    def test_degrees_and_main_parameters(self, lf):
        job = lf.job(self.TEXT + "use_distributed_optimizer: true\nrecompute_granularity: full\n")
        assert (job.parallelism.tensor, job.parallelism.pipeline, job.hardware.gpus) == (2, 4, 8)
        assert (job.weights.dtype, job.precision.master_weights, job.precision.autocast) == ("bfloat16", True, None)
        assert (job.parallelism.zero.stage, job.activation_checkpointing) == (1, "full")
        assert lf.job(self.TEXT, gpus=32).hardware.gpus == 32

    def test_its_keys_are_not_unknown(self, lf):
        assert lf.problems(self.TEXT + "bias_activation_fusion: true\n", "unknown-key") == []


class TestInference:
    def test_vllm(self, lf):
        job = lf.job(CHAT + "infer_backend: vllm\nvllm_gpu_util: 0.9\nadapter_name_or_path: saves/x\n", gpus=2)
        inference = job.inference
        assert (job.kind, inference.engine, inference.max_model_len, inference.gpu_memory_utilization) == (
            "inference",
            "vllm",
            4096,
            0.9,
        )
        assert (inference.enable_lora, inference.max_lora_rank, job.parallelism.tensor) == (True, 32, 2)

    def test_transformers_chats_one_at_a_time(self, lf):
        inference = lf.job(CHAT + "infer_backend: huggingface\n").inference
        assert (inference.engine, inference.batch_size, inference.prompt_length, inference.new_tokens) == (
            "transformers",
            1,
            2048,
            1024,
        )

    def test_evaluation_scores_one_token(self, lf):
        inference = lf.job(
            "model_name_or_path: a/b\nfinetuning_type: full\ntask: mmlu\nbatch_size: 16\ntemplate: x\n"
        ).inference
        assert (inference.batch_size, inference.new_tokens) == (16, 1)

    def test_prediction_takes_the_evaluation_batch(self, lf):
        text = TRAIN.replace("do_train", "do_predict") + "per_device_eval_batch_size: 2\npredict_with_generate: true\n"
        job = lf.job(text)
        assert (job.kind, job.inference.batch_size) == ("inference", 2)

    @pytest.mark.parametrize(
        ("device", "engine"), [("", "cpu"), ("export_device: cpu\n", "cpu"), ("export_device: auto\n", "transformers")]
    )
    def test_an_export_runs_on_the_cpu_unless_told_otherwise(self, lf, device, engine):
        assert lf.job(CHAT + "export_dir: out\n" + device).inference.engine == engine


class TestKeys:
    def test_a_misspelt_key(self, lf):
        found = lf.problems(TRAIN + "cutof_len: 4096\n", "unknown-key")
        assert [(item.key, item.values["suggestion"], item.values["treatment"]) for item in found] == [
            ("cutof_len", "cutoff_len", "refused")
        ]

    def test_a_removed_key(self, lf):
        found = lf.problems(TRAIN + "evaluation_strategy: steps\n", "deprecated-key")
        assert [(item.key, item.values["replacement"]) for item in found] == [("evaluation_strategy", "eval_strategy")]


def test_experts_in_main_memory_are_not_estimated(lf):
    job = lf.job(TRAIN + "use_kt: true\n")
    assert job.model is None
    assert "main memory" in job.origins["model"].note


@pytest.mark.parametrize(("extra", "pixels"), [("", 768 * 768), ("image_max_pixels: 262144\n", 262144)])
def test_images_have_at_most_so_many_pixels(lf, extra, pixels):
    job = lf.job(TRAIN.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-VL-7B-Instruct") + extra)
    assert (job.images, job.image_pixels) == (None, pixels)


def test_what_the_former_program_does_when_nothing_is_said(tmp_path):
    """`src/train_bash.py` is of releases up to 0.7.0: unfused attention, 1,024 tokens, the optimizer of the time."""
    words = "--stage sft --do_train --model_name_or_path x/y --finetuning_type lora --template llama2 --output_dir o"
    found = {}
    for program in ("src/train_bash.py", "src/train_bash.py --flash_attn", "src/train.py"):
        (tmp_path / "run.sh").write_text(f"python {program} {words}\n")
        (opened,) = open_jobs(recognise_file(str(tmp_path / "run.sh")), Settings(root=str(tmp_path))).opened
        job = opened.reading.job
        found[program] = (job.attention, job.sequence_length, job.optimizer.name, job.versions["transformers"])
    former = (1024, "adamw_torch", "4.39.3")
    assert found["src/train_bash.py"] == ("eager", *former)
    assert found["src/train_bash.py --flash_attn"] == ("flash_attention_2", *former)
    assert found["src/train.py"] == ("sdpa", 2048, "adamw_torch_fused", "5.6.0")


@pytest.mark.parametrize(("program", "whole"), [("train_bash.py", True), ("train.py", False)])
def test_one_process_on_several_gpus_until_it_was_refused(opened, program, whole):
    """llamafactory 0.8.2 raises "Please launch distributed training with `llamafactory-cli` or `torchrun`"."""
    flags = "--stage sft --do_train --model_name_or_path Qwen/Qwen1.5-0.5B --template qwen --finetuning_type lora"
    job = opened("run.sh", f"CUDA_VISIBLE_DEVICES=0,1 python src/{program} {flags} --output_dir out\n").reading.job
    assert job.hardware.gpus == 2
    assert job.parallelism.one_process is whole


def test_oft_has_blocks_instead_of_a_rank(lf):
    adapter = lf.job(TRAIN + "finetuning_type: oft\noft_block_size: 64\nlora_target: q_proj\n").adapter
    assert (adapter.type, adapter.options, adapter.targets) == ("oft", {"oft_block_size": 64}, "all-linear")


@pytest.mark.parametrize(("release", "dtype"), [("0.9.3", "float16"), ("0.9.5", None)])
def test_the_dtype_a_model_is_loaded_in_by_release(bench, release, dtype):
    text = "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_target: all\nfp16: true\n"
    job = bench("llamafactory").job(text, versions={"llamafactory": release})
    assert (job.weights.dtype, job.precision.autocast) == (dtype, "float16")


@pytest.mark.parametrize(("release", "dtype"), [("0.9.3", "bfloat16"), ("0.9.5", None)])
def test_pure_bf16_loaded_the_model_in_it_before_0_9_4(bench, release, dtype):
    text = "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: full\npure_bf16: true\n"
    job = bench("llamafactory").job(text, versions={"llamafactory": release})
    assert (job.weights.dtype, job.precision.autocast) == (dtype, None)
