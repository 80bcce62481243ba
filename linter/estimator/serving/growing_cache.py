"""The cache of plain generation, which grows by a token a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...versions import older
from ..states.division import fullest_stage
from .kv_cache import layer_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...job import Job
    from .kv_cache import LayerCache


class GrowingCache:
    """The dynamic cache of one rank: bytes for a batch of sequences."""

    def __init__(
        self,
        caches: Sequence[LayerCache],
        element: float,
        tensor: int,
        pipeline: int,
        expanded_elements: int,
        state: float,
    ) -> None:
        if expanded_elements:
            caches = [
                cache._replace(latent=0, heads=1, head_elements=expanded_elements) if cache.latent else cache
                for cache in caches
            ]
        self.caches = [cache._replace(window=cache.window - 1 if cache.window else None) for cache in caches]
        self.element, self.tensor, self.pipeline, self.state = element, tensor, pipeline, state

    def size(self, batch: int, tokens: int) -> int:
        """Bytes after `tokens` tokens; a sliding layer keeps its window less one (cache_utils.py)."""
        return fullest_stage([self.layer(cache, batch, tokens) for cache in self.caches], self.pipeline)

    def filled(self, batch: int, tokens: int, job: Job) -> int:
        """Bytes behind the prompt's pass.

        From transformers 5 a sliding layer's window is a view of all the prompt's keys and values until its next
        token (cache_utils.py DynamicSlidingWindowLayer.update).
        """
        if older(job.versions.get("transformers"), "5.0"):
            return self.size(batch, tokens)
        caches = [cache._replace(window=None) for cache in self.caches]
        return fullest_stage([self.layer(cache, batch, tokens) for cache in caches], self.pipeline)

    def first(self, batch: int, tokens: int) -> int:
        """Bytes that the first layer makes anew for the first token behind the prompt."""
        return next((self._grown(cache, batch, tokens) for cache in self.caches), 0)

    def _grown(self, cache: LayerCache, batch: int, tokens: int) -> int:
        return self.layer(cache._replace(conv=0, recurrent=0, cross=0), batch, tokens) // (1 if cache.window else 2)

    def layer(self, cache: LayerCache, batch: int, tokens: int) -> int:
        """Bytes of one layer."""
        return batch * layer_bytes(cache, tokens, self.element, self.tensor, self.state)

    def growing(self, batch: int, tokens: int) -> int:
        """Bytes that exist twice while the largest layer gets a token: its keys; a sliding layer's keys and values."""
        return max((self._grown(cache, batch, tokens) for cache in self.caches), default=0)
