"""The cache of plain generation, which grows by a token a step."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import TYPE_CHECKING

from ....upstream.stack import Stack
from ....upstream.transformers import WINDOW_VIEWS_PROMPT
from ....upstream.transformers_models import FUSED_KEYS, FUSED_VALUES
from ...states.tensor_parallel import fullest_layers, stages
from ...terms import Product, terms, total
from ..kv_cache import layer_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....job.job import Job
    from ....models.model import Model
    from ...terms import Term
    from ..layer_cache import LayerCache

SOURCE = "transformers cache_utils.py DynamicCache"


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
        return total(self.terms(batch, tokens))

    def terms(self, batch: int, tokens: int) -> list[Term]:
        """The cache after `tokens` tokens, of each kind of layer of the fullest stage."""
        sizes = [self.layer(cache, batch, tokens) for cache in self.caches]
        stage = fullest_layers(sizes, self.pipeline)
        found = []
        for cache, number in Counter(self.caches[layer] for layer in stage).items():
            layers, rows = (number, "layers"), (batch, "rows")
            kept = (cache.kept(tokens), "tokens")
            once = -(-cache.cross // self.tensor) + -(-cache.conv // self.tensor) + cache.fixed
            states = -(-cache.recurrent // self.tensor)
            elements = cache.token_elements(self.tensor)
            made = (
                Product("keys and values", self.element, (layers, rows, kept, elements)),
                Product("what a layer keeps whatever the length", self.element, (layers, rows, once)),
                Product("recurrent states", self.state, (layers, rows, states)),
            )
            found += terms("kv_cache", made, SOURCE, number * self.layer(cache, batch, tokens))
        return found

    def unwindowed(self, job: Job) -> GrowingCache:
        """The cache behind the prompt's pass.

        From transformers 5 a sliding layer's window is a view of all the prompt's keys and values until its next
        token (cache_utils.py DynamicSlidingWindowLayer.update).
        """
        if not Stack(job).does(WINDOW_VIEWS_PROMPT):
            return self
        whole = copy(self)
        whole.caches = [cache._replace(window=None) for cache in self.caches]
        return whole

    def growing(self, batch: int, tokens: int) -> Product:
        """What exists twice while the largest layer gets a token: its keys; a sliding layer's keys and values."""
        widest = max(self.caches, key=lambda cache: self._grown(cache, batch, tokens).size, default=None)
        return _ANEW if widest is None else self._grown(widest, batch, tokens)

    def first(self, batch: int, tokens: int) -> Product:
        """What the first layer makes anew for the first token behind the prompt."""
        return self._grown(self.caches[0], batch, tokens) if self.caches else _ANEW

    def _grown(self, cache: LayerCache, batch: int, tokens: int) -> Product:
        halves = 1 if cache.window else 2
        size = self.layer(cache._replace(conv=0, recurrent=0, cross=0), batch, tokens) // halves
        counts = (batch, "rows"), (cache.kept(tokens), "tokens"), cache.token_elements(self.tensor) // halves
        made = _ANEW._replace(each=self.element, counts=counts)
        return made if made.size == size else _ANEW._replace(each=size)

    def layer(self, cache: LayerCache, batch: int, tokens: int) -> int:
        """Bytes of one layer."""
        return batch * layer_bytes(cache, tokens, self.element, self.tensor, self.state)


_ANEW = Product("keys of a layer, made anew with the new token", 0.0)


def views(job: Job, model: Model, batch: int, prompt: int, element: float) -> Product:
    """What a prompt's cache holds beyond keys and values, as views of one fused projection; nothing elsewhere.

    e b prompt q a layer where keys and values are views of it (`FUSED_KEYS`), e b prompt (q + k)
    where the values are and the keys are rotated (`fused_values`).
    """
    label, shape = "queries beside them, in one tensor", model.shape
    stack = Stack(job)
    keys, values = stack.does(FUSED_KEYS, model.model_type), stack.does(FUSED_VALUES, model.model_type)
    if not (keys or values) or job.parallelism.tensor > 1:
        return Product(label, 0.0)
    heads = shape.heads + (0 if keys else shape.kv_heads), "heads"
    layers, tokens = (shape.layers, "layers"), (prompt, "tokens")
    return Product(label, element, (layers, (batch, "rows"), tokens, heads, shape.head_dim), stages(job))
