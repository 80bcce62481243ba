"""Tensor, pipeline and expert parallelism."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.activations import instants
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.states.parameters import elements, parameters
from gpulint.estimator.states.tensor_parallel import divided, stages
from gpulint.job.job import Adapter, Fsdp, Hardware, Inference, Job, Loss, Parallelism
from gpulint.models.resolve import resolve


def plan(**parallelism):
    return Job(parallelism=Parallelism(**parallelism))


def shape_of(job, model, role):
    (tensor,) = [tensor for tensor in model.tensors if tensor.role == role]
    return divided(tensor, job, model)


def test_column_and_row_parallel_layers(llama_8b):
    job = plan(tensor=4)
    assert shape_of(job, llama_8b, "q")[0] == (1024, 4096)
    assert shape_of(job, llama_8b, "k")[0] == (256, 4096)
    assert shape_of(job, llama_8b, "o")[0] == (4096, 1024)
    assert shape_of(job, llama_8b, "gate")[0] == (3584, 4096)
    assert shape_of(job, llama_8b, "down")[0] == (4096, 3584)
    assert shape_of(job, llama_8b, "embedding")[0] == (32064, 4096)
    assert shape_of(job, llama_8b, "head")[0] == (32064, 4096)


def test_norms_are_whole_on_every_rank(llama_8b):
    norms = [t for t in llama_8b.tensors if t.role == "norm"]
    assert {divided(norm, plan(tensor=8), llama_8b)[0] for norm in norms} == {(4096,)}


def test_more_ranks_than_key_heads_keep_one_head_each(llama_8b):
    assert shape_of(plan(tensor=16), llama_8b, "k")[0] == (128, 4096)


def test_expert_parallelism_divides_experts_only(decoder):
    model = decoder(layers=2, experts=8)
    job = plan(expert=4)
    assert shape_of(job, model, "expert_gate_up")[0] == (2, 28672, 4096)
    assert shape_of(job, model, "expert_down")[0] == (2, 4096, 14336)
    assert shape_of(job, model, "q")[0] == (4096, 4096)


def test_the_last_stage_has_the_head_and_as_many_layers_as_any(llama_8b):
    job = plan(pipeline=5)
    assert shape_of(job, llama_8b, "q")[1] == tuple(range(25, 32))
    assert shape_of(job, llama_8b, "embedding")[1] == ()
    assert shape_of(job, llama_8b, "head")[1] is None


def test_a_tied_head_needs_the_embedding_on_the_last_stage(decoder):
    assert shape_of(plan(pipeline=2), decoder(layers=4, tied=True), "embedding")[1] is None


@pytest.mark.parametrize(("engine", "kept"), [("vllm", None), ("sglang", ())])
def test_vllm_makes_the_embedding_of_qwen_moe_on_every_stage(engine, kept):
    """Qwen3-30B-A3B in vLLM 0.10.1 loads as much on the first of two stages as on the last."""
    model = resolve("Qwen/Qwen3-30B-A3B")
    job = Job(kind="inference", inference=Inference(engine=engine), parallelism=Parallelism(pipeline=2))
    assert shape_of(job, model, "embedding")[1] == kept
    assert shape_of(job, model, "head")[1] is None


def test_device_map_spreads_the_layers_of_one_process():
    assert stages(Job(parallelism=Parallelism(device_map="auto"), hardware=Hardware(gpus=4))) == 4
    assert stages(Job(parallelism=Parallelism(device_map="auto", fsdp=Fsdp()), hardware=Hardware(gpus=4))) == 1
    assert stages(Job(parallelism=Parallelism(), hardware=Hardware(gpus=4))) == 1


@given(kind=st.sampled_from(["tensor", "pipeline", "expert"]), exponent=st.integers(1, 7))
def test_more_ranks_never_hold_more(decoder, kind, exponent):
    model = decoder(hidden=64, layers=4, heads=4, kv_heads=2, intermediate=160, vocabulary=1000, experts=4)
    fewer = elements(parameters(plan(**{kind: 2 ** (exponent - 1)}), model))
    more = elements(parameters(plan(**{kind: 2**exponent}), model))
    assert 0 <= more <= fewer


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tensor_parallelism_divides_all_but_the_norms(llama_8b, ranks):
    norms = 65 * 4096
    assert elements(parameters(plan(tensor=ranks), llama_8b)) == (llama_8b.parameters - norms) // ranks + norms


def test_the_adapter_follows_its_layer(llama_8b):
    adapter = Adapter(r=16, targets=["q_proj", "o_proj"])
    job = Job(method="lora", adapter=adapter, parallelism=Parallelism(tensor=4, pipeline=2))
    shapes = {
        item.name.split("self_attn.")[1]: (item.shape, item.copies)
        for item in parameters(job, llama_8b)
        if item.part == "adapter"
    }
    assert shapes == {
        "q_proj.lora_A": ((16, 4096), 16),
        "q_proj.lora_B": ((1024, 16), 16),
        "o_proj.lora_A": ((16, 1024), 16),
        "o_proj.lora_B": ((4096, 16), 16),
    }


def leaf_shape(model, leaf, job):
    return {
        divided(tensor, job, model)[0] for tensor in model.tensors if tensor.leaf == leaf and len(tensor.shape) == 2
    }


def test_latent_up_projections_are_divided_and_down_projections_whole():
    model, job = resolve("deepseek-ai/DeepSeek-V3"), plan(tensor=8)
    assert leaf_shape(model, "q_b_proj", job) == {(128 * 192 // 8, 1536)}
    assert leaf_shape(model, "kv_b_proj", job) == {(128 * 256 // 8, 512)}
    assert leaf_shape(model, "kv_a_proj_with_mqa", job) == {(576, 7168)}


def test_recurrent_layers_are_divided_over_their_channels():
    model, job = resolve("Qwen/Qwen3-Next-80B-A3B-Instruct"), plan(tensor=4)
    assert leaf_shape(model, "in_proj_qkvz", job) == {(12288 // 4, 2048)}
    assert leaf_shape(model, "out_proj", job) == {(2048, 4096 // 4)}


def test_a_tower_whose_heads_do_not_divide_keeps_its_attention_whole():
    """InternViT-6B's 25 heads, as vLLM 0.6.6 logs InternVL3-78B on eight L40S: 21.67 GiB a rank."""
    model = resolve("OpenGVLab/InternVL3-78B")
    job = Job(parallelism=Parallelism(tensor=8), inference=Inference(engine="vllm"), kind="inference")
    leaves = {t.leaf: t for t in model.tensors if t.role == "vision" and t.layers and len(t.shape) == 2}
    assert divided(leaves["q_proj"], job, model)[0] == (3200, 3200)
    assert divided(leaves["fc1"], job, model)[0] == (1600, 3200)


