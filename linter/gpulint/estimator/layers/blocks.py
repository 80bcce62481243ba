"""The order of a block by the architecture's trait (`ArchSpec.order`), or by the framework that brings its own.

A family of blocks is a module of `families/` with a table of its own; a framework's block is one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .families import altup, bert, gemma4, hybrid, litgpt, mllama, parallel, sequential, wav2vec, zamba

if TYPE_CHECKING:
    from .layer import Block

BLOCKS: dict[str, Block] = {
    **sequential.BLOCKS,
    **parallel.BLOCKS,
    **hybrid.BLOCKS,
    **zamba.BLOCKS,
    **gemma4.BLOCKS,
    **altup.BLOCKS,
    **mllama.BLOCKS,
    **bert.BLOCKS,
    **wav2vec.BLOCKS,
    **litgpt.BLOCKS,
}
