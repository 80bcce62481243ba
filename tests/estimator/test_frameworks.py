"""Frameworks with their own model code, against traces of that code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpulint.estimator import activations, training
from gpulint.estimator.estimate import NotEstimable
from gpulint.estimator.forward.network import network
from gpulint.estimator.frameworks.frameworks import TRANSFORMERS, framework
from gpulint.estimator.layers.attention.rope import ROPES
from gpulint.estimator.layers.blocks import BLOCKS
from gpulint.estimator.layers.norms import NORMS
from gpulint.estimator.losses.native import LOSSES
from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Adapter, Fsdp, FsdpMixedPrecision, Job, Quantization
from gpulint.models.model import Model
from gpulint.models.resolve import resolve
from gpulint.upstream.stack import NATIVE

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 4,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
LLAMA3 = {**LLAMA, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 128256}
GEMMA = {
    "model_type": "gemma",
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "vocab_size": 256000,
    "hidden_act": "gelu_pytorch_tanh",
    "tie_word_embeddings": False,
}
LLAMA32 = {
    **LLAMA3,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_attention_heads": 24,
    "head_dim": 128,
}


def job(name: str | None, config: dict[str, object], tokens: int, batch: int = 1) -> Job:
    made = Job(model=dict(config), framework=name, micro_batch_size=batch, sequence_length=tokens, attention="sdpa")
    made.weights.dtype = "bfloat16"
    made.optimizer.name = "adamw_torch"
    return made


def lora(name: str | None, config: dict[str, object], tokens: int, batch: int = 1) -> Job:
    made = job(name, config, tokens, batch)
    made.method = "lora"
    made.adapter = Adapter("lora", 8, 16, 0.05, ["q_proj", "v_proj"], dtype="bfloat16")
    return made


def model_of(given: Job) -> Model:
    assert given.model is not None
    return resolve(given.model)


def kept(given: Job) -> int:
    """Bytes that the second layer leaves alive after its forward pass."""
    whole = network(given, model_of(given))
    kinds, _ = whole.kinds()
    begins = activations.replay(whole, kinds).begins
    return begins[3, False].live - begins[2, False].live


def peak(given: Job) -> dict[str, int]:
    estimate = training.estimate_training(given, model_of(given), None)
    return {phase.name: phase.allocated for phase in estimate.phases}


def test_the_table_names_what_exists() -> None:
    for name in NATIVE:
        found = framework(Job(framework=name))
        assert found != TRANSFORMERS
        assert found.block in ("", *BLOCKS)
        assert found.norm in ("", *NORMS)
        assert found.rope in ("", *ROPES)
        assert not found.loss or any(loss == found.loss for loss, _ in LOSSES)


def test_a_framework_that_the_table_lacks_is_transformers() -> None:
    assert framework(Job(framework="llm.c")) == framework(Job()) == TRANSFORMERS


def test_versions_select_traits() -> None:
    """torchtune's RMSNorm multiplied by its weight in float32 in 0.5 and 0.6."""
    old, new = Job(framework="torchtune"), Job(framework="torchtune")
    old.versions["torchtune"], new.versions["torchtune"] = "0.4", "0.6.1"
    assert (framework(old).norm, framework(new).norm) == ("", "rms_wide")


@pytest.mark.parametrize(
    ("config", "tokens", "traced"),
    [(LLAMA, 1304, 230_655_960), (LLAMA3, 512, 89_288_728), (GEMMA, 512, 72_685_592)],
    ids=["llama-2-7b", "llama-3-8b", "gemma-2b"],
)
def test_litgpt_layer_saves_what_its_code_does(config: dict[str, object], tokens: int, traced: int) -> None:
    """Traced: litgpt 0.5.13, LoRA r=8 on q and v, dropout 0.05, one bf16 sequence; without the residual."""
    assert kept(lora("litgpt", config, tokens)) == pytest.approx(traced, abs=100_000)


@pytest.mark.parametrize(
    ("kind", "config", "tokens", "traced"),
    [
        ("llama-adapter", LLAMA, 1304, [0, 118_195_296, 204_216_296]),
        ("llama-adapter-v2", LLAMA, 1304, [346_719_448, 357_775_336]),
        ("llama-adapter-v2", LLAMA3, 512, [138_514_456, 142_954_536]),
        ("llama-adapter", GEMMA, 512, [0, 56_633_344, 69_427_224]),
    ],
)
def test_litgpt_layers_with_llama_adapter_save_what_their_code_does(
    kind: str, config: dict[str, object], tokens: int, traced: list[int]
) -> None:
    """Traced: litgpt 0.5.13, one bf16 sequence after a validation, the second layer and on; alike ones once.

    The first version has nothing to train in the first two layers, so that the third's input wants no gradient.
    """
    given = job("litgpt", config, tokens)
    given.method, given.adapter = "adapter", Adapter(kind, dtype="bfloat16")
    whole = network(given, model_of(given))
    kinds, _ = whole.kinds()
    begins = activations.replay(whole, kinds).begins
    saved = [begins[i + 2, False].live - begins[i + 1, False].live for i in range(1, len(kinds))]
    assert saved == pytest.approx(traced, rel=0.003)


