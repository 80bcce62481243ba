"""Parameters in the order of `model.parameters()`, and the states that an optimizer makes of them."""

from __future__ import annotations

from gpulint.estimator.allocator.replay import _made_in_order
from gpulint.estimator.states import optimizer
from gpulint.estimator.states.optimizer_step import step_blocks, step_temporaries
from gpulint.estimator.states.parameter import in_order, stacks
from gpulint.estimator.states.parameters import parameters
from gpulint.job.job import Job
from gpulint.models.resolve import resolve

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "vocab_size": 1000,
    "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False,
}  # fmt: skip


def found():
    job = Job(model=CONFIG, micro_batch_size=1, sequence_length=64)
    job.weights.dtype = "bfloat16"
    return job, [item for item in parameters(job, resolve(CONFIG)) if item.trainable]


def test_layers_come_one_after_the_other_between_what_is_outside():
    _, trained = found()
    assert [len(stack) for stack in stacks(trained)] == [1, 9, 1, 1]
    roles = [item.role for item in in_order(trained)]
    layer = [item.role for item in trained if item.layers]
    assert roles == [trained[0].role, *layer * 3, "norm", "head"]
    assert sum(item.elements for item in in_order(trained)) == sum(item.elements for item in trained)


def test_states_are_made_in_that_order_those_with_weight_decay_first():
    job, trained = found()
    spec = optimizer.of_job(job)
    made = _made_in_order(trained, spec, job)
    grouped = optimizer.state_blocks(optimizer.items(trained), spec, job)
    assert sum(size * count for size, count in made) == sum(size * count for size, count in grouped)
    assert made[:2] == [(2 * 64 * 1000, 1)] * 2
    large = [size for size, _ in made if size > 4]
    assert large[2:4] == [2 * 64 * 64] * 2
    norms = [size for size in large if size == 2 * 64]
    assert large[-len(norms) :] == norms
    assert len(norms) == 2 * (2 * 3 + 1)


def test_the_temporaries_of_an_update_are_tensors_of_their_own():
    """Adafactor of 16-bit parameters: gradient, parameter, square and that plus eps in float32."""
    job, trained = found()
    job.optimizer.name = "adafactor"
    spec = optimizer.of_job(job)
    blocks = step_blocks(optimizer.items(trained), spec)
    assert blocks[0] == (4 * 64 * 1000, 4)
    assert sum(size * count for size, count in blocks) == step_temporaries(optimizer.items(trained), spec).size
