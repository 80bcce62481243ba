"""Whether jobs that do not fit a GPU are told what would: `python -m benchmarks.suggestions`."""
