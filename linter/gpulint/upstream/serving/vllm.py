"""vLLM; how it shares out a card by release is a table beside the estimator (`vllm.json`)."""

from __future__ import annotations

from ..behaviour import Behaviour, Default

NAME = "vllm"

CHUNKS_LONG_PROMPTS = Behaviour(
    NAME,
    "cuts prompts into batches for contexts over 32k without being asked",
    "vLLM PR 6666",
    since="0.5.4",
)
QUANTIZES_WHILE_LOADING = Behaviour(
    NAME,
    "quantizes 16-bit weights as it loads them, to float8 or with bitsandbytes",
    "model_executor/layers/quantization/fp8.py, bitsandbytes.py of 0.5.0",
    since="0.5.0",
)
TABLE_A_LAYER = Behaviour(
    NAME,
    "makes Gemma 2's rotary table anew for each layer",
    "0.5.4 models/gemma2.py; `get_rope` since",
    until="0.6.0",
)
PADS_LATENT_HEADS = Behaviour(
    NAME,
    "pads the keys and values of DeepSeek-V2's heads to 256",
    "config.py `get_head_size` (vllm-project/vllm#12067)",
    until="0.7.0",
)
LATENT_ATTENTION = Behaviour(
    NAME,
    "caches the latent of latent attention; before, keys and values of each head",
    "a log before 0.7.1: 35.42 GiB in 5,373 blocks of 16 tokens for 27 layers of 16 heads (vllm-project/vllm#10927)",
    since="0.7.1",
)
ALIGNS_LATENT = Behaviour(
    NAME,
    "aligns the latent of one token to 256 bytes",
    "worker/cache_engine.py `_align_cache` of 0.7.2 and 0.7.3",
    since="0.7.2",
    until="0.8.0",
)
ABSORBS_PROJECTIONS = Behaviour(
    NAME,
    "multiplies latent attention's projections with each other as it loads; since, it keeps the up-projections",
    "0.7.2 attention/backends/mla/utils.py, model_loader/loader.py `load_model`",
    until="0.8.0",
)
COPIES_OFFLOADED = Behaviour(
    NAME,
    "has a layer's forward pass copy all of its offloaded weights to the GPU, until it returns; since, they are read"
    " where they lie",
    "model_executor/models/utils.py `maybe_offload_to_cpu`, 0.6.5 and 0.8.5",
    until="0.8.0",
)
V1_ENGINE = Behaviour(
    NAME,
    "runs the newer engine by default; the earlier one runs whole requests, text and items together",
    "worker/model_runner.py `profile_run` of 0.6.6 (`max_mm_tokens`); v1 since 0.8",
    since="0.8",
)
OLD_CARDS_ON_V0 = Behaviour(
    NAME,
    "stays with the engine of 0.7 on cards below compute capability 8.0",
    "engine/arg_utils.py `_is_v1_supported_oracle`",
    since="0.8.0",
    until="0.10.0",
)
LAST_V0 = "0.7.3"
"""The last release with that engine alone."""