def test_litgpt_prompts_get_no_gradient_and_no_state() -> None:
    """Their keys and values come from a forward pass without autograd, the first validation's."""
    given = job("litgpt", LLAMA, 128)
    given.method, given.adapter = "adapter", Adapter("llama-adapter", dtype="bfloat16")
    estimate = training.estimate_training(given, model_of(given), None)
    assert estimate.trainable_parameters == 2 * (10 * 4096 + 32)
    assert estimate.components["gradients"] < 2 * 512 + 1


def test_litgpt_keeps_two_more_tables_over_packed_weights() -> None:
    """StableEmbedding since 0.5.0: the replaced table, and a gradient that no optimizer empties."""
    new = lora("litgpt", LLAMA3, 256)
    new.weights.quantization = Quantization("bnb-nf4", 4)
    old = replace(new, versions={"litgpt": "0.4.13"})
    table = 2 * 128256 * 4096
    more = peak(new)["optimizer_step"] - peak(old)["optimizer_step"]
    assert more == pytest.approx(2 * table, rel=0.001)
    loaded = peak(new)["load"] - peak(old)["load"]
    assert loaded == pytest.approx(table, rel=0.001), "the gradient comes with the first backward pass"
    assert training.estimate_training(new, model_of(new), None).trainable_parameters == (
        training.estimate_training(old, model_of(old), None).trainable_parameters
    )


def test_torchtune_layer_saves_what_its_code_does() -> None:
    """Traced: torchtune 0.6.1, two packed sequences of 1,024 tokens, Llama-3.2-3B's widths."""
    given = job("torchtune", LLAMA32, 1024, 2)
    given.versions["torchtune"] = "0.6.1"
    assert kept(given) == pytest.approx(325_271_576 - 2 * 2048 * 3072, rel=0.001)


def test_an_own_layer_costs_more_than_transformers_with_repeated_keys() -> None:
    assert kept(job("torchtune", LLAMA32, 1024)) > kept(job(None, LLAMA32, 1024))


def test_compiled_layers_save_no_float32_copies_and_no_activated_gate() -> None:
    """Of a norm the float32 copy goes (4 h) and its narrow product (2 h), but its input stays (2 h); the gate's 2 f."""
    eager = job("torchtune", LLAMA32, 1024)
    eager.versions["torchtune"] = "0.4"
    compiled = replace(eager, compile=True)
    tokens, hidden, inner, rope = 1024, 3072, 8192, 2 * 1024 * 128 * 4
    saved = tokens * (2 * 4 * hidden + 2 * inner) + rope
    assert kept(eager) - kept(compiled) == pytest.approx(saved, rel=0.01)


def test_torchtitan_selective_checkpoints_keep_every_second_product() -> None:
    """x, q, v, attention's output with its log-sum-exp, the gate, the last projection."""
    given = job("torchtitan", LLAMA, 1024)
    given.activation_checkpointing, given.checkpoint_policy = "selective", "every_second_matmul"
    hidden, inner, heads = 4096, 11008, 32
    assert kept(given) == pytest.approx(1024 * (5 * 2 * hidden + 2 * inner + 4 * heads), rel=0.001)


def test_litgpt_packs_the_head() -> None:
    given = lora("litgpt", LLAMA, 128)
    given.weights.quantization = Quantization("bnb-nf4", 4)
    items = {item.role: item for item in parameters(given, model_of(given)) if item.part == "base"}
    assert items["head"].packed
    plain = replace(given, framework=None)
    assert not next(item for item in parameters(plain, model_of(plain)) if item.role == "head").packed


def test_old_bitsandbytes_keeps_inputs_and_litgpt_keeps_the_graph_before() -> None:
    """MatMul4Bit saved its input until 0.44, outside the saved tensors: the graph before still holds it in forward."""
    new = lora("litgpt", LLAMA, 512)
    new.weights.quantization = Quantization("bnb-nf4", 4)
    new.versions["bitsandbytes"] = "0.45.0"
    old = replace(new, versions={"bitsandbytes": "0.42.0"})
    first = replace(old, longest_batch_first=True)
    assert kept(old) > kept(new)
    assert peak(old)["forward"] > peak(first)["forward"] > peak(replace(new, longest_batch_first=True))["forward"]


