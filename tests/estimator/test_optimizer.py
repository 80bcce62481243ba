"""Optimizer states and step temporaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpulint.estimator.states.gradients import gradient_bytes, largest_gradient
from gpulint.estimator.states.optimizer import Item, items, names, of_job, specification, state_blocks, states
from gpulint.estimator.states.optimizer_step import step_temporaries
from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Job, Optimizer, Precision, Weights

TRANSFORMERS = [
    "adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adafactor",
    "adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "sgd", "adagrad",
    "adamw_bnb_8bit", "adamw_8bit", "ademamix_8bit", "lion_8bit", "lion_32bit", "paged_adamw_32bit",
    "paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit", "paged_lion_32bit",
    "paged_lion_8bit", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit", "galore_adamw",
    "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise", "galore_adamw_8bit_layerwise",
    "galore_adafactor_layerwise", "lomo", "adalomo", "grokadamw", "schedule_free_radam",
    "schedule_free_adamw", "schedule_free_sgd", "apollo_adamw", "apollo_adamw_layerwise", "stable_adamw",
]  # fmt: skip
"""Every name of transformers 5.23 `OptimizerNames`."""

OTHERS = [
    "muon", "optimi_adamw", "ao_adamw_4bit", "ao_adamw_8bit", "ao_adamw_fp8", "adopt_adamw", "adamc",
    "came_pytorch", "dion", "sinkgd", "polora", "flash_adamw", "flash_lion", "q_galore_adamw8bit", "Adam",
    "AdamW", "Lamb", "OneBitAdam", "PagedAdamW", "PagedAdamW8bit", "Lion",
]  # fmt: skip
"""axolotl 0.19's own, DeepSpeed's, torchtune's and older spellings."""


def kept(name, *tensors, **changes):
    job = Job(optimizer=Optimizer(name, **changes))
    return states(list(tensors), of_job(job), job)


def temporary(name, *tensors, **changes):
    return step_temporaries(list(tensors), of_job(Job(optimizer=Optimizer(name, **changes)))).size


def matrix(rows=4096, columns=14336, dtype="bfloat16", copies=1, **flags):
    return Item((rows, columns), copies, dtype, **flags)


@pytest.mark.parametrize("name", TRANSFORMERS + OTHERS)
def test_every_known_spelling_has_a_row(name):
    assert specification(name).known
    size = kept(name, matrix(), Item((4096,), 3, "bfloat16"))
    assert min(size) >= 0


def test_an_unknown_name_counts_as_adamw():
    spec = specification("adamzilla")
    assert not spec.known
    assert spec.states == specification("adamw_torch").states


def test_names_lists_rows_and_aliases():
    assert {"adamw_torch", "adamw_bnb_8bit"} <= set(names())


@pytest.mark.parametrize(
    ("name", "dtype", "each"),
    [
        ("adamw_torch", "bfloat16", 4),
        ("adamw_torch", "float32", 8),
        ("adamw_8bit", "bfloat16", 2 * (1 + 4 / 256)),
        ("adamw_bnb_8bit", "float32", 2 * (1 + 4 / 256)),
        ("ademamix_8bit", "bfloat16", 3 * (1 + 4 / 256)),
        ("ademamix", "bfloat16", 12),
        ("lion_8bit", "bfloat16", 1 + 4 / 256),
        ("lion_32bit", "bfloat16", 4),
        ("adamw_torch_8bit", "bfloat16", 2 * (1 + 4 / 256)),
        ("adamw_torch_4bit", "bfloat16", 2 * (0.5 + 4 / 256)),
        ("adamw_anyprecision", "bfloat16", 8),
        ("schedule_free_adamw", "bfloat16", 4),
        ("schedule_free_sgd", "bfloat16", 2),
        ("rmsprop", "float32", 4),
        ("adagrad", "float32", 4),
        ("muon", "bfloat16", 2),
        ("sgd", "bfloat16", 0),
        ("lomo", "bfloat16", 0),
        ("stable_adamw", "float32", 8),
        ("stable_adamw", "bfloat16", 6),
    ],
)
def test_bytes_of_state_a_parameter(name, dtype, each):
    item = matrix(dtype=dtype)
    size = kept(name, item).allocated
    assert size == pytest.approx(each * item.size, abs=4096)


def test_state_dtype_overrides_the_parameters():
    assert kept("adamw_torch", matrix(), state_dtype="float32").allocated == 8 * matrix().size


def test_adafactor_keeps_rows_and_columns():
    assert kept("adafactor", matrix()).raw == 4 * (4096 + 14336) + 4
    assert kept("adafactor", Item((4096,), 1, "bfloat16")).raw == 4 * 4096 + 4
    assert kept("adafactor", Item((8, 64, 32), 1, "bfloat16")).raw == 4 * (8 * 64 + 8 * 32) + 4