ROTATES_BY_TURNS = Behaviour(
    NAME,
    "rotates one of a vision block's queries and keys at a time in float32; before, both by torch operations",
    "`Qwen2VisionAttention`, `Qwen2_5_VisionAttention` `forward`, `split_qkv`; `apply_rotary_pos_emb_vision`",
    since="0.9",
)
CHUNKED_LAYERS = Behaviour(
    NAME,
    "knows layers that attend in chunks (Llama 4), which need not keep all tokens",
    "v1/kv_cache_interface.py: not in 0.9.2, in 0.10.0",
    since="0.10.0",
)
CHUNKED_LAYERS_WHOLE = Behaviour(
    NAME,
    "keeps all tokens of such layers unless a variable says otherwise",
    "envs.py `VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE`, off in 0.10.1 and 0.13.0, on in 0.14.0",
    since="0.10.1",
    until="0.14.0",
)
BUDGETS_ITEMS = Behaviour(
    NAME,
    "counts the items of a profile run by the encoder's budget; before, `profile_run` rounds up",
    "`MultiModalBudget._get_max_items`",
    since="0.10.1",
)
JOINED_GATE_UP = Behaviour(
    NAME,
    "makes gate and up of Qwen2.5-VL's vision MLP in one tensor; before, three with their product",
    "`Qwen2_5_VisionMLP`",
    since="0.10.1",
)
ROTATES_COPIES = Behaviour(
    NAME,
    "copies a vision block's queries and keys to float32 to rotate them; before, it copied values, too",
    "`Qwen2VisionAttention`, `Qwen2_5_VisionAttention` `forward`; `apply_rotary_pos_emb_vision`",
    since="0.11",
)
GATHERS_VISION_HEADS = Behaviour(
    NAME,
    "has Qwen2.5-VL's ranks gather queries, keys and values first",
    "`Qwen2_5_VisionAttention.split_qkv`",
    until="0.11",
)
SEVEN_PAIRS = Behaviour(
    NAME,
    "makes a video of at most 7 pairs of frames; before, of 8",
    "qwen2_vl.py `_MAX_FRAMES_PER_VIDEO`, `get_num_frames_with_most_features`",
    since="0.11",
)
VIDEO_BESIDE_IMAGE = Behaviour(
    NAME,
    "counts the largest video beside an image, and makes it as long as a batch",
    "qwen2_vl.py `get_num_frames_with_most_features` up to 0.10; as long as a request since",
    until="0.11",
)
SCATTERS_OUTPUTS = Behaviour(
    NAME,
    "copies outputs of the encoder that are shorter than its budget into tensors as long as that",
    "v1/worker/gpu_model_runner.py of 0.11 and 0.12",
    since="0.11",
    until="0.13",
)
ROTATES_IN_PLACE = Behaviour(
    NAME,
    "has the rotation of a vision block read queries and keys where they lie",
    "`Qwen2VisionAttention`, `Qwen2_5_VisionAttention` `forward`; `apply_rotary_pos_emb_vision`",
    since="0.13",
)
ANY_SHAPE = Behaviour(
    NAME,
    "makes the largest image of any shape; before, a square one",
    "qwen2_vl.py `get_image_size_with_most_features`",
    since="0.13",
)
COUNTS_TIMES = Behaviour(
    NAME,
    "counts the time in words with each of Qwen3-VL's video tokens",
    "qwen3_vl.py `get_max_video_tokens` up to 0.12",
    until="0.13",
)
NEMOTRON_OWN_DTYPE = Behaviour(
    NAME,
    "keeps Nemotron-H's states in the dtype that its config says, float16 where it does not; before, in the model's",
    "model_executor/models/config.py `NemotronHForCausalLMConfig`: float16 in 0.13.0 and 0.15.1; 0.11.2 has none",
    since="0.13",
)
NEMOTRON_FLOAT32 = Behaviour(
    NAME,
    "keeps them in float32 where the config does not say",
    "model_executor/models/config.py `NemotronHForCausalLMConfig` of 0.20.0",
    since="0.20",
)
READS_MODELOPT = Behaviour(
    NAME,
    "takes the dtype of the cache that Model Optimizer states",
    "utils/torch_utils.py `resolve_kv_cache_dtype_string`: in 0.14.0, not in 0.13.0",
    since="0.14.0",
)
READS_COMPRESSED = Behaviour(
    NAME,
    "takes the dtype of the cache that compressed-tensors states",
    "attention/layer.py `Attention.__init__`: in 0.15.1, not in 0.14.0",
    since="0.15",
)
ROTATES_COPY = Behaviour(
    NAME,
    "copies queries and keys of every family's vision block before it rotates them; before, of Qwen2-VL's alone",
    "`Qwen2_5_VisionAttention.forward`; `apply_rotary_pos_emb_vision`",
    since="0.15",
)
FUSED_ACTIVATION = Behaviour(
    NAME,
    "has the activation of Qwen2.5-VL's vision MLP take no more than its input and output; before, its own torch"
    " operations",
    "`Qwen2_5_VisionMLP`, custom_op.py",
    since="0.15",
)
SKIPS_TOWERS = Behaviour(
    NAME,
    "skips the weights of a tower all of whose kinds of input are limited to none",
    "model_executor/models/interfaces.py `_mark_tower_model`: in 0.15.1, not in 0.14.0, where some models did so by"
    " themselves",
    since="0.15",
)
CACHES_STATES = Behaviour(
    NAME,
    "keeps the last two states of a request with prefix caching; before, one",
    "v1/kv_cache_interface.py `MambaSpec.max_memory_usage_bytes`: in 0.15.1, not in 0.14.0",
    since="0.15",
)
KEEPS_ALL_STATES = Behaviour(
    NAME,
    "keeps a state with each block of tokens for the models that can",
    "model_executor/models/config.py `MambaModelConfig`: 0.15.1 to 0.26; 0.28 the last ones alone",
    until="0.28",
)
HYBRID_PREFIX_CACHING = Behaviour(
    NAME,
    "caches prefixes of hybrid models unasked",
    "config/model.py `is_prefix_caching_supported`: not in 0.24, in 0.26",
    since="0.26",
)
SHARES_DRAFT_HEAD = Behaviour(
    NAME,
    "replaces the heads of prediction layers by the model's",
    "v1/spec_decode/llm_base_proposer.py `_maybe_share_lm_head`; not in 0.15.1 v1/spec_decode/eagle.py",
    since="0.20",
)
COMPRESSED_BUCKETS = Behaviour(
    NAME,
    "has a block of compressed attention hold as many pages of a size as one group needs",
    "v1/core/kv_cache_utils.py",
    since="0.23.0",
)
LARGEST_GROUP = Behaviour(
    NAME,
    "has it hold as much as the largest group needs",
    "v1/core/kv_cache_utils.py",
    since="0.31.0",
)
LOGS_CONSUMED = Behaviour(
    NAME,
    "logs what stays of the profile run as consumed, and the graphs that it takes off the cache as activations",
    "v1/worker/gpu_worker.py `peak_activation_memory`, utils/mem_utils.py",
    since="0.27.0",
)
COUNTS_SEGMENTS = Behaviour(
    NAME,
    "counts segments that torch cannot give back",
    "utils/mem_utils.py `total_consumed`, not in 0.26.0",
    since="0.27",
)
SPLITS_NO_LARGE_BLOCK = Behaviour(
    NAME,
    "splits no large free block while memory is measured",
    "`_scoped_allocator_max_split`, not in 0.30.0",
    since="0.31",
)
REFINES_EXPERT_BLOCKS = Behaviour(
    NAME,
    "gives experts of whose FP8 blocks a rank has no whole number smaller ones, of 32 or more, that divide its share",
    "layers/fused_moe/oracle/fp8.py `refine_fp8_moe_block_shape`, not in 0.32.0",
    since="0.33.0",
)
LEAST_EXPERT_BLOCK = 32

PINS = (
    Default(
        NAME, "torch", "2.4.0", "the wheels' requirements until vllm-project/vllm#9588 (October 2024)", until="0.6.4"
    ),
    Default(
        NAME,
        "torch",
        "2.6.0",
        "the wheels' requirements: 0.8.5 pins 2.6.0, the main branch after it 2.7.0 (LMCache/LMCache#561)",
        since="0.6.4",
        until="0.9.0",
    ),
)
"""Packages that a release brings in a release of their own."""
