"""LLaMA-Factory."""

from __future__ import annotations

from .behaviour import Behaviour, Default

NAME = "llamafactory"

REFUSES_DATA_PARALLEL = Behaviour(
    NAME,
    "refuses several GPUs in one process",
    "hparams/parser.py (`ParallelMode.NOT_DISTRIBUTED`)",
    since="0.8.2",
)
STORED_DTYPE = Behaviour(
    NAME,
    "loads a model in its stored dtype; before, in that of the computation",
    "hiyouga/LLaMA-Factory#9665",
    since="0.9.4",
)

_PATCHER = "model/patcher.py of the wheels 0.5.0 to 0.7.0"
_ARGUMENTS = "hparams/data_args.py and model_args.py of the wheels 0.8.3 to 0.9.5"

DEFAULTS = (
    Default(NAME, "attention", "sdpa", _PATCHER, until="0.5.2"),
    Default(NAME, "attention", "eager", _PATCHER, since="0.5.2", until="0.7"),
    Default(NAME, "cutoff_len", 1024, _ARGUMENTS, until="0.9.1"),
    Default(NAME, "vllm_maxlen", 2048, _ARGUMENTS, until="0.9.1"),
    Default(NAME, "vllm_gpu_util", 0.9, _ARGUMENTS, until="0.9.3"),
)
