"""How much more than its share of tokens expert parallelism may send to one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...upstream import megatron, torchtitan
from ...upstream.stack import Stack
from ..estimate import Assumption
from ..frameworks.frameworks import runs_own_model
from .parameters import base_dtype
from .storage import dtype_bytes

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model


def unbalanced(job: Job, model: Model) -> int:
    """Bytes that widen `high`: a second share of routed tokens on the fullest rank; 0 without expert parallelism.

    The router is taken to be balanced, so that a rank's experts see T x k tokens, T = batch x length, k experts a
    token. How unbalanced it is no config says; twice the share is what GShard makes room for (Lepikhin et al. 2020,
    section 2.2: capacity 2 N / E). Each token has its input and output (h each) and gate, up and product (f each), in
    one layer where layers are checkpointed, by torchtitan's operators too, which keep none of the experts' products
    (`_op_sac_save_list`), else in all that have experts. torchtitan and prime-rl's own models have silu's output
    besides (f) and the float32 copy that is weighted (2 h; token_choice.py). Megatron has one more h: its all-to-all
    hands rows over by rank, and a copy of inputs and of outputs sorts them by expert (core/transformer/moe/
    token_dispatcher.py `sort_chunks_by_idxs`; the unsorted input is free by the time the output is sorted).
    """
    plan, shape = job.parallelism, model.shape
    if plan.expert <= 1 or not shape.experts or not job.micro_batch_size or not job.sequence_length:
        return 0
    tokens = job.micro_batch_size * -(-job.sequence_length // max(1, plan.context)) * max(1, shape.experts_per_token)
    width = dtype_bytes(job.precision.autocast or base_dtype(job, model))
    stack = Stack(job)
    titan = stack.runs(torchtitan.NAME)
    again = job.activation_checkpointing in ("full", "offload") or (titan and job.activation_checkpointing != "none")
    layers = 1 if again else len(shape.sparse_layers)
    inner = -(-shape.moe_intermediate // (plan.expert_tensor or plan.tensor))
    chosen = titan or runs_own_model(job, model.model_type)
    wide = 3 if stack.runs(megatron.NAME) else 4 if chosen else 2
    return int(width * tokens * (wide * shape.hidden + (4 if chosen else 3) * inner)) * layers


def dropless(job: Job, model: Model) -> list[Assumption]:
    """What Megatron's experts may see beyond that second share: every token that chooses only them.

    Without `moe_expert_capacity_factor` no token is dropped (core/transformer/transformer_config.py), so that of e
    ranks with E / e experts each the fullest gets at most e min(k, E / e) / k shares, and no config says how many it
    gets. A share is `unbalanced`'s.
    """
    share, shape, ranks = unbalanced(job, model), model.shape, job.parallelism.expert
    if not share or not Stack(job).runs(megatron.NAME):
        return []
    chosen = max(1, shape.experts_per_token)
    most = ranks * min(chosen, -(-shape.experts // ranks)) / chosen
    more = int((most - 2) * share)
    if more <= 0:
        return []
    note = f"no token is dropped: the fullest of {ranks} expert ranks may get up to {most:.3g} times its share"
    return [Assumption("parallelism.expert", str(ranks), note, 0, more)]
