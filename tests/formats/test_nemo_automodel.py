import pytest

from gpulint.formats.core.format import NoJobError
from gpulint.formats.core.registry import recognise
from gpulint.models.lora import NotAdaptable, adapted
from gpulint.models.resolve import resolve
from gpulint.source.read import parse
from gpulint.upstream.stack import Stack

from .origins import TRAINING, missing

RECIPE = """\
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 64
  local_batch_size: 4
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 2
dataset:
  _target_: nemo_automodel.components.datasets.llm.squad.make_squad_dataset
  seq_length: 2048
optimizer:
  _target_: torch.optim.AdamW
  lr: 1.0e-5
"""


@pytest.fixture
def automodel(bench):
    return bench("nemo_automodel")


def test_recognition():
    assert recognise(parse(RECIPE, "a.yaml", "yaml")).name == "nemo_automodel"
    assert (
        recognise(parse("model:\n  _component_: torchtune.models.x\nstep_scheduler: {}\n", "a.yaml", "yaml")).name
        != "nemo_automodel"
    )


def test_a_recipe(automodel):
    job = automodel.job(RECIPE, gpus=16)
    assert job.model == "meta-llama/Llama-3.1-8B"
    assert (job.micro_batch_size, job.gradient_accumulation_steps, job.sequence_length) == (4, 2, 2048)
    assert (job.parallelism.tensor, job.parallelism.fsdp.version) == (2, 2)
    assert job.parallelism.fsdp.mixed_precision.reduce_dtype == "float32"
    assert job.parallelism.fsdp.upcast_trainable is False
    assert (job.optimizer.name, job.optimizer.foreach) == ("adamw_torch", False)
    assert job.loss.kept == "step"
    assert missing(job, [path for path in TRAINING if path != "rl.reference_model"]) == []


def test_one_gpu_divides_nothing(automodel):
    text = RECIPE.replace("  tp_size: 2\n", "")
    assert automodel.job(text, gpus=1).parallelism.fsdp is None
    assert automodel.job(text, gpus=2).parallelism.fsdp is not None


def test_a_drafters_base_model_is_checkpointed_by_a_key_of_its_own(automodel):
    text = RECIPE.replace("distributed:\n", "  base_activation_checkpointing: true\ndistributed:\n")
    assert automodel.job(text).activation_checkpointing == "full"
    assert automodel.job(RECIPE).activation_checkpointing == "none"


def test_sizes_state_the_gpus(automodel):
    job = automodel.job(RECIPE.replace("dp_size: none", "dp_size: 8"))
    assert job.hardware.gpus == 16
    assert job.origins["hardware.gpus"].key == "distributed.dp_size"
    least = automodel.job(RECIPE.replace("tp_size: 2", "tp_size: 8\n  pp_size: 4"))
    assert (least.hardware.gpus, least.origins["hardware.gpus"].kind) == (32, "assumed")


def test_a_pipeline_cuts_the_local_batch(automodel):
    text = RECIPE.replace(
        "  tp_size: 2\n", "  pp_size: 2\n  pipeline: {pp_schedule: interleaved1f1b, pp_microbatch_size: 2}\n"
    )
    job = automodel.job(text)
    assert (job.micro_batch_size, job.parallelism.microbatches) == (2, 2)
    assert job.parallelism.fsdp.reshard_after_forward is False
    assert job.loss.kept is False


@pytest.mark.parametrize(
    ("local", "micro", "rows", "batches", "said"),
    [
        ("12", "pipeline: {pp_microbatch_size: 3}", 3, 4, "distributed.pipeline.pp_microbatch_size"),
        ("12", "pipeline: {}", 1, 12, "step_scheduler.local_batch_size"),
        ("null", "pipeline: {pp_microbatch_size: 3}", 1, 1, "distributed.pipeline.pp_microbatch_size"),
        ("2", "pipeline: {pp_microbatch_size: 3}", 2, 1, "distributed.pipeline.pp_microbatch_size"),
    ],
)
def test_micro_batches_of_a_pipeline_are_said_where_they_are_stated(automodel, local, micro, rows, batches, said):
    text = RECIPE.replace("local_batch_size: 4", f"local_batch_size: {local}")
    job = automodel.job(text.replace("  tp_size: 2\n", f"  pp_size: 2\n  {micro}\n"))
    assert (job.micro_batch_size, job.parallelism.microbatches) == (rows, batches)
    assert job.origins["micro_batch_size"].key == said


@pytest.mark.parametrize(
    ("section", "targets"),
    [
        ("target_modules: '*_proj'", "(?s:.*_proj)"),
        ("target_modules: ['*.query', '*.value']", ["query", "value"]),
        ("match_all_linear: true", "all-linear"),
        ("exclude_modules: ['*.out_proj']", "all-linear"),
        ("dim: 16", "(?s:.*_proj)"),
    ],
)
def test_adapters(automodel, section, targets):
    job = automodel.job(RECIPE + f"peft:\n  {section}\n")
    assert job.method == "lora"
    assert job.adapter.targets == targets
    assert job.adapter.dtype == "bfloat16"


def test_its_own_lora_adapts_what_peft_refuses_to(automodel):
    text = RECIPE.replace("meta-llama/Llama-3.1-8B", "tiiuae/Falcon-H1-0.5B-Base")
    job = automodel.job(text + "peft: {target_modules: '*_proj'}\n")
    model = resolve(job.model)
    assert any("out_proj" in module.name for module in adapted(model, job.adapter, stack=Stack(job)))
    job.framework = None
    with pytest.raises(NotAdaptable):
        adapted(model, job.adapter, stack=Stack(job))


