"""Measured steps and generations on one NVIDIA GPU, as rows that `benchmarks.accuracy` scores.

Self-contained: this folder, torch and transformers; peft and bitsandbytes where a point needs them. Nothing is fetched:
models are random weights of the configs in `grid.json`.

    python -m benchmarks.gpu --list
    python -m benchmarks.gpu --slice 1/8 --seconds 500 --out benchmarks/gpu/rows
    python -m benchmarks.gpu --device cpu --tiny --slice 1/20 --out DIR     # the whole pipeline without memory figures
"""
