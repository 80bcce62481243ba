"""What torchtune's builders put on the GPU beside weights."""

from __future__ import annotations

import pytest

from gpulint.estimator.sharding.strategy import sharded_state
from gpulint.estimator.states.buffers.torchtune import caches
from gpulint.estimator.states.parameters import allocated, parameters
from gpulint.job.job import Adapter, Fsdp, Job, Weights
from gpulint.models.resolve import resolve

from .llama import LLAMA_7B

LLAMA2 = {**LLAMA_7B, "max_position_embeddings": 4096, "tie_word_embeddings": False}
SCALED = {**LLAMA2, "max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3"}}
TABLE = 4 * 4096 * 128


def job(version=None, method="full", framework="torchtune", fsdp=None) -> Job:
    made = Job(framework=framework, method=method, weights=Weights("bfloat16"), versions={})
    if version:
        made.versions["torchtune"] = version
    if method == "lora":
        made.adapter = Adapter("lora", 8, 16, 0.0, ["q_proj", "v_proj"], dtype="bfloat16")
    made.parallelism.fsdp = fsdp
    return made


@pytest.mark.parametrize(
    ("config", "version", "method", "tables"),
    [
        (LLAMA2, None, "full", 1),
        (LLAMA2, None, "lora", 32),
        (LLAMA2, "0.5", "full", 32),
        (SCALED, "0.2.1", "full", 32 * 32),
        (SCALED, "0.3.1", "lora", 32),
        (SCALED, None, "full", 32),
    ],
)
def test_rotary_caches_of_all_positions_are_shared_or_each_layers_own(config, version, method, tables):
    plan, model = job(version, method), resolve(config)
    assert allocated(caches(plan, model)) == tables * TABLE
    without = parameters(job(version, method, framework=None), model)
    assert allocated(parameters(plan, model)) - allocated(without) == tables * TABLE


def test_a_released_tutorial_saw_the_layer_that_the_others_were_copied_from():
    """docs/source/tutorials/qlora_finetune.rst: 13.96 GB after Llama-2-7B with LoRA (r 8, q and v) was built."""
    built = sharded_state(job("0.1", "lora"), resolve(LLAMA2))
    assert round((built.weights + built.adapter + built.load) / 1e9, 2) == 13.96


@pytest.mark.parametrize(("version", "fsdp"), [(None, None), ("0.5", Fsdp(version=2, wrap="transformer"))])
def test_layers_built_one_by_one_or_without_memory_need_no_other(version, fsdp):
    copied, plain = (
        sharded_state(job(version, framework=name, fsdp=fsdp), resolve(LLAMA2)) for name in ("torchtune", None)
    )
    assert copied.load == plain.load