def test_adafactor_cannot_factor_a_flattened_shard():
    assert kept("adafactor", Item((1000,), 1, "float32", flat=True)).raw == 4 * 1000 + 4


def test_fused_adam_keeps_a_step_count_a_tensor_on_the_gpu():
    item = matrix(copies=7)
    assert kept("adamw_torch_fused", item).allocated - kept("adamw_torch", item).allocated == 7 * 512


def test_small_tensors_keep_32_bit_states():
    assert kept("adamw_8bit", Item((4095,), 1, "bfloat16")).raw == 8 * 4095 + 2048
    assert kept("adamw_8bit", Item((4096,), 1, "bfloat16")).raw == 2 * (4096 + 64) + 2048


def test_the_trainer_keeps_32_bit_states_for_embeddings():
    embedding = matrix(embedding=True)
    assert kept("adamw_8bit", embedding).allocated < 3 * embedding.size
    assert kept("adamw_8bit", embedding, embeddings_32bit=True).allocated == 8 * embedding.size + 2048
    assert kept("adamw_8bit", matrix(), embeddings_32bit=True) == kept("adamw_8bit", matrix())


def test_paged_states_are_not_the_allocators():
    size = kept("paged_adamw_32bit", matrix(), Item((4096,), 1, "bfloat16"))
    assert size.paged == 8 * matrix().size
    assert size.allocated == 8 * 4096


@pytest.mark.parametrize(("rows", "paged"), [(99_999, False), (100_000, True), (100_001, True)])
def test_states_are_paged_from_100_000_elements_on(rows, paged):
    tensor, plan = Item((rows,), 3, "bfloat16"), Job(optimizer=Optimizer("paged_adamw_32bit"))
    assert kept("paged_adamw_32bit", tensor).paged == (3 * 8 * rows if paged else 0)
    assert state_blocks([tensor], of_job(plan), plan) == ([] if paged else [(4 * rows, 3)] * 2)


def test_grokadamw_keeps_its_states_in_main_memory():
    size = kept("grokadamw", matrix())
    assert size.allocated == 0
    assert size.host == 6 * matrix().size


def test_the_multi_tensor_step_copies_the_second_moments_of_a_group():
    big, small = matrix(copies=3), Item((4096,), 100, "bfloat16", decay=False)
    assert temporary("adamw_torch", big, small) == 3 * 2 * matrix().size
    assert temporary("adamw_torch_fused", big, small) == 0
    assert temporary("adamw_torch", big, small, foreach=False) == (4 + 2) * matrix().size


@pytest.mark.parametrize(("dtype", "width"), [("float32", 4), ("bfloat16", 2)])
def test_a_step_one_by_one_has_a_root_a_denominator_and_that_of_the_tensor_before(dtype, width):
    first, second = (Item((rows, 1000), 1, dtype) for rows in (10, 40))
    assert temporary("adamw_torch_forloop", first, second) == (2 * 40_000 + 10_000) * width
    assert temporary("adamw_torch_forloop", second, first) == 2 * 40_000 * width
    layers = [Item((rows, 1000), 2, dtype) for rows in (40, 10)]
    assert temporary("adamw_torch_forloop", *layers) == (2 * 40_000 + 10_000) * width


def test_galore_projects_to_its_rank():
    size = kept("galore_adamw", matrix()).allocated
    assert size == 2 * 128 * (2 * 14336 + 4096)
    assert kept("galore_adamw", matrix(), rank=64).allocated == size // 2
    vector = Item((4096,), 1, "bfloat16", matrix=False)
    assert kept("galore_adamw", vector).allocated == 2 * 2 * 4096


def test_galores_projector_of_a_float32_gradient_is_a_view_of_a_square():
    wide = matrix()._replace(dtype="float32")
    assert kept("galore_adamw", wide).allocated == 2 * 4 * 128 * 14336 + 4 * 4096**2
    assert kept("galore_adafactor", matrix()).allocated == pytest.approx(4 * 4096**2, rel=0.01)
    assert kept("apollo_adamw", wide).allocated == 4 * 128 * (2 * 14336 + 4096)


def test_a_rule_for_matrices_has_its_temporaries_of_matrices_alone():
    """galore_torch 1.0: an SVD in float32 of a projected matrix; AdamW's denominator and update of an embedding."""
    table = matrix(128256, 4096, embedding=True, matrix=False)
    decomposed = 3 * 4 * matrix().size + 4 * 4096**2
    assert temporary("galore_adamw", matrix()) == decomposed
    assert temporary("galore_adamw", matrix(), table) == 2 * 2 * table.size + decomposed
    assert temporary("q_galore_adamw8bit", matrix(), table) == 3 * 4 * matrix().size


