import pytest

from gpulint.formats.axolotl import parallel as axolotl_parallel
from gpulint.formats.axolotl.format import TABLE
from gpulint.formats.axolotl.parallel import DEEPSPEED_FILES
from gpulint.formats.core.bindings.changes import wanted_keys
from gpulint.formats.core.format import Project
from gpulint.formats.core.references import find
from gpulint.source.read import parse

BASE = """\
base_model: meta-llama/Llama-3.1-8B  # the model
datasets:
  - path: a/b
    type: alpaca

micro_batch_size: 4
sequence_len: 4096   # tokens
flash_attention: true
bf16: true
"""


@pytest.fixture
def ax(bench):
    return bench("axolotl")


@pytest.fixture(autouse=True)
def known_hidden_size(monkeypatch):
    monkeypatch.setattr(axolotl_parallel, "hidden_size", lambda *_: 4096)


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_size": 1, "gradient_accumulation_steps": 4},
        {"sequence_length": 2048},
        {"packing": True},
        {"activation_checkpointing": "full"},
        {"activation_checkpointing": "offload"},
        {"activation_checkpointing": "none"},
        {"optimizer.name": "adamw_8bit"},
        {"loss.kernel": "liger"},
        {"loss.kernel": "cut_cross_entropy"},
        {"loss.kernel": "chunked"},
        {"attention": "flash_attention_3"},
        {"attention": "sdpa"},
        {"weights.dtype": "float16", "precision.autocast": "float16"},
        {"method": "lora"},
        {"method": "lora", "weights.quantization.method": "bnb-nf4"},
        {"method": "lora", "weights.quantization.method": "bnb-int8"},
        {"method": "lora", "adapter.r": 64},
        {"parallelism.zero.stage": 1},
        {"parallelism.zero.stage": 3},
        {"parallelism.zero.stage": 2, "parallelism.zero.offload_optimizer.device": "cpu"},
        {"parallelism.zero.stage": 3, "parallelism.zero.offload_parameters.device": "cpu"},
        {"parallelism.fsdp.sharding": "full_shard"},
        {"parallelism.tensor": 2},
        {
            "method": "lora",
            "weights.quantization.method": "bnb-nf4",
            "activation_checkpointing": "full",
            "micro_batch_size": 1,
        },
    ],
)
def test_the_edited_file_is_the_changed_job(ax, changes):
    after, job = ax.change(BASE, changes)
    for path, value in changes.items():
        assert job.get(path) == value, path
    assert "# the model" in after
    assert "    type: alpaca\n" in after


def test_lora_comes_complete(ax):
    after, job = ax.change(BASE, {"method": "lora", "weights.quantization.method": "bnb-nf4"})
    assert after.endswith("adapter: qlora\nload_in_4bit: true\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\n")
    assert (job.adapter.r, job.adapter.targets, job.weights.quantization.method) == (16, "all-linear", "bnb-nf4")


def test_an_adapter_that_is_there_keeps_its_rank(ax):
    text = BASE + "adapter: lora\nlora_r: 128\nlora_target_modules: [q_proj]\n"
    after, job = ax.change(text, {"method": "lora", "weights.quantization.method": "bnb-nf4"})
    assert (job.adapter.r, job.adapter.targets) == (128, ["q_proj"])
    assert "lora_target_linear" not in after


def test_a_plugin_joins_those_that_are_there(ax):
    text = BASE + "plugins:\n  - axolotl.integrations.spectrum.SpectrumPlugin\n"
    after, job = ax.change(text, {"loss.kernel": "liger"})
    assert "SpectrumPlugin" in after
    assert "axolotl.integrations.liger.LigerPlugin" in after
    assert "liger_fused_linear_cross_entropy: true" in after
    assert job.loss.kernel == "liger"


def test_a_plugin_is_not_loaded_twice(ax):
    text = BASE + "plugins:\n  - axolotl.integrations.liger.LigerPlugin\n"
    after, _ = ax.change(text, {"loss.kernel": "liger"})
    assert after.count("LigerPlugin") == 1


