"""llama-server, where a launcher starts it."""

from __future__ import annotations


def test_flags_become_a_server(jobs_of):
    (job,) = jobs_of("./llama-server -hf unsloth/Qwen3-8B-GGUF:Q4_K_M -c 8192 -np 4 -ctk q8_0\n", "run.sh")
    assert (job.inference.engine, job.model) == ("llama.cpp", "unsloth/Qwen3-8B")
    assert (job.inference.max_model_len, job.inference.max_num_seqs) == (8192, 4)
    assert (job.weights.quantization.method, job.inference.kv_cache_dtype) == ("gguf-q4_k_m", "q8_0")


def test_a_file_is_named_for_its_packing(jobs_of):
    (job,) = jobs_of("llama-server --model models/llama-3-8b.Q8_0.gguf\n", "run.sh")
    assert (job.model, job.weights.quantization.method) == ("models/llama-3-8b.Q8_0.gguf", "gguf-q8_0")
