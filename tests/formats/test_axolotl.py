import pytest

from gpulint.formats.axolotl import parallel as axolotl_parallel
from gpulint.formats.core.registry import recognise
from gpulint.hardware.catalogue import find as find_gpu
from gpulint.job.job import Quantization
from gpulint.source.read import parse

BASE = "base_model: meta-llama/Llama-3.1-8B\ndatasets:\n  - {path: a/b, type: alpaca}\n"


@pytest.fixture
def ax(bench):
    return bench("axolotl")


@pytest.fixture(autouse=True)
def known_hidden_size(monkeypatch):
    monkeypatch.setattr(axolotl_parallel, "hidden_size", lambda *_: 4096)


def kind(job, field):
    return job.origins[field].kind


class TestRecognition:
    @pytest.mark.parametrize("key", ["sequence_len: 512", "datasets: []", "adapter: lora", "micro_batch_size: 1"])
    def test_base_model_and_one_of_its_companions(self, key):
        assert recognise(parse(f"base_model: m\n{key}\n", "c.yaml", "yaml")).name == "axolotl"

    @pytest.mark.parametrize(
        "text",
        [
            "base_model: m\n",
            "base_model: m\nmerge_method: slerp\nadapter: x\n",
            "- base_model: m\n",
            "learning_rate: 1\n",
        ],
    )
    def test_others_are_left_alone(self, text):
        found = recognise(parse(text, "c.yaml", "yaml"))
        assert found is None or found.name != "axolotl"


class TestDefaults:
    def test_a_bare_config_is_a_bf16_full_fine_tune_of_512_tokens(self, ax):
        job = ax.job(BASE)
        assert (job.model, job.objective, job.method, job.adapter) == ("meta-llama/Llama-3.1-8B", "sft", "full", None)
        assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (1, 1, 512)
        assert (job.weights.dtype, job.precision.autocast, job.precision.master_weights) == (
            "bfloat16",
            "bfloat16",
            False,
        )
        assert (job.optimizer.name, job.activation_checkpointing, job.attention) == (
            "adamw_torch_fused",
            "none",
            "sdpa",
        )
        assert (job.loss.kernel, job.packing, job.hardware.gpus) == ("torch", False, 1)

    def test_every_memory_field_says_where_it_comes_from(self, ax):
        job = ax.job(BASE)
        for field in (
            "model", "weights.dtype", "weights.quantization", "method", "adapter", "objective", "precision.autocast",
            "precision.master_weights", "precision.gradients", "optimizer.name", "micro_batch_size",
            "gradient_accumulation_steps", "sequence_length", "packing", "padded", "activation_checkpointing",
            "reentrant", "attention", "loss.kernel", "liger_kernels", "compile", "evaluation.micro_batch_size",
            "parallelism.tensor", "parallelism.context", "parallelism.zero", "parallelism.fsdp", "hardware.gpus",
            "versions",
        ):  # fmt: skip
            assert str(job.origins[field]), field
        assert job.origins["sequence_length"].note == "default of axolotl 0.19.0"
        assert kind(job, "hardware.gpus") == "assumed"

    def test_the_span_of_a_value_is_that_of_its_key(self, ax):
        origin = ax.job(BASE + "sequence_len: 4096\n").origins["sequence_length"]
        assert (origin.kind, origin.key, origin.span.line, origin.span.column) == ("file", "sequence_len", 4, 15)


class TestPrecision:
    @pytest.mark.parametrize(
        ("keys", "weights", "autocast"),
        [
            ("bf16: true", "bfloat16", "bfloat16"),
            ("bf16: false\nfp16: true", "float16", "float16"),
            ("bf16: false", "float32", None),
            ("bf16: false\nfloat16: true", "float16", None),
            ("bf16: false\nbfloat16: true", "bfloat16", "bfloat16"),
            ("fp16: true", "float16", "float16"),
            ("fp16: false", "bfloat16", "bfloat16"),
        ],
    )
    def test_resolve_dtype(self, ax, keys, weights, autocast):
        job = ax.job(BASE + keys + "\n")
        assert (job.weights.dtype, job.precision.autocast) == (weights, autocast)

    def test_auto_means_fp16_on_a_gpu_without_bf16(self, ax):
        job = ax.job(BASE + "bf16: auto\n", gpu=find_gpu("v100"))
        assert (job.weights.dtype, job.precision.autocast) == ("float16", "float16")

    def test_auto_without_a_gpu_is_taken_for_bf16_and_says_so(self, ax):
        assert "taken to be" in ax.job(BASE + "bf16: auto\n").origins["weights.dtype"].note