def test_servers_divide_the_vision_tower_and_training_does_not():
    model = resolve("google/gemma-3-27b-it")
    serving = Job(kind="inference", parallelism=Parallelism(tensor=4), inference=Inference(engine="vllm"))
    vision = [tensor for tensor in model.tensors if tensor.role == "vision" and tensor.leaf == "q_proj"]
    matrices = [tensor for tensor in vision if len(tensor.shape) == 2]
    assert matrices
    for tensor in matrices:
        rows, columns = tensor.shape
        assert divided(tensor, serving, model)[0] == (rows // 4, columns)
        assert divided(tensor, plan(tensor=4), model)[0] == tensor.shape


def test_a_loss_over_the_whole_vocabulary_gathers_the_logits(tiny):
    """torch's loss parallel holds four copies of V/t where the whole loss holds three of V; Transformers' plan gathers
    V, V/t beside it."""

    def logits(tensor, **loss):
        plan = Parallelism(tensor=tensor)
        job = Job(micro_batch_size=1, sequence_length=64, parallelism=plan, loss=Loss(**loss))
        return max(x.logits for x in instants(job, tiny))

    whole, part = logits(1), 64 * 1000 // 2
    assert logits(2) == 4 * (whole // 3) // 2
    assert whole <= logits(2, parallel=False) <= whole + 4 * part


def test_sequence_parallelism_keeps_less_of_layers_that_share_keys_and_values():
    def most(sequence):
        plan = Parallelism(tensor=2, sequence=sequence)
        job = Job(micro_batch_size=1, sequence_length=4096, parallelism=plan, loss=Loss("liger"))
        return max(instant.activations for instant in instants(job, resolve("google/gemma-4-31B")))

    assert most(True) < most(False)


def test_sequence_parallelism_is_refused_where_each_layer_has_inputs_of_its_own():
    job = Job(micro_batch_size=1, sequence_length=64, parallelism=Parallelism(tensor=2, sequence=True))
    with pytest.raises(NotEstimable, match="sequence parallelism"):
        instants(job, resolve("google/gemma-3n-E4B"))


def test_an_adapter_of_a_recurrent_mixer_is_divided_as_the_mixer_is():
    """Qwen3.5's in_proj_qkv makes 10,240 features and out_proj reads 6,144: a quarter of them on each of four ranks."""
    model = resolve("Qwen/Qwen3.6-27B")
    job = Job(method="lora", adapter=Adapter(r=8, targets="all-linear"), parallelism=Parallelism(tensor=4))
    shapes = {item.name: item.shape for item in parameters(job, model) if item.part == "adapter"}
    found = {
        side: next(shape for name, shape in shapes.items() if leaf in name and side in name)
        for leaf, side in (("in_proj_qkv", "lora_B"), ("out_proj", "lora_A"))
    }
    assert found == {"lora_B": (2560, 8), "lora_A": (8, 1536)}
