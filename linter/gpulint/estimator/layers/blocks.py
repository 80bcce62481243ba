"""The order of a block by the architecture's trait (`ArchSpec.order`), or by the framework that brings its own.

Most are functions of that name in the module of their family; a framework's block is one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .families import altup, bert, gemma4, hybrid, litgpt, mllama, parallel, sequential, wav2vec, zamba

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .layer import Block

BLOCKS: Mapping[str, Block] = {
    "shared": gemma4.shared_layer, "altup": altup.altup_layer, "litgpt": litgpt.block
} | {
    block.__name__: block
    for block in (
        sequential.pre, sequential.pre_keeping, sequential.pre_stable, sequential.pre_neox, sequential.sandwich,
        sequential.post, sequential.post_sum, sequential.normed_residual, sequential.griffin,
        parallel.parallel, parallel.parallel_residual, parallel.parallel_norms, parallel.falcon, parallel.falcon_serial,
        hybrid.beside, hybrid.mixed, zamba.zamba, mllama.crossing,
        bert.bert, bert.distilbert, bert.albert, wav2vec.speech, wav2vec.speech_before,
    )
}  # fmt: skip