class TestAdapters:
    QLORA = BASE + "adapter: qlora\nload_in_4bit: true\nlora_r: 32\nlora_alpha: 16\nlora_target_linear: true\n"

    def test_qlora_is_nf4_with_double_quantisation(self, ax):
        job = ax.job(self.QLORA)
        assert job.weights.quantization == Quantization("bnb-nf4", 4.0, double_quant=True, storage_dtype="bfloat16")
        assert (job.method, job.adapter.type, job.adapter.r, job.adapter.targets) == ("lora", "lora", 32, "all-linear")
        assert (job.adapter.alpha, job.adapter.dtype, job.adapter.prepare_kbit) == (16.0, None, False)

    def test_bnb_config_kwargs_override(self, ax):
        text = self.QLORA + "bnb_config_kwargs:\n  bnb_4bit_quant_type: fp4\n  bnb_4bit_use_double_quant: false\n"
        quantization = ax.job(text).weights.quantization
        assert (quantization.method, quantization.double_quant) == ("bnb-fp4", False)

    def test_8_bit_lora(self, ax):
        job = ax.job(BASE + "adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n")
        assert (job.weights.quantization.method, job.adapter.targets) == ("bnb-int8", ["q_proj", "v_proj"])

    def test_experts_are_packed_where_asked(self, ax):
        eight = BASE + "adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_target_linear: true\n"
        for text in (self.QLORA, eight):
            assert not ax.job(text).weights.quantization.experts
            job = ax.job(text + "quantize_moe_experts: true\n")
            assert job.weights.quantization.experts
            assert job.origins["weights.quantization.experts"].key == "quantize_moe_experts"

    def test_lora_with_4_bits_is_not_quantised_and_says_so(self, ax):
        text = BASE + "adapter: lora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\n"
        job = ax.job(text)
        assert (job.weights.quantization, job.weights.dtype) == (None, "float32")
        (problem,) = ax.problems(text, "contradiction")
        assert (problem.key, problem.values["other"]) == ("load_in_4bit", "adapter: lora")

    def test_a_checkpoint_quantised_already_is_left_alone(self, ax):
        text = (
            BASE.replace("meta-llama/Llama-3.1-8B", "unsloth/Llama-3.1-8B-bnb-4bit")
            + "adapter: lora\nload_in_4bit: true\n"
        )
        assert ax.problems(text, "contradiction") == []

    def test_embeddings_stay_float32_when_their_upcast_is_skipped(self, ax):
        assert ax.job(self.QLORA + "embeddings_skip_upcast: true\n").adapter.prepare_kbit is False

    def test_the_rest_of_an_adapter(self, ax):
        text = self.QLORA + (
            "peft_use_dora: true\nlora_modules_to_save: [embed_tokens, lm_head]\npeft_layers_to_transform: [0, 1]\n"
            "lora_rank_pattern: {q_proj: 64}\nlora_dropout: 0.05\npeft_autocast_adapter_dtype: false\n"
        )
        adapter = ax.job(text).adapter
        assert (adapter.type, adapter.modules_to_save, adapter.layers) == ("dora", ["embed_tokens", "lm_head"], [0, 1])
        assert (adapter.rank_pattern, adapter.dropout, adapter.dtype) == ({"q_proj": 64}, 0.05, "bfloat16")

    def test_a_missing_rank_is_assumed(self, ax):
        job = ax.job(BASE + "adapter: lora\nlora_target_linear: true\n")
        assert (job.adapter.r, kind(job, "adapter.r")) == (8, "assumed")

    def test_a_regular_expression_stays_one(self, ax):
        assert (
            ax.job(BASE + "adapter: lora\nlora_r: 8\nlora_target_modules: 'model.*(q|v)_proj'\n").adapter.targets
            == "model.*(q|v)_proj"
        )

    def test_unfrozen_parameters(self, ax):
        job = ax.job(BASE + "unfrozen_parameters: ['^lm_head.weight$']\n")
        assert (job.method, job.trainable, job.reentrant) == ("freeze", ["^lm_head.weight$"], False)