def test_one_cross_entropy_takes_the_place_of_another(ax):
    text = BASE + "chunked_cross_entropy: true\n"
    after, job = ax.change(text, {"loss.kernel": "cut_cross_entropy"})
    assert "chunked_cross_entropy" not in after
    assert job.loss.kernel == "cut_cross_entropy"


def test_the_cut_plugin_is_told_to_stand_back(ax):
    text = BASE + "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
    after, job = ax.change(text, {"loss.kernel": "liger"})
    assert "cut_cross_entropy: false" in after
    assert job.loss.kernel == "liger"


def test_preference_losses_have_their_own_switch(ax):
    after, _ = ax.change(BASE + "rl: dpo\n", {"loss.kernel": "liger"})
    assert "dpo_use_liger_kernel: true" in after
    assert "plugins" not in after


def test_attention_replaces_the_old_switch(ax):
    after, _ = ax.change(BASE, {"attention": "flash_attention_3"})
    assert "flash_attention: true" not in after
    assert "attn_implementation: flash_attention_3" in after


def test_zero_replaces_fsdp(ax):
    text = BASE + "fsdp:\n  - full_shard\nfsdp_config:\n  offload_params: true\n"
    after, job = ax.change(text, {"parallelism.zero.stage": 3})
    assert "fsdp" not in after
    assert "stage: 3\n" in after
    assert job.parallelism.fsdp is None


def test_fsdp_replaces_deepspeed(ax):
    text = BASE + "deepspeed: deepspeed_configs/zero1.json\n"
    after, job = ax.change(text, {"parallelism.fsdp.sharding": "full_shard"})
    assert "deepspeed" not in after
    assert (job.parallelism.zero, job.parallelism.fsdp.version, job.parallelism.fsdp.wrap) == (None, 2, "transformer")


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        (
            {"parallelism.zero.stage": 3},
            "config.yaml",
            (
                "deepspeed: {zero_optimization: {stage: 3, overlap_comm: true, contiguous_gradients: true, "
                "stage3_gather_16bit_weights_on_model_save: true, …}, …}"
            ),
        ),
        (
            {"parallelism.zero.param_persistence_threshold": 70_001},
            "ds.json",
            "zero_optimization.stage3_param_persistence_threshold: 70001 in ds.json",
        ),
    ],
)
def test_a_stage_names_another_file_and_a_size_is_written_in_the_project_s_own(ax, changes, place, said):
    own = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    reading = ax.read(BASE + "deepspeed: ds.json\n", files={"ds.json": own})
    assert ax.format.describe(reading, changes) == said
    assert {edit.path for edit in ax.format.edits(reading, changes)} == {place}


def test_a_shipped_file_is_named_where_it_is(ax, tmp_path):
    folder = tmp_path / "deepspeed_configs"
    folder.mkdir()
    (folder / "zero3_bf16.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text(BASE, encoding="utf-8")
    project = Project(str(tmp_path), None, None, None, lambda *_: None)
    reading = ax.format.read(parse(BASE, str(config), "yaml"), project)
    assert ax.format.describe(reading, {"parallelism.zero.stage": 3}) == "deepspeed: deepspeed_configs/zero3_bf16.json"


def test_without_bf16_the_file_that_asks_the_trainer_is_taken(ax):
    text = BASE.replace("bf16: true", "bf16: false\nfp16: true") + "deepspeed: deepspeed_configs/zero1.json\n"
    after, job = ax.change(text, {"parallelism.zero.stage": 3})
    assert "deepspeed_configs/zero3.json" in after
    assert (job.weights.dtype, job.precision.master_weights) == ("float16", True)


def test_offload_from_the_stage_that_is_there(ax):
    text = BASE + "deepspeed: deepspeed_configs/zero3_bf16.json\n"
    after, job = ax.change(text, {"parallelism.zero.offload_parameters.device": "cpu"})
    assert "zero3_bf16_cpuoffload_params.json" in after
    assert job.parallelism.zero.stage == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"parallelism.zero.stage": 3, "parallelism.zero.offload_parameters.device": "nvme"},
        {"parallelism.fsdp.sharding": "hybrid_shard"},
        {"inference.max_model_len": 4096},
        {"method": "lora", "weights.quantization.method": "gptq"},
        {"loss.kernel": "unheard_of"},
        {"micro_batch_size": 1, "inference.max_num_seqs": 1},
    ],
)
def test_what_axolotl_cannot_say(ax, changes):
    assert ax.change(BASE, changes) is None


