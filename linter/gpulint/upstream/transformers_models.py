"""Transformers: what the classes of single model types did, and until which release.

Read in the wheels of 4.38.2, 4.40.2 to 4.46.3, 4.48.3, 4.51.3, 4.53.3 and 5.23, and those that a row names. A change is
put where it is first seen; what 4.53.3 still did and 5.23 no longer does is put at 5.0.
"""

from __future__ import annotations

from .behaviour import BehaviourByType, Span, never, since, until
from .transformers import NAME

NARROW_LOSS = BehaviourByType(
    NAME,
    "has the loss of a model that does not call the shared one take the logits in the width they have",
    "the models' `forward`, read in 4.48.3; modeling_qwen.py, the first Qwen's own; modeling_qwen2_audio.py (5.23)",
    types=since(
        {"": "bloom codegen dbrx falcon gpt2 gpt_bigcode gpt_neox gptj mpt opt persimmon stablelm qwen qwen2_audio"}
    ),
)
SHARED_LOSS = BehaviourByType(
    NAME,
    "has the model call the shared loss, which makes 16-bit logits float32",
    "loss/loss_utils.py `ForCausalLMLoss`, read in each release's modelling code; the first Qwen's own code"
    " (modeling_qwen.py) and modeling_qwen2_audio.py (5.23) never do",
    types={
        **since(
            {
                "4.47": "starcoder2",
                "4.48": "granite mistral",
                "4.48.3": "gpt_neo granitemoe recurrent_gemma bloom codegen dbrx falcon gpt2 gpt_bigcode gptj mpt opt"
                " persimmon stablelm",
                "4.49": "gpt_neox jetmoe",
                "5.0": "falcon_mamba mamba",
            }
        ),
        **never("qwen qwen2_audio"),
    },
    others=Span(since="4.46"),
)
KEEPS_CACHE = BehaviourByType(
    NAME,
    "leaves `use_cache` on in training, so that keys and values live on with the outputs",
    "modeling_gpt_bigcode.py before 4.53",
    types=until({"4.53": "gpt_bigcode"}),
)
IGNORES_CHECKPOINTING = BehaviourByType(
    NAME,
    "does not checkpoint the layers, whatever was asked for",
    "modeling_starcoder2.py of 4.48 to 4.51, which does not call `_gradient_checkpointing_func`",
    types={"starcoder2": Span("4.48", "4.52")},
)
FUSED_EXPERTS = BehaviourByType(
    NAME,
    "holds the experts of a layer in fused tensors",
    "the types' modeling files in 4.57; all in 5.0 (core_model_loading.py, integrations/moe.py)",
    types=since(
        {
            "": "llama4 llama4_text gpt_oss granitemoe granitemoeshared granitemoehybrid dbrx jetmoe qwen3_vl_moe"
            " qwen3_vl_moe_text aria aria_text"
        }
    ),
    others=Span(since="5.0"),
)
FLOAT32_STATES = BehaviourByType(
    NAME,
    "keeps the float32 state that a mixer's scan returns in the cache as it is",
    "cache_utils.py `LinearAttentionLayer.update_recurrent_state` (5.23); before 5.0 the caches of Mamba 2 hybrids"
    " copied it into tensors of the model's dtype",
    types=since({"": "delta kimi_delta rglru mlstm", "5.0": "mamba2 mamba2_scaled"}),
)
NO_SDPA = BehaviourByType(
    NAME,
    "has no class over torch's scaled_dot_product_attention, where the default falls back to eager",
    "`_supports_sdpa`; wheels 4.35.2 to 4.51.3 as well, and 4.55.4 to 5.20.0",
    types=until(
        {
            "4.37": "mistral mixtral",
            "4.39": "phi stablelm",
            "4.41": "bert vit",
            "4.42": "gpt2 gpt_neox",
            "4.43": "clip siglip",
            "4.45": "biogpt camembert m2m_100 mbart phi3 roberta xlm-roberta xlm-roberta-xl",
            "4.46": "distilbert opt",
            "4.53": "blenderbot blenderbot-small fuyu marian pegasus persimmon plbart",
            "5.0": "bert-generation electra ernie roberta-prelayernorm roc_bert xmod",
            "5.14": "ctrl",
            "5.16": "mt5 t5 umt5",
        }
    ),
    others=Span(until="4.36"),
)
TUPLES = BehaviourByType(
    NAME,
    "passes the cache on as tuples",
    "generation/utils.py `_supports_default_dynamic_cache`, the models' `_supports_cache_class`",
    types=until(
        {
            "4.44": "bloom gemma2",
            "4.45": "codegen falcon git gpt_neo gpt_neox gptj",
            "4.51": "opt",
            "4.53": "biogpt gpt2",
            "4.54": "ctrl gpt_bigcode mpt xglm",
        }
    ),
    others=Span(until="4.42"),
)
WHOLE_LOGITS = BehaviourByType(
    NAME,
    "makes the logits of the whole prompt",
    "`num_logits_to_keep`, later `logits_to_keep`, of the forward pass; GLM came with it, and ChatGLM's own code"
    " asks for the last token's (`return_last_logit`)",
    types={
        **until(
            {
                "4.48": "granite",
                "4.51": "falcon gpt_neox",
                "4.53": "granitemoe granitemoeshared gpt2",
                "5.0": "biogpt bloom codegen ctrl falcon_mamba glm4v gpt_bigcode gpt_neo gptj mamba mamba2 mpt opt"
                " qwen2_5_vl qwen2_vl recurrent_gemma xglm",
            }
        ),
        **never("glm"),
    },
    others=Span(until="4.45"),
)
FLOAT_LOGITS = BehaviourByType(
    NAME,
    "makes a float32 copy of all logits",
    "the models' `forward`: `logits = logits.float()`",
    types={
        **never("bloom ctrl dbrx falcon gpt2 gpt_bigcode gpt_neox mpt opt persimmon stablelm xglm"),
        **until({"5.0": "codegen gpt_neo gptj"}),
    },
    others=Span(until="4.46"),
)
ROTARY_TABLES = BehaviourByType(
    NAME,
    "keeps tables of cosines and sines for every position in each attention layer",
    "the models' `_set_cos_sin_cache`",
    types=until({"4.45": "falcon gpt_neox mistral mixtral olmo phi qwen2 qwen2_moe stablelm starcoder2"}),
)
REPEATED_KEYS = BehaviourByType(
    NAME,
    "repeats keys and values for every query head before flash attention",
    "`repeat_kv` in the FlashAttention2 classes; wheels 4.36.2, 4.49.0, 4.50.3, 4.55.4 and 4.57.1 as well",
    types=until(
        {
            "4.48": "mistral mixtral phi3 qwen2 starcoder2 zamba",
            "4.51": "idefics2",
            "4.53": "qwen2_5_vl qwen2_vl",
            "5.0": "jamba phimoe qwen2_moe",
        }
    ),
)
CHECKPOINTED_TOWER = BehaviourByType(
    NAME,
    "checkpoints the layers of Mllama's tower",
    "`MllamaVisionEncoder._gradient_checkpointing_func`; wheels 4.46.3 to 4.54.1, no longer in 4.55.4, 4.57.1 and 5.23",
    types={},
    others=Span(until="4.55"),
)
REMOTE_CODE = BehaviourByType(
    NAME,
    "has no class yet: the model runs as its authors' code, which makes no float32 logits and shares its rotary tables",
    "models/glm, models/qwen2",
    types=until({"4.46": "glm", "4.37": "qwen2"}),
)
FUSED_VALUES = BehaviourByType(
    NAME,
    "keeps a prompt's values as a view of queries, keys and values together, until the next token's torch.cat copies"
    " them: behind rotated keys of their own the values alone are one",
    "GPT-NeoX, Phi-3, DBRX: `qkv.chunk`, slices and `split`, then `transpose`; from 4.56 on a cache's first tokens are"
    " copied, too (cache_utils.py `DynamicLayer.lazy_initialization`). Qwen-7B had no class yet, and its authors' code"
    " does so (modeling_qwen.py `QWenAttention.forward`)",
    types=until({"4.37": "qwen2", "4.56": "gpt_neox phi3 dbrx"}),
)
FUSED_KEYS = BehaviourByType(
    NAME,
    "keeps a prompt's keys and values both as views of queries, keys and values together",
    "modeling_gpt2.py and modeling_gpt_bigcode.py: `c_attn(...).split`; modeling_mpt.py: `mixed_qkv.chunk`; copied from"
    " 4.56 on, as FUSED_VALUES",
    types=until({"4.56": "gpt2 gpt_bigcode mpt"}),
)
CAUSAL_MASKS = BehaviourByType(
    NAME,
    "keeps a causal mask of bytes for all positions as a buffer of each layer",
    '`register_buffer("bias", torch.tril(torch.ones((max_positions, max_positions), dtype=torch.bool)))`, CodeGen\'s'
    " `causal_mask`; wheels 4.36.2 to 4.57.1 and 5.23 (GPT-Neo and GPTBigCode have theirs to this day: they are in the"
    " architecture tables)",
    types=until({"4.45": "gptj codegen", "4.49": "gpt_neox", "5.0": "gpt2"}),
)
NATIVE_SCORES = BehaviourByType(
    NAME,
    "takes eager attention's softmax in the width of the scores, where it is float32 since",
    "modeling_gpt_neox.py, wheels 4.48.3 and 4.49.0",
    types=until({"4.49": "gpt_neox"}),
)
WIDE_NATIVE_SCORES = BehaviourByType(
    NAME,
    "takes it so but for float16, whose softmax is float32 already",
    "modeling_opt.py, wheels 4.28.1 to 4.48.3",
    types=until({"4.49": "opt"}),
)
BOUNDED_SCORES = BehaviourByType(
    NAME,
    "bounds eager attention's masked scores from below, whose input autograd keeps",
    "`torch.max(attn_weights, torch.tensor(torch.finfo(attn_weights.dtype).min))`, wheels 4.28.1 to 4.51.3; XGLM, which"
    " has no row of traits, to this day",
    types=until({"4.31": "llama", "4.49": "opt"}),
)