class TestTraining:
    def test_batch_size_gives_the_accumulation(self, ax):
        job = ax.job(BASE + "micro_batch_size: 2\nbatch_size: 16\n")
        assert (job.micro_batch_size, job.gradient_accumulation_steps) == (2, 8)
        assert ax.job(BASE + "micro_batch_size: 2\ngradient_accumulation_steps: 4\n").gradient_accumulation_steps == 4

    @pytest.mark.parametrize(
        ("keys", "packing", "padded"),
        [
            ("sample_packing: true\nmicro_batch_size: 4", True, False),
            ("micro_batch_size: 4", False, True),
            ("micro_batch_size: 1", False, False),
            ("micro_batch_size: 1\npad_to_sequence_len: true", False, True),
        ],
    )
    def test_padding(self, ax, keys, packing, padded):
        job = ax.job(BASE + keys + "\n")
        assert (job.packing, job.padded) == (packing, padded)

    @pytest.mark.parametrize(
        ("keys", "checkpointing", "reentrant"),
        [
            ("gradient_checkpointing: true", "full", True),
            ("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}", "full", False),
            ("gradient_checkpointing: true\nrl: dpo", "full", False),
            ("gradient_checkpointing: offload", "offload", True),
            ("gradient_checkpointing: true\nactivation_offloading: legacy", "offload", True),
            ("activation_offloading: true", "none", True),
            ("gradient_checkpointing: true\nselective_checkpointing: true", "selective", True),
            ("gradient_checkpointing: false", "none", True),
        ],
    )
    def test_checkpointing(self, ax, keys, checkpointing, reentrant):
        job = ax.job(BASE + keys + "\n")
        assert (job.activation_checkpointing, job.reentrant) == (checkpointing, reentrant)

    @pytest.mark.parametrize(
        ("keys", "attention"),
        [
            ("attn_implementation: flash_attention_2", "flash_attention_2"),
            ("attn_implementation: kernels-community/flash-attn3@v1", "flash_attention_3"),
            ("flash_attention: true", "flash_attention_2"),
            ("flash_attention: true\nxformers_attention: true", "xformers"),
            ("flash_attention: false\nsdp_attention: true", "sdpa"),
            ("flex_attention: true", "flex"),
            ("eager_attention: true", "eager"),
        ],
    )
    def test_attention(self, ax, keys, attention):
        assert ax.job(BASE + keys + "\n").attention == attention

    LIGER = "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
    CUT = "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"

    @pytest.mark.parametrize(
        ("keys", "kernel"),
        [
            (LIGER + "liger_fused_linear_cross_entropy: true", "liger"),
            (LIGER + "liger_rope: true", "torch"),
            ("liger_fused_linear_cross_entropy: true", "torch"),
            (CUT, "cut_cross_entropy"),
            (CUT + "cut_cross_entropy: true", "cut_cross_entropy"),
            (CUT + "cut_cross_entropy: false", "torch"),
            ("cut_cross_entropy: true", "torch"),
            ("chunked_cross_entropy: true", "chunked"),
            ("rl: dpo\ndpo_use_liger_kernel: true", "liger"),
            ("rl: grpo\ntrl: {use_liger_loss: true}", "liger"),
        ],
    )
    def test_a_loss_kernel_needs_its_plugin(self, ax, keys, kernel):
        assert ax.job(BASE + keys + "\n").loss.kernel == kernel

    def test_chunks_are_pieces_of_the_sequence(self, ax):
        text = BASE + "sequence_len: 4096\nmicro_batch_size: 2\nchunked_cross_entropy: true\n"
        assert ax.job(text).loss.chunk == 1024
        assert ax.job(text + "chunked_cross_entropy_num_chunks: 16\n").loss.chunk == 512

    def test_liger_kernels_need_the_plugin_too(self, ax):
        assert ax.job(BASE + self.LIGER + "liger_rms_norm: true\n").liger_kernels is True
        assert ax.job(BASE + "liger_rms_norm: true\n").liger_kernels is False

    def test_a_key_whose_plugin_is_missing_is_reported(self, ax):
        (problem,) = ax.problems(BASE + "liger_rms_norm: true\n", "unknown-key")
        assert problem.values["plugin"].endswith(".LigerPlugin")

    def test_foreign_plugins_may_bring_any_key(self, ax):
        text = BASE + "plugins: [my_company.Plugin]\nwhat_it_reads: 1\ntrl: {num_generation: 2}\n"
        assert [problem.key for problem in ax.problems(text, "unknown-key")] == ["trl.num_generation"]

    @pytest.mark.parametrize(
        ("keys", "batch"),
        [
            ("val_set_size: 0.05\nevals_per_epoch: 2\nmicro_batch_size: 3", 3),
            ("val_set_size: 0.05\neval_steps: 10\neval_batch_size: 8", 8),
            ("val_set_size: 0.05\neval_strategy: epoch", 1),
            ("val_set_size: 0.05", None),
            ("val_set_size: 0.05\neval_strategy: 'no'", None),
            ("val_set_size: 0.0\nevals_per_epoch: 2", None),
            ("test_datasets: [{path: c/d}]\neval_steps: 10", 1),
        ],
    )
    def test_evaluation_needs_data_and_a_schedule(self, ax, keys, batch):
        assert ax.job(BASE + keys + "\n").evaluation.micro_batch_size == batch

    @pytest.mark.parametrize(
        ("keys", "objective"),
        [
            ("rl: ipo", "dpo"),
            ("rl: kto", "kto"),
            ("rl: orpo", "orpo"),
            ("rl: gdpo", "grpo"),
            ("reward_model: true", "reward"),
            ("pretraining_dataset: [{path: a}]", "pretrain"),
        ],
    )
    def test_objectives(self, ax, keys, objective):
        assert ax.job(BASE + keys + "\n").objective == objective