def test_qlora(automodel):
    job = automodel.job(RECIPE + "peft: {dim: 8}\nquantization: {load_in_4bit: true}\n")
    assert (job.weights.quantization.method, job.weights.quantization.double_quant) == ("bnb-nf4", True)
    assert job.weights.quantization.storage_dtype == "bfloat16"


def test_packing_and_frozen_towers(automodel):
    job = automodel.job(
        RECIPE + "packed_sequence: {packed_sequence_size: 8192}\nfreeze_config: {freeze_audio_tower: true}\n"
    )
    assert (job.packing, job.sequence_length) == (True, 8192)
    assert job.trainable == ["^(?!.*(?:vision|visual|image_encoder|audio|speech|sound))"]


def test_a_length_binds_where_rows_are_cut_to_it(automodel):
    assert automodel.job(RECIPE).unstated == ["sequence_length", "hardware.gpus"]
    cut = RECIPE.replace("  seq_length: 2048\n", "  seq_length: 2048\n  truncation: true\n")
    assert automodel.job(cut).unstated == ["hardware.gpus"]
    assert automodel.job(RECIPE.replace("seq_length", "seq_len")).unstated == ["hardware.gpus"]


def test_a_pack_of_pictures_is_filled_to_its_ratio_or_padded(automodel):
    text = RECIPE.replace("  seq_length: 2048\n", "") + "packed_sequence: {pack_size: 4096, packing_ratio: 0.9}\n"
    assert automodel.job(text).sequence_length == 3686
    assert automodel.job(text.replace("0.9", "0.9, collate_max_length: 4096")).sequence_length == 4096
    assert automodel.job(text.replace("pack_size", "packed_sequence_size")).sequence_length == 4096


@pytest.mark.parametrize(
    ("version", "sizes", "dtype"),
    [("0.4.0", "", "bfloat16"), ("0.5.0", "", "float32"), ("0.4.0", "ep_size: 2", "float32")],
)
def test_gradients_were_reduced_in_bfloat16_but_for_experts(automodel, version, sizes, dtype):
    text = RECIPE.replace("  tp_size: 2\n", f"  {sizes}\n" if sizes else "")
    fsdp = automodel.job(text, gpus=8, versions={"nemo-automodel": version}).parallelism.fsdp
    assert fsdp.mixed_precision.reduce_dtype == dtype
    assert (fsdp.experts_unwrapped, fsdp.reshard_after_forward) == (bool(sizes), not sizes)


def test_expert_parallelism_comes_with_its_kernels(automodel):
    assert "flash-linear-attention" in automodel.job(RECIPE.replace("tp_size", "ep_size"), gpus=8).versions
    assert "flash-linear-attention" not in automodel.job(RECIPE, gpus=8).versions


def test_keys(automodel):
    text = RECIPE.replace("local_batch_size", "local_batch_sise").replace("tp_size", "tp_sise")
    found = {item.key: item for item in automodel.problems(text, "unknown-key")}
    assert found["step_scheduler.local_batch_sise"].values["spelling"] == "local_batch_size"
    assert found["distributed.tp_sise"].values["treatment"] == "refused"
    assert found["distributed.tp_sise"].span.line == 11
    assert automodel.problems(RECIPE, "unknown-key") == []


def test_diffusion_is_no_job(automodel):
    with pytest.raises(NoJobError, match="diffusion"):
        automodel.read(RECIPE.replace("TrainFinetuneRecipeForNextTokenPrediction", "TrainDiffusionRecipe"))


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [
        ({"activation_checkpointing": "full"}, "activation_checkpointing", "full"),
        ({"micro_batch_size": 1}, "micro_batch_size", 1),
        ({"sequence_length": 1024}, "sequence_length", 1024),
        ({"method": "lora"}, "adapter.r", 16),
        ({"parallelism.fsdp.offload": True}, "parallelism.fsdp.offload", True),
        ({"loss.kernel": "cut_cross_entropy"}, "loss.kernel", "cut_cross_entropy"),
        ({"parallelism.context": 2}, "parallelism.context", 2),
    ],
)
def test_edits(automodel, changes, path, value):
    _, job = automodel.change(RECIPE, changes, gpus=16)
    assert job.get(path) == value


def test_what_it_cannot_say(automodel):
    assert automodel.change(RECIPE, {"parallelism.zero.stage": 3}) is None
    assert automodel.change(RECIPE.replace("  seq_length: 2048\n", ""), {"sequence_length": 512}) is None


CHUNKED = RECIPE + "loss_fn:\n  _target_: nemo_automodel.components.loss.chunked_ce.ChunkedCrossEntropy\n"


@pytest.mark.parametrize(
    ("version", "loss"),
    [
        ("0.5.0", ("torch", "tiles", None)),
        ("0.6.0", ("chunked", "whole", 32)),
        ("0.7.0", ("chunked", "tiles", 512)),
        (None, ("chunked", "tiles", 512)),
    ],
)
def test_the_chunked_loss_is_that_of_the_release(automodel, version, loss):
    found = automodel.job(CHUNKED, versions={"nemo-automodel": version} if version else {}).loss
    assert (found.kernel, found.logits, found.chunk) == loss


def test_a_stated_chunk(automodel):
    assert automodel.job(CHUNKED + "  chunk_len: 2048\n").loss.chunk == 2048


def test_frozen_experts_in_four_bits(automodel):
    job = automodel.job(RECIPE + "peft:\n  dim: 16\n  expert_weight_format: mxfp4\n")
    assert (job.weights.quantization.method, job.adapter.dtype) == ("mxfp4", "bfloat16")


def test_stated_versions_count(automodel):
    job = automodel.job(RECIPE, versions={"torch": "2.8.0"})
    assert (job.versions["torch"], job.origins["versions.torch"].kind) == ("2.8.0", "derived")
