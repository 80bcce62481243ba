"""The part of a Job that says how a model generates or is served."""

from __future__ import annotations

from dataclasses import dataclass

from ..declared import declared


@dataclass(slots=True)
class Inference:
    """A generation or serving run; null fields are the engine's own defaults for its version and GPU."""

    engine: str = declared("`transformers`, `vllm`, `sglang`, `tgi`, `trtllm`, `lmdeploy` ...", "transformers")
    version: str | None = declared("The engine's version.", None)
    batch_size: int | None = declared("Batch size, if the engine has no scheduler.", None, least=1)
    prompt_length: int | None = declared("Prompt length.", None, unit="tokens", least=0)
    new_tokens: int | None = declared("Generated tokens.", None, unit="tokens", least=0)
    max_model_len: int | None = declared(
        "Maximum length of prompt plus output; -1 for the longest that fits.", None, unit="tokens", least=-1
    )
    max_num_seqs: int | None = declared("Maximum concurrent requests.", None, least=1)
    max_num_batched_tokens: int | None = declared("Maximum tokens per step.", None, unit="tokens", least=1)
    kv_cache_dtype: str | None = declared("Dtype of the KV cache.", None)
    kv_cache_memory_bytes: int | None = declared("Size of the KV cache, if set in bytes.", None, unit="bytes", least=0)
    max_total_tokens: int | None = declared(
        "Maximum tokens in the KV cache of a rank (SGLang, TensorRT-LLM).", None, unit="tokens", least=0
    )
    gpu_memory_utilization: float | None = declared("Share of GPU memory that the engine uses.", None, least=0)
    block_size: int | None = declared("Tokens per KV cache block.", None, unit="tokens", least=1)
    enforce_eager: bool = declared("Whether CUDA graphs and compilation are off.", False)
    compiles: bool | None = declared(
        "False if vLLM captures CUDA graphs without compiling (`compilation_config` mode 0).", None
    )
    full_prefill_logits: bool | None = declared("Whether prefill computes the logits of every token.", None)
    cpu_offload_gb: float = declared("GiB of weights offloaded to host RAM per GPU.", 0.0, least=0)
    swap_space_gb: float | None = declared("GiB of host RAM per GPU for swapped-out requests.", None, least=0)
    enable_lora: bool = declared("Whether LoRA adapters are served.", False)
    max_loras: int | None = declared("Maximum adapters in one batch.", None, least=0)
    max_lora_rank: int | None = declared("Maximum rank of an adapter.", None, least=0)
    speculative_model: str | None = declared("The draft model.", None)
    speculative_algorithm: str | None = declared(
        "Method of speculative decoding: SGLang's `EAGLE`, `EAGLE3`, `NEXTN`, `STANDALONE`, `NGRAM` ..., or "
        "vLLM's `method` (`mtp`, `ngram`) if set.",
        None,
    )
    speculative_tokens: int | None = declared(
        "Tokens that the draft proposes per step (vLLM's `num_speculative_tokens`).", None, least=0
    )
    cudagraph_capture_sizes: list[int] | None = declared("Batch sizes for which CUDA graphs are captured.", None)
    chunked_prefill: bool | None = declared("Whether long prompts are prefilled in chunks.", None)
    flashinfer_sampler: bool | None = declared(
        "Whether vLLM samples with FlashInfer (VLLM_USE_FLASHINFER_SAMPLER).", None
    )
    performance_mode: str | None = declared(
        "vLLM's `performance_mode`: `throughput` doubles the batch, `interactivity` captures more small CUDA graphs.",
        None,
    )
    prefix_caching: bool | None = declared(
        "Whether prompt prefixes stay in the KV cache for later requests; SGLang's radix cache.", None
    )
    max_states: int | None = declared(
        "Requests whose Mamba states SGLang caches (`max_mamba_cache_size`).", None, least=0
    )
    state_ratio: float | None = declared(
        "Memory of Mamba states relative to the KV cache in SGLang (`mamba_full_memory_ratio`).", None, least=0
    )
    kv_cache_off: bool = declared("Whether SGLang's KV cache is off (`prefill_only_disable_kv_cache`).", False)
    attention_backend: str | None = declared("SGLang's attention backend, if set (`aiter`, `triton` ...).", None)
    pooling: bool | None = declared(
        "Whether vLLM serves a pooling model (`--runner pooling`), which returns hidden states; null if "
        "nothing sets it.",
        None,
    )
    modalities_off: list[str] | None = declared("Modalities (image, video, audio) that are turned off.", None)
    skip_mm_profiling: bool = declared("Whether vLLM's profile run skips the vision encoder.", False)