class TestPreferencesAndRl:
    def test_a_full_dpo_keeps_a_reference(self, ax):
        assert ax.job(BASE + "rl: dpo\n").rl.reference_model is True
        assert ax.job(BASE + "rl: dpo\nprecompute_ref_log_probs: true\n").rl.reference_model is False
        assert ax.job(BASE + "rl: dpo\nadapter: lora\nlora_r: 8\n").rl.reference_model is False

    def test_grpo_counts_and_lengths(self, ax):
        text = BASE + "rl: grpo\ntrl: {num_generations: 4, max_completion_length: 1024, use_vllm: true}\n"
        job = ax.job(text)
        assert (job.rl.generations, job.rl.completion_length, job.rl.prompt_length) == (4, 1024, 512)
        assert (job.sequence_length, job.rl.vllm, job.rl.reference_model) == (1536, "server", False)
        assert kind(job, "rl.prompt_length") == "assumed"

    def test_colocated_vllm_takes_its_share(self, ax):
        text = BASE + "rl: grpo\nmax_prompt_len: 256\ntrl: {use_vllm: true, vllm_mode: colocate, beta: 0.04}\n"
        job = ax.job(text)
        assert (job.rl.vllm, job.rl.vllm_gpu_memory_utilization, job.rl.vllm_sleep) == ("colocate", 0.9, False)
        assert job.rl.reference_model is True
        assert ax.job(text + "vllm: {gpu_memory_utilization: 0.3}\n").rl.vllm_gpu_memory_utilization == 0.3


