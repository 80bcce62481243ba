"""What Unsloth's own classes keep and compute, by its release."""

from __future__ import annotations

import pytest

from gpulint.estimator.activations import instants
from gpulint.estimator.estimate_job import estimate_job
from gpulint.estimator.states.buffers.unsloth import masks, tables
from gpulint.estimator.states.parameters import allocated, parameters
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

from .llama import LLAMA_7B

SHORT = {**LLAMA_7B, "num_hidden_layers": 4, "max_position_embeddings": 8192, "tie_word_embeddings": False}
LONG = {**SHORT, "max_position_embeddings": 131072}
GROUPED = {**SHORT, "num_key_value_heads": 8}
GEMMA = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0,
}
PHI = {
    **SHORT,
    "model_type": "phi3",
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "longrope"},
}
POSITION = 128 * 2


def job(release: str | None = "2024.8", length: int = 2048, **fields: object) -> Job:
    made = Job.validate(
        {
            "kind": "training",
            "objective": "sft",
            "micro_batch_size": 1,
            "sequence_length": length,
            "attention": "sdpa",
            "activation_checkpointing": "full",
            "weights": {"dtype": "float16"},
            "precision": {"autocast": "float16"},
            "versions": {"torch": "2.3.0"},
            **fields,
        }
    )
    if release:
        made.framework, made.versions["unsloth"] = "unsloth", release
    return made


@pytest.mark.parametrize(
    ("config", "release", "length", "size"),
    [
        (SHORT, "2024.8", 2048, 4 * 2 * 8192 * POSITION),
        (SHORT, "2025.1.5", 2048, 2 * 8192 * POSITION),
        (LONG, "2024.6", 2048, 4 * 2 * 131072 * POSITION),
        (LONG, "2024.8", 2048, 4 * 2 * 32768 * POSITION),
        (LONG, "2024.8", 40000, 4 * 2 * 40960 * POSITION),
        (SHORT, "2024.8", 16384, 4 * 2 * 16384 * POSITION),
        (GEMMA, "2024.8", 2048, 4 * 2 * 8192 * 256 * 4),
        (PHI, "2024.9", 2048, 4 * 2 * 4096 * POSITION),
        (SHORT, None, 2048, 0),
    ],
)
def test_each_layer_had_rotary_tables_of_its_own_until_the_model_shared_one(config, release, length, size):
    plan, model = job(release, length), resolve(config)
    assert allocated(tables(plan, model, "float16")) == size
    without = parameters(job(None, length), model)
    assert allocated(parameters(plan, model)) - allocated(without) == size


def test_classes_that_unsloth_did_not_write_have_no_tables():
    assert not tables(job(), resolve({**SHORT, "model_type": "olmo"}), "float16")


@pytest.mark.parametrize(
    ("release", "torch", "attention", "size"),
    [
        ("2024.7", "2.3.0", "sdpa", 2 * 2 * 8192**2),
        ("2024.7", "2.3.0", "flash_attention_2", 2 * 2 * 8192**2),
        ("2024.8", "2.3.0", "flash_attention_2", 0),
        ("2024.8", "2.5.1", "sdpa", 0),
        (None, "2.3.0", "sdpa", 0),
    ],
)
def test_gemma_2_has_two_masks_of_all_positions(release, torch, attention, size):
    plan = job(release, versions={"torch": torch}, attention=attention)
    assert masks(plan, resolve(GEMMA), "float16") == size
    assert masks(job(), resolve(SHORT), "float16") == 0


def test_the_masks_stand_from_the_first_batch_on():
    own, blocks = (
        {
            phase.name: phase.allocated
            for phase in estimate_job(job(versions={"torch": torch}), resolve(GEMMA), None).phases
        }
        for torch in ("2.3.0", "2.5.1")
    )
    assert own["optimizer_step"] - blocks["optimizer_step"] == 2 * 2 * 8192**2
    assert own["load"] == blocks["load"]


def activations(plan: Job, config: dict[str, object]) -> int:
    return max(item.activations for item in instants(plan, resolve(config)))


def test_xformers_takes_keys_that_are_repeated_for_every_query_head():
    """Keys and values of 32 heads in the place of 8: 2 x 24 heads, 128 features, 2 bytes."""
    plan, flash = (
        job(release, activation_checkpointing="none", attention=attention, hardware={"gpu": "a10g"})
        for release, attention in (("2024.8", "sdpa"), ("2024.8", "flash_attention_2"))
    )
    more = activations(plan, GROUPED) - activations(flash, GROUPED)
    assert more >= 3 * 2 * 24 * 128 * 2 * 2048
    assert activations(plan, SHORT) == activations(flash, SHORT)


def test_soft_capped_scores_are_one_compiled_graph():
    """Two matrices of scores a layer, where the composite path keeps more than one beside them."""
    compiled, composite = (
        activations(job(release, activation_checkpointing="none"), GEMMA) for release in ("2024.8", None)
    )
    scores = 2 * 8 * 2048**2
    layers = GEMMA["num_hidden_layers"]
    assert composite - compiled > layers * scores


@pytest.mark.parametrize(("release", "copies"), [("2024.8", 1), (None, 2)])
def test_the_loss_caps_the_logits_that_it_reads(release, copies):
    plan = job(release, loss={"kernel": "unsloth_cross_entropy", "upcast": "never"})
    loss = max(item.logits for item in instants(plan, resolve(GEMMA)) if item.phase == "loss")
    assert loss == copies * 2 * 2048 * 256000


def test_a_t4_has_a_kernel_that_needs_neither_mask_nor_scores():
    old, new = (job(activation_checkpointing="none", hardware={"gpu": gpu}) for gpu in ("t4", "a10g"))
    assert activations(old, GROUPED) == pytest.approx(activations(new, GROUPED), rel=0.05)


def test_a_framework_that_nobody_knows_runs_the_models_and_the_loop_of_transformers():
    named, plain = (estimate_job(job(release=None, framework=name), resolve(SHORT), None) for name in ("acme", None))
    assert named == plain
    filled = estimate_job(job(release=None, framework="torchtune"), resolve(SHORT), None)
    assert named.per_gpu.low < filled.per_gpu.low