def test_litgpt_gradients_cover_frozen_weights_of_a_flat_parameter() -> None:
    """FSDP 1 around a whole block: one gradient of all its elements, kept whole while accumulating."""
    given = lora("litgpt", LLAMA, 128)
    given.gradient_accumulation_steps = 2
    given.hardware.gpus = 2
    given.parallelism.fsdp = Fsdp(wrap="transformer", mixed_precision=FsdpMixedPrecision("bfloat16", "bfloat16"))
    layers = sum(
        item.elements for item in parameters(replace(given, parallelism=Job().parallelism), model_of(given))
        if item.layers is not None
    )  # fmt: skip
    apart = peak(replace(given, framework=None))
    assert peak(given)["backward"] - apart["backward"] > 2 * layers * 0.9


def test_the_first_qwen_keeps_its_logits_narrow() -> None:
    """2 x 2 bytes a logit of one sequence, which is shifted without a copy, not the 4 + 4 of before 4.46."""
    given = job("qwen", LLAMA3, 1024)
    given.versions["transformers"], given.attention = "4.32.0", "flash_attention_2"
    logits = 1024 * 128256
    assert peak(replace(given, framework=None))["loss"] - peak(given)["loss"] == pytest.approx(4 * logits, rel=0.01)


def test_chunked_losses_widen_one_chunk_at_a_time() -> None:
    whole = job("torchtune", LLAMA3, 2048)
    chunked = replace(whole, loss=replace(whole.loss, kernel="chunked"))
    logits = 2048 * 128256
    most = {name: given["loss"] for name, given in (("whole", peak(whole)), ("chunked", peak(chunked)))}
    assert most["whole"] > most["chunked"]
    assert peak(chunked)["loss"] >= 6 * logits


def test_megatron_layer_and_selective_recomputation() -> None:
    """16 h + 6 f bytes a token and layer, shared out by sequence parallelism; flash attention leaves no scores."""
    given = job("megatron", LLAMA, 1024)
    hidden, inner, heads = 4096, 11008, 32
    whole = 1024 * (16 * hidden + 6 * inner)
    assert kept(given) == pytest.approx(whole + 1024 * 4 * heads, rel=0.005)
    selective = replace(given, activation_checkpointing="selective", checkpoint_policy="core_attention")
    assert kept(selective) == kept(given)
    shared = replace(given, parallelism=replace(given.parallelism, tensor=4, sequence=True), attention="sdpa")
    assert kept(shared) == pytest.approx(kept(given) / 4, rel=0.005)


def test_megatron_softmax_and_gradient_take_the_bytes_of_the_logits() -> None:
    logits = 4096 * 128256
    own, other = peak(job("megatron", LLAMA3, 4096)), peak(job(None, LLAMA3, 4096))
    assert other["backward"] - own["backward"] > 4 * logits


def test_megatron_s_loss_copied_the_logits_before_core_0_8() -> None:
    logits = 4096 * 128256
    now = job("megatron", LLAMA3, 4096)
    before = replace(now, versions={"megatron-core": "0.7.0"})
    assert peak(before)["loss"] - peak(now)["loss"] == pytest.approx(4 * logits, rel=0.01)
    assert peak(replace(now, versions={"megatron-core": "0.8.0"})) == peak(now)


def test_megatron_s_gate_was_activated_apart_before_core_0_5() -> None:
    """The product saves silu(gate) too: 2 f bytes a token and layer."""
    now = job("megatron", LLAMA, 1024)
    before = replace(now, versions={"megatron-core": "0.4.0"})
    assert kept(before) - kept(now) == pytest.approx(2 * 11008 * 1024, rel=0.01)


@pytest.mark.parametrize(
    ("gpu", "changes", "copies"),
    [
        ("a100-80gb", {}, 1),
        ("h100-80gb", {}, 0),
        ("h100-80gb", {"without_transformer_engine": True}, 1),
        ("a100-80gb", {"micro_batch_size": 1}, 0),
        ("a100-80gb", {"activation_checkpointing": "selective", "checkpoint_policy": "core_attention"}, 0),
    ],
)
def test_megatron_lays_the_output_of_flash_attention_out_anew(gpu, changes, copies) -> None:
    """Sequences come before batches in all else; of one row both are the same. cuDNN's attention has that layout."""
    more = {"attention": "flash_attention_2", "micro_batch_size": 2, **changes}
    given = replace(job("megatron", LLAMA, 512), **more)
    plain = kept(replace(given, without_transformer_engine=False))
    given.hardware.gpu = gpu
    assert kept(given) - plain == copies * 2 * 4096 * 512 * 2


def test_transformer_engine_s_loss_takes_the_logits_bytes_for_their_gradient() -> None:
    tokens = 8192
    eager = job("megatron", LLAMA, tokens)
    kernel = replace(eager, loss=replace(eager.loss, kernel="te_cross_entropy"))
    logits = tokens * LLAMA["vocab_size"]
    most = {name: peak(given)["loss"] for name, given in (("eager", eager), ("kernel", kernel))}
    assert most["eager"] - most["kernel"] == pytest.approx(4 * logits, rel=0.05)