class TestSharding:
    def test_a_shipped_deepspeed_file_is_known(self, ax):
        job = ax.job(BASE + "deepspeed: deepspeed_configs/zero3_bf16.json\n")
        zero = job.parallelism.zero
        assert (zero.stage, zero.max_live_parameters, zero.reduce_bucket_size) == (3, 0, 4096 * 4096)
        assert (job.weights.dtype, job.precision.autocast, job.precision.master_weights) == ("bfloat16", None, True)
        origin = job.origins["parallelism.zero.stage"]
        assert (origin.kind, origin.key, origin.span.line) == ("file", "deepspeed", 4)
        assert "axolotl 0.19.0 ships" in origin.note
        assert (job.hardware.gpus, kind(job, "hardware.gpus")) == (8, "assumed")

    def test_a_file_of_the_project_has_its_own_places(self, ax):
        files = {"ds.json": '{"zero_optimization": {\n"stage": 2}, "train_micro_batch_size_per_gpu": 9}'}
        reading = ax.read(BASE + "deepspeed: ds.json\nmicro_batch_size: 2\n", files=files)
        origin = reading.job.origins["parallelism.zero.stage"]
        assert (reading.job.parallelism.zero.stage, origin.file, origin.span.line) == (2, "ds.json", 2)
        assert reading.references["deepspeed"].path == "ds.json"
        (problem,) = (item for item in reading.problems if item.kind == "contradiction")
        assert (problem.path, problem.values["value"], problem.values["other"]) == (
            "ds.json",
            "9",
            "micro_batch_size: 2",
        )

    @pytest.mark.parametrize(
        ("name", "stage", "device"),
        [("my_zero1.json", 1, "none"), ("ds_z3_offload.json", 3, "cpu"), ("ds.json", 3, "none")],
    )
    def test_a_missing_file_is_reported_and_what_stands_in_is_assumed(self, ax, name, stage, device):
        text = BASE + f"deepspeed: {name}\n"
        zero = ax.job(text).parallelism.zero
        assert (zero.stage, zero.offload_optimizer.device) == (stage, device)
        assert kind(ax.job(text), "parallelism.zero.stage") == "assumed"
        (problem,) = ax.problems(text, "unresolved-reference")
        assert (problem.key, problem.values["reference"]) == ("deepspeed", name)
        assert f"stage {stage}" in problem.values["assumption"]

    def test_the_trainers_defaults_count_too(self, ax):
        files = {"ds.json": '{"gradient_clipping": 0.5, "bf16": {"enabled": "auto"}}'}
        (problem,) = ax.problems(BASE + "deepspeed: ds.json\n", "contradiction", files=files)
        assert (problem.key, problem.values["other"]) == ("gradient_clipping", "max_grad_norm: 1 (its default)")

    def test_a_blank_leaves_the_stage_open(self, ax):
        reading = ax.read(BASE + "deepspeed: ${DEEPSPEED}\n")
        assert {"parallelism.zero.stage", "hardware.gpus"} <= set(reading.job.unstated)
        assert [item for item in reading.problems if item.kind != "deprecated-key"] == []

    def test_an_inline_config(self, ax):
        job = ax.job(BASE + "deepspeed:\n  zero_optimization: {stage: 1}\n  bf16: {enabled: true}\n")
        assert (job.parallelism.zero.stage, job.origins["parallelism.zero.stage"].key) == (
            1, "deepspeed.zero_optimization.stage",
        )  # fmt: skip

    def test_unversioned_fsdp_is_version_1_and_upcasts(self, ax):
        text = BASE + (
            "fsdp: [full_shard, auto_wrap, offload]\nfsdp_config:\n  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
            "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  fsdp_use_orig_params: false\n"
        )
        job = ax.job(text, gpus=4)
        fsdp = job.parallelism.fsdp
        assert (fsdp.version, fsdp.sharding, fsdp.wrap, fsdp.offload) == (1, "full_shard", "transformer", True)
        assert (fsdp.upcast_trainable, fsdp.use_orig_params, fsdp.layer_classes) == (True, False, ["LlamaDecoderLayer"])
        assert (fsdp.mixed_precision.param_dtype, fsdp.mixed_precision.reduce_dtype) == ("bfloat16", "bfloat16")
        assert (job.parallelism.zero, job.hardware.gpus, job.precision.autocast) == (None, 4, "bfloat16")

    def test_fsdp2_shards_packed_weights_from_015_on(self, ax):
        text = BASE + "fsdp_version: 2\nfsdp_config: {offload_params: false}\n"
        assert ax.job(text).parallelism.fsdp.shards_packed
        assert not ax.job(text.replace("version: 2", "version: 1")).parallelism.fsdp.shards_packed
        assert not ax.job(text, versions={"axolotl": "0.14.0"}).parallelism.fsdp.shards_packed

    def test_fsdp2(self, ax):
        text = BASE + "fsdp_version: 2\nfsdp_config: {reshard_after_forward: false, activation_checkpointing: true}\n"
        job = ax.job(text)
        assert (job.parallelism.fsdp.version, job.parallelism.fsdp.reshard_after_forward) == (2, False)
        assert job.activation_checkpointing == "full"
        assert job.origins["parallelism.fsdp.version"].key == "fsdp_version"

    def test_keys_that_axolotl_drops_have_no_effect(self, ax):
        text = BASE + "fsdp_config: {sharding_strategy: NO_SHARD, forward_prefetch: true}\n"
        fsdp = ax.job(text).parallelism.fsdp
        assert (fsdp.sharding, fsdp.forward_prefetch) == ("full_shard", False)
        assert {problem.key for problem in ax.problems(text, "unknown-key")} == {
            "fsdp_config.sharding_strategy", "fsdp_config.forward_prefetch",
        }  # fmt: skip

    def test_full_precision_fsdp_upcasts_nothing(self, ax):
        assert (
            ax.job(BASE + "bf16: false\nfsdp_config: {offload_params: true}\n").parallelism.fsdp.upcast_trainable
            is False
        )

    def test_deepspeed_and_the_old_fsdp_list_exclude_each_other(self, ax):
        text = BASE + "fsdp: [full_shard]\ndeepspeed: deepspeed_configs/zero1.json\n"
        assert [problem.key for problem in ax.problems(text, "contradiction")] == ["deepspeed"]