def test_muon_gives_embeddings_to_adamw():
    assert kept("muon", matrix(embedding=True, matrix=False)).allocated == 4 * matrix().size


def test_layerwise_optimizers_step_in_the_backward_pass():
    assert specification("galore_adamw_layerwise").in_backward
    assert of_job(Job(optimizer=Optimizer("adamw_torch", in_backward=True))).in_backward
    for dtype, width in (("bfloat16", 2), ("float32", 4)):
        one = matrix(copies=32)._replace(dtype=dtype)
        assert temporary("adamw_torch", one, in_backward=True) == width * matrix().size


@given(
    name=st.sampled_from(TRANSFORMERS),
    rows=st.integers(1, 300),
    columns=st.integers(1, 300),
    copies=st.integers(1, 4),
    dtype=st.sampled_from(["bfloat16", "float32"]),
)
def test_more_parameters_never_need_less(name, rows, columns, copies, dtype):
    tensors = (Item((rows, columns), count, dtype) for count in (copies, copies + 1))
    less, more = ((*kept(name, item), temporary(name, item)) for item in tensors)
    assert all(isinstance(size, int) and size >= 0 for size in more)
    assert all(a <= b for a, b in zip(less, more, strict=True))


def test_gradients_take_the_dtype_of_their_parameter(llama_8b):
    items_ = parameters(Job(weights=Weights("bfloat16")), llama_8b)
    plain, wide = Job(), Job(precision=Precision(gradients="float32"))
    assert gradient_bytes(items_, plain) == 2 * llama_8b.parameters
    assert gradient_bytes(items_, wide) == 4 * llama_8b.parameters
    assert largest_gradient(items_, plain) == 2 * 128256 * 4096


def test_worked_examples_of_bytes_a_parameter(llama_8b, decoder):
    """Llama-3.1-8B in mixed precision: 16 B a parameter, 128.5 GB; pure 16-bit AdamW: 8; GPT-2 XL's 24.9 GB below."""

    def total(dtype, model, name="adamw_torch"):
        job = Job(weights=Weights(dtype), optimizer=Optimizer(name))
        found = parameters(job, model)
        kept_ = states(items(found), of_job(job), job)
        return sum(item.raw for item in found) + gradient_bytes(found, job) + kept_.raw

    assert total("float32", llama_8b) == 16 * 8_030_261_248 == 128_484_179_968
    assert total("bfloat16", llama_8b) == 8 * 8_030_261_248


def test_worked_example_gpt2_xl_model_states(shared_data):
    """1,557,611,200 parameters with fp32 weights, gradients and two moments: 24.9 GB (ZeRO paper, section 3.1)."""
    (row, *_) = [r for r in shared_data("oracle") if r["point"]["preset"] == "gpt2-xl" and "optim" not in r["point"]]
    assert row["n_params"] == 1_557_611_200
    assert 16 * row["n_params"] == pytest.approx(24.9e9, rel=2e-3)
    assert row["params_bytes"] + row["grads_bytes"] + row["optimizer_bytes"] == pytest.approx(16 * row["n_params"])


def test_adam_mini_has_one_momentum_for_hidden_matrices_and_two_for_the_rest():
    spec = specification("adam_mini")
    assert states([Item((4096, 1024), 1, "bfloat16")], spec, Job()).allocated == 2 * 4096 * 1024
    embedding = Item((4096, 1024), 1, "bfloat16", embedding=True, matrix=False)
    assert states([embedding], spec, Job()).allocated == 2 * 2 * 4096 * 1024


def test_lion_pytorch_keeps_its_average_in_the_parameters_width():
    assert (
        states([Item((4096, 1024), 1, "bfloat16")], specification("lion_pytorch"), Job()).allocated == 2 * 4096 * 1024
    )
    assert states([Item((4096, 1024), 1, "bfloat16")], specification("lion"), Job()).allocated == 4 * 4096 * 1024


def test_a_stand_in_is_known_but_not_exact():
    assert specification("flash_adamw").known
    assert not specification("flash_adamw").exact
    assert specification("adamw_8bit").exact


@pytest.mark.parametrize(
    ("name", "torch", "copies"),
    [
        ("adamw_torch", "1.13", 0),
        ("adamw_torch", "2.0.1", 2),
        ("adamw_torch", "2.1.0", 1),
        ("adamw_torch", None, 1),
        ("adamw_torch_fused", "2.0.1", 0),
        ("adagrad", "2.0.1", 3),
        ("rmsprop", "2.0.1", 1),
    ],
)
def test_copies_of_a_group_that_a_step_makes_go_with_the_release_of_torch(name, torch, copies):
    """1.13 loops over tensors; the root and the denominator beside it of 2.0 are one from 2.1 on."""
    given = Job(optimizer=Optimizer(name), versions={"torch": torch} if torch else {})
    assert of_job(given).foreach == copies
