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


def test_every_spelling_of_an_option_counts(jobs_of):
    (job,) = jobs_of("llama-server -hfr a/b-GGUF --cache_type_k q4_0 -np 2 -nkvo --flash-attn on\n", "run.sh")
    assert (job.model, job.inference.kv_cache_dtype, job.inference.max_num_seqs) == ("a/b-GGUF", "q4_0", 2)


def test_variables_set_options_and_flags_win(jobs_of):
    (job,) = jobs_of("export LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=8\nllama-server -m x.gguf -np 2\n", "run.sh")
    assert (job.inference.max_model_len, job.inference.max_num_seqs) == (4096, 2)


def test_a_misspelt_option_is_found_and_a_former_one_is_not(launched):
    (opened,) = launched("llama-server -m x.gguf --no-mmap --ctx-sise 4096\n", "run.sh").opened
    problems = [item for item in opened.reading.problems if item.kind == "unknown-key"]
    assert [(item.key, item.values["suggestion"]) for item in problems] == [("ctx-sise", "ctx-size")]