class TestWorldSize:
    def test_given_counts_win(self, ax):
        text = BASE + "dp_shard_size: 4\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config: {}\n"
        assert ax.job(text, gpus=16).hardware.gpus == 16

    def test_degrees_of_parallelism_state_a_count(self, ax):
        text = (
            BASE + "dp_shard_size: 4\ntensor_parallel_size: 2\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n"
        )
        job = ax.job(text)
        assert (job.hardware.gpus, job.parallelism.tensor, kind(job, "hardware.gpus")) == (8, 2, "file")

    def test_hybrid_sharding(self, ax):
        text = BASE + "dp_shard_size: 4\ndp_replicate_size: 2\nfsdp_version: 2\nfsdp_config: {offload_params: false}\n"
        job = ax.job(text)
        assert (job.hardware.gpus, job.parallelism.fsdp.shard_size) == (8, 4)

    def test_ray_workers(self, ax):
        assert ax.job(BASE + "use_ray: true\nray_num_workers: 3\n").hardware.gpus == 3

    def test_context_parallelism_under_its_old_name(self, ax):
        assert ax.job(BASE + "sequence_parallel_degree: 2\n").parallelism.context == 2


def test_layer_offloading_is_a_fact_of_the_weights(ax):
    assert ax.job(BASE + "adapter: lora\nlayer_offloading: true\n").weights.frozen_layers_offloaded is True
    assert ax.job(BASE + "adapter: lora\n").weights.frozen_layers_offloaded is False


@pytest.mark.parametrize(
    ("extra", "images", "pixels"),
    [
        ("", 0, None),
        ("processor_type: AutoProcessor\n", None, None),
        ("processor_type: AutoProcessor\nimage_size: 512\n", None, 512 * 512),
        ("processor_type: AutoProcessor\nimage_size: [448, 224]\n", None, 448 * 224),
    ],
)
def test_images_of_a_model_that_reads_them(ax, extra, images, pixels):
    job = ax.job(f"base_model: Qwen/Qwen2.5-VL-7B-Instruct\ndatasets: [{{path: x, type: chat_template}}]\n{extra}")
    assert (job.images, job.image_pixels) == (images, pixels)


def test_images_of_a_model_of_text_are_nobody_s_matter(ax):
    job = ax.job("base_model: NousResearch/Meta-Llama-3-8B\ndatasets: [{path: x, type: alpaca}]\n")
    assert "images" not in job.origins


TEMPLATE = """\
base_model: org/model
adapter: qlora
load_in_4bit: auto
bf16: auto
flash_attention: auto
float16: auto
optimizer: auto
lora_modules_to_save: auto
special_tokens: auto
gradient_checkpointing: unsloth
micro_batch_size: 2
sequence_len: 2048
"""