def test_lengths_and_packing_are_not_for_preference_runs(ax):
    assert ax.change(BASE + "rl: grpo\n", {"sequence_length": 512}) is None
    assert ax.change(BASE + "rl: dpo\n", {"packing": True}) is None


def test_rl_changes(ax):
    text = BASE + "rl: grpo\ntrl:\n  use_vllm: true\n  vllm_mode: colocate\n"
    changes = {"rl.vllm_gpu_memory_utilization": 0.3, "rl.vllm_sleep": True}
    after, job = ax.change(text, changes)
    assert (job.rl.vllm_gpu_memory_utilization, job.rl.vllm_sleep) == (0.3, True)
    assert "vllm:\n  gpu_memory_utilization: 0.3" in after


def test_the_words_for_people(ax):
    reading = ax.read(BASE)
    describe = ax.format.describe
    assert describe(reading, {"method": "lora", "weights.quantization.method": "bnb-nf4"}) == (
        "adapter: qlora, load_in_4bit: true, lora_r: 16, lora_alpha: 32, lora_target_linear: true"
    )
    assert describe(reading, {"attention": "sdpa"}) == "attn_implementation: sdpa, no flash_attention"


def test_every_deepspeed_file_that_is_offered_ships_and_does_what_it_is_offered_for():
    nothing = Project("/nowhere", None, None, None, lambda *_: None)
    for (stage, optimizer, parameters), path in DEEPSPEED_FILES.items():
        root = find(path, "c.yaml", nothing).document.root
        assert root.find("zero_optimization.stage").value.value == stage
        for section, device in (("offload_optimizer", optimizer), ("offload_param", parameters)):
            entry = root.find(f"zero_optimization.{section}.device")
            assert (entry.value.value if entry else "none") == device


def test_a_key_that_is_not_there_is_not_taken_out(ax):
    wanted = wanted_keys(TABLE, ax.read(BASE), {"activation_checkpointing": "full"})
    assert wanted == {"gradient_checkpointing": True}


def test_cut_cross_entropy_wants_a_stated_precision(ax):
    text = BASE.replace("bf16: true\n", "")
    assert "bf16: auto" in ax.change(text, {"loss.kernel": "cut_cross_entropy"})[0]
    assert "bf16: auto" not in ax.change(BASE, {"loss.kernel": "cut_cross_entropy"})[0]


FSDP2 = BASE + "fsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n  activation_checkpointing: true\n"


def test_qlora_under_fsdp2_loads_on_every_rank(ax):
    after, job = ax.change(FSDP2, {"method": "lora", "weights.quantization.method": "bnb-nf4"})
    assert "cpu_ram_efficient_loading: false" in after
    assert job.parallelism.fsdp.cpu_ram_efficient_loading is False


def test_checkpointing_is_switched_off_in_both_places(ax):
    after, job = ax.change(FSDP2, {"activation_checkpointing": "none"})
    assert "  activation_checkpointing: false" in after
    assert job.activation_checkpointing == "none"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (FSDP2, {"optimizer.name": "adamw_8bit"}),
        (BASE + "optimizer: adamw_bnb_8bit\n", {"parallelism.fsdp.sharding": "full_shard"}),
        (BASE + "optimizer: muon\n", {"parallelism.zero.stage": 3}),
        (BASE + "deepspeed: deepspeed_configs/zero1.json\n", {"optimizer.name": "flash_adamw"}),
        (BASE + "tensor_parallel_size: 2\n", {"loss.kernel": "liger"}),
    ],
)
def test_what_axolotl_would_refuse_is_not_offered(ax, text, changes):
    assert ax.change(text, changes) is None


def test_an_8_bit_optimizer_that_fsdp2_takes(ax):
    assert ax.change(FSDP2, {"optimizer.name": "adamw_torch_8bit"})[1].optimizer.name == "adamw_torch_8bit"
