"""SGLang; how it divides a card by release is a table beside the estimator (`sglang.json`)."""

from __future__ import annotations

from ..behaviour import Behaviour

NAME = "sglang"

NEWEST = "0.5.23"
"""The last release that was read."""

AITER_SHARE = Behaviour(
    NAME,
    "leaves less of the static share to long requests whose attention is AITER's",
    "0.5.4 srt/model_executor/model_runner.py, 0.5.17 srt/server_args.py `_handle_attention_backend_compatibility`",
    since="0.5.4",
)
STATED_STATES = Behaviour(
    NAME,
    "keeps as many requests' states as are stated, with a radix cache too; before, without one alone and else 512",
    "0.5.9 srt/model_executor/model_runner_kv_cache_mixin.py `handle_max_mamba_cache`; 0.5.4 model_runner.py",
    since="0.5.9",
)
READS_MODELOPT = Behaviour(
    NAME,
    "takes the dtype of the cache that Model Optimizer states",
    "srt/model_executor/model_runner.py `configure_kv_cache_dtype`: in 0.5.12, not in 0.4.9; none between was read",
    since="0.5.12",
)
CACHES_NO_EMBEDDING = Behaviour(
    NAME,
    "gives EmbeddingGemma's keys and values no room on Hopper and Blackwell",
    "srt/server_args.py `is_embedding_gemma`, in 0.5.17 and not in 0.5.16",
    since="0.5.17",
)