def test_what_another_program_fills_in_is_not_known(ax):
    reading = ax.read(TEMPLATE)
    job = reading.job
    assert job.weights.quantization.method == "bnb-nf4"  # all that QLoRA may be
    assert not job.adapter.modules_to_save
    assert (job.optimizer.name, job.origins["optimizer.name"].kind) == ("adamw_torch_fused", "assumed")
    assert [item.kind for item in reading.problems if item.kind.startswith("wrong")] == []


def test_one_auto_too_many_is_still_a_wrong_value(ax):
    problems = ax.read(BASE + "float16: auto\n").problems
    assert [item.key for item in problems if item.kind == "wrong-type"] == ["float16"]


class TestLoraKernels:
    LORA = BASE + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"

    @pytest.mark.parametrize(
        ("extra", "expected"),
        [
            ("", ["qkv", "o", "mlp"]),
            ("lora_dropout: 0.05\n", ["qkv", "o", "mlp"]),
            ("lora_mlp_kernel: true\n", ["mlp"]),
            ("lora_qkv_kernel: true\nlora_o_kernel: true\nlora_mlp_kernel: false\n", ["qkv", "o"]),
            ("lora_mlp_kernel: false\n", []),
            ("lora_embedding_kernel: false\n", []),
            ("rl: dpo\n", []),
            ("rl: dpo\nlora_o_kernel: true\n", ["o"]),
            ("load_in_8bit: true\n", []),
            ("trust_remote_code: true\n", []),
            ("trust_remote_code: false\n", ["qkv", "o", "mlp"]),
            ("fsdp_config: {fsdp_version: 2}\n", ["qkv", "o", "mlp"]),
            ("fsdp_config: {fsdp_version: 1}\n", []),
            ("peft_use_dora: true\n", []),
        ],
    )
    def test_what_turns_them_on(self, ax, extra, expected):
        assert ax.job(self.LORA + extra).adapter.kernels == expected

    @pytest.mark.parametrize(
        ("release", "extra", "expected"),
        [
            ("0.9.0", "lora_dropout: 0\n", []),
            ("0.9.1", "", ["qkv", "o", "mlp"]),
            ("0.9.2", "lora_dropout: 0.1\n", []),
            ("0.12.2", "lora_dropout: 0\n", ["qkv", "o", "mlp"]),
            ("0.12.2", "", []),
            ("0.12.2", "lora_dropout: 0.1\n", []),
            ("0.12.2", "lora_dropout: 0.1\nlora_mlp_kernel: true\n", []),
            ("0.12.2", "lora_mlp_kernel: true\n", ["mlp"]),
            ("0.16.1", "lora_dropout: 0.1\n", ["qkv", "o", "mlp"]),
            ("0.14.0", "lora_dropout: 0\ntrust_remote_code: true\n", ["qkv", "o", "mlp"]),
            ("0.15.0", "lora_dropout: 0\ntrust_remote_code: true\n", []),
        ],
    )
    def test_by_release(self, ax, release, extra, expected):
        assert ax.job(self.LORA + extra, versions={"axolotl": release}).adapter.kernels == expected

    def test_the_note_names_the_release_that_runs(self, ax):
        job = ax.job(self.LORA, versions={"axolotl": "0.18.0"})
        assert job.origins["adapter.kernels"].note == "axolotl 0.18.0 turns its LoRA kernels on"

    def test_a_full_fine_tune_has_none(self, ax):
        assert ax.job(BASE).adapter is None


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        ("liger_rope: true\n", ["rope"]),
        ("liger_rms_norm: true\nliger_glu_activation: true\nliger_rope: false\n", ["mlp", "norm"]),
        ("liger_fused_linear_cross_entropy: true\n", None),
    ],
)
def test_the_keys_of_the_liger_plugin_are_one_part_each(ax, keys, parts):
    job = ax.job(BASE + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n" + keys)
    assert job.liger_parts == parts


def test_liger_s_cross_entropy_of_whole_logits(ax):
    job = ax.job(BASE + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_cross_entropy: true\n")
    assert job.loss.kernel == "liger_cross_entropy"