def test_megatron_s_compiled_loss_updates_a_copy_of_the_softmax() -> None:
    """Backward holds 4 bytes a logit more than the one that works in place."""
    logits = 4096 * 128256
    eager = job("megatron", LLAMA3, 4096)
    compiled = replace(eager, loss=replace(eager.loss, compiled=True))
    most = {name: peak(given)["backward"] for name, given in (("eager", eager), ("compiled", compiled))}
    assert most["compiled"] - most["eager"] == pytest.approx(4 * logits, rel=0.01)


def test_megatron_s_pairs_take_its_own_loss_per_token() -> None:
    """A pair is as two rows of supervised tuning; packed pairs fill the length together."""
    given = job("megatron", LLAMA3, 2048)
    two = replace(given, micro_batch_size=2)
    pairs = replace(given, objective="dpo", rl=replace(given.rl, precompute_reference=True))
    assert peak(pairs)["backward"] == pytest.approx(peak(two)["backward"], rel=0.01)
    assert peak(replace(pairs, packing=True))["backward"] == pytest.approx(peak(given)["backward"], rel=0.01)
    assert peak(replace(pairs, framework=None))["backward"] > peak(pairs)["backward"]


def test_narrow_compute_widens_the_interval_downwards() -> None:
    given = job("megatron", LLAMA, 256)
    narrow = replace(given, precision=replace(given.precision, compute="float8-te"))
    model = model_of(given)
    plain, kept_copies = (training.estimate_training(each, model, None).per_gpu for each in (given, narrow))
    linear = 4 * (4 * 4096 * 4096 + 3 * 4096 * 11008)
    assert kept_copies.allocated - plain.allocated == pytest.approx(2 * linear, rel=0.01)
    assert kept_copies.process - kept_copies.low >= 2 * linear


def test_transformer_engine_saves_one_8_bit_copy_of_each_input() -> None:
    """q, k and v share theirs, as do gate and up: a byte less for each of 2 h + f elements a token.

    That of the output projection comes on top: flash attention saves the same tensor as it is.
    """
    given = job("megatron", LLAMA, 1024)
    narrow = replace(given, precision=replace(given.precision, compute="float8-te"))
    assert kept(given) - kept(narrow) == pytest.approx(1024 * (2 * 4096 - 4096 + 11008), rel=0.01)


def test_unknown_narrow_compute_is_not_estimated() -> None:
    given = job(None, LLAMA, 256)
    given.precision.compute = "int3"
    with pytest.raises(NotEstimable, match="int3"):
        training.estimate_training(given, model_of(given), None)


SCOUT = {
    **LLAMA3,
    "model_type": "llama4_text",
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "num_local_experts": 16,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 1,
    "head_dim": 128,
}


@pytest.mark.parametrize("name", ["torchtitan", "megatron", "torchtune"])
def test_frameworks_route_the_rows_that_transformers_gives_to_every_expert(name):
    """At top 1 of 16, what a layer keeps falls by more than a half of the 16-fold rows."""
    assert kept(job(name, SCOUT, 512)) * 2 < kept(job(None, SCOUT, 512))


def test_megatron_s_unfused_attention_saves_probabilities_in_their_own_width() -> None:
    """One 16-bit tensor of scores: neither the scaled scores nor a float32 softmax."""
    tokens = 1024
    fused, own = job("megatron", LLAMA, tokens), job("megatron", LLAMA, tokens)
    own.attention = "eager"
    fused.attention = "flash_attention_2"
    scores = 2 * 32 * tokens * tokens
    assert kept(own) - kept(fused) == pytest.approx(scores, rel=0.01)
    plain, flash = job(None, LLAMA, tokens), job(None, LLAMA, tokens)
    plain.attention, flash.attention = "eager", "flash_attention_2"
    assert kept(plain) - kept(flash) > 2 * scores


def test_the_first_qwen_s_finetune_py_checkpoints_as_trainers_of_its_day_do():
    """Old bitsandbytes keeps inputs under a checkpoint that is not reentrant; its Trainer made reentrant ones."""
    made = Job(model="Qwen/Qwen-7B-Chat", framework="qwen", method="lora", activation_checkpointing="full")
    made.weights.quantization = Quantization("bnb-nf4", 4, double_quant=True)
    made.adapter = Adapter(r=8, targets=["c_attn"])
    made.micro_batch_size, made.sequence_length = 1, 2048
    made.versions = {"transformers": "4.36.2", "bitsandbytes": "0.41.3"}
    held, kept = (
        training.estimate_training(given, resolve("Qwen/Qwen-7B-Chat"), None).components["activations"]
        for given in (made, made.with_changes({"reentrant": False}))
    )
    assert kept > 2 * held
