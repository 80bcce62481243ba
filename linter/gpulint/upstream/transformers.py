"""Transformers: its Trainer, its modelling code as a whole, `generate`, and how it loads weights.

What single model classes do stands in `transformers_models`.
"""

from __future__ import annotations

from .behaviour import Behaviour, Default

NAME = "transformers"

FUSED_EVALUATION = Behaviour(
    NAME,
    "asks Liger's models to skip the logits in an evaluation; before, they make them whenever they do not train",
    "trainer.py `prediction_step`; liger_kernel/transformers/model/llama.py `skip_logits`",
    since="5.15",
)
STEP_BATCHES_AT_ONCE = Behaviour(
    NAME,
    "takes all micro batches of a step from the loader, which has put them on the GPU, before it runs the first",
    "trainer.py `get_batch_samples`; accelerate data_loader.py `__iter__`",
    since="4.46",
)
USE_CACHE_OFF = Behaviour(
    NAME,
    "turns `use_cache` off in its Trainer unless asked",
    "trainer.py, training_args.py `use_cache`",
    since="5.0",
)
CACHE_TUPLES = Behaviour(
    NAME,
    "returns every layer's keys and values with the outputs of a training step, as a tuple",
    "modeling_llama.py `return_legacy_cache` up to 4.45; a cache object since, which some releases make anew of what"
    " was gathered (cache_utils.py 4.57, not 4.48)",
    until="4.46",
)
LAYERS_RETURN_CACHE = Behaviour(
    NAME,
    "has Llama's layers return keys and values, where later they go into an object that is handed through",
    "4.31 models/llama/modeling_llama.py `LlamaModel.forward`",
    until="4.36",
)
REENTRANT = Behaviour(
    NAME,
    "makes the checkpoints of its Trainer reentrant unless asked",
    "modeling_utils.py `gradient_checkpointing_enable` (5.23: not any more)",
    until="5.0",
)
TOWER_INPUTS_REQUIRE_GRAD = Behaviour(
    NAME,
    "makes the input of a vision tower want a gradient, too, where an adapter's base is checkpointed",
    "modeling_utils.py `enable_input_require_grads`",
    since="5.0",
)
SDPA_NEEDS_TORCH_2_1_1 = Behaviour(
    NAME,
    "falls back to eager attention with a torch older than 2.1.1",
    "utils/import_utils.py `is_torch_sdpa_available`",
    until="5.0",
)
CONTIGUOUS_OPERANDS = Behaviour(
    NAME,
    "lays the operands of sdpa out anew",
    "integrations/sdpa_attention.py (`contiguous`), read from 4.48 to 4.57",
    since="4.48",
    until="4.56",
)
GROUPED_KEYS = Behaviour(
    NAME,
    "has sdpa group keys and values itself (`enable_gqa`); before, they are repeated for every query head",
    "integrations/sdpa_attention.py `use_gqa_in_sdpa`",
    since="4.54",
)
PACKED_QUERIES = Behaviour(
    NAME,
    "repeats no keys under a mask for one new token: the queries of a group become rows",
    "integrations/sdpa_attention.py `pack_gqa`, which 5.22.0 has not",
    since="5.23",
)
GROUPED_EXPERTS = Behaviour(
    NAME,
    "runs experts as grouped matmuls of fused tensors; before, one after the other as plain Linear layers",
    "integrations/moe.py (5.0); modeling_mixtral.py of 4.57 loops",
    since="5.0",
)
INDEXES_BY_LIST = Behaviour(
    NAME,
    "takes gpt_oss's experts by an index that has a dimension, which copies each weight",
    "modeling_gpt_oss.py of 4.55 (`for expert_idx in expert_hit[:]`)",
    until="4.56",
)
PADDED_LABELS = Behaviour(
    NAME,
    "pads the labels in the shared loss; before, it copies the logits to drop each sequence's last",
    "loss/loss_utils.py `ForCausalLMLoss`",
    since="4.49",
)
EINSUM_SCAN = Behaviour(
    NAME,
    "contracts Mamba 2's scan by torch.einsum",
    "models/mamba2/modeling_mamba2.py",
    since="5.18",
)
NAMED_PRODUCT = Behaviour(
    NAME,
    "names the first of the products that Mamba 2's scan sums, which so stays alive",
    "models/mamba2/modeling_mamba2.py `G_intermediate` (`C_times_states` always had a name)",
    until="5.15",
)
REPEATED_CROSS_KEYS = Behaviour(
    NAME,
    "has a class of Mllama's attention to images for eager, which caches repeated keys and values, and one for sdpa,"
    " which repeats them in every step and norms the repeated keys",
    "modeling_mllama.py MllamaTextCrossAttention, MllamaTextCrossSdpaAttention; wheels 4.45.2 to 4.53.3",
    until="4.53",
)
CACHED_LATENT = Behaviour(
    NAME,
    "caches the latent of latent attention; before, the keys and values of all heads",
    "modeling_deepseek_v3.py of 4.57 and 5.23",
    since="5.0",
)
WINDOW_VIEWS_PROMPT = Behaviour(
    NAME,
    "keeps a sliding layer's window as a view of all the prompt's keys and values until the next token",
    "cache_utils.py DynamicSlidingWindowLayer.update",
    since="5.0",
)
LAST_LOGITS = Behaviour(
    NAME,
    "has `generate` take the last token's logits out of those of the prompt before it makes them float32",
    "generation/utils.py `_sample`: `outputs.logits[:, -1, :].clone().float()`",
    since="4.45",
)
DELETED_OUTPUTS = Behaviour(
    NAME,
    "drops the outputs of a pass before `generate` runs the next",
    "generation/utils.py `del outputs`",
    since="4.42",
)
REPLAYED_PROMPT = Behaviour(
    NAME,
    "has the modelling code that is replayed for the prompt of `generate`; that of older ones has formulas",
    "read in 5.23",
    since="5.0",
)
TOWER_OUTPUTS = Behaviour(
    NAME,
    "asks the tower of LLaVA's class and its kin for the outputs of all layers",
    "modeling_llava.py `output_hidden_states=True`, wheels 4.45.2 to 4.57.6; the code of others is read in 5.23 alone",
    until="5.0",
)
LOADING_BLOCK = Behaviour(
    NAME,
    "asks for one block that all plain weights are cut from as they are loaded",
    "modeling_utils.py `caching_allocator_warmup`",
    since="4.50",
)
HALF_BLOCK = Behaviour(
    NAME,
    "asks for a block of half the bytes that bitsandbytes' weights have before they are packed",
    "modeling_utils.py `caching_allocator_warmup`, quantizers/base.py `get_cuda_warm_up_factor`; 4.50 left packed"
    " models out, 5.0 asks the quantizer (`param_element_size`)",
    since="4.51",
    until="5.0",
)
TIED_ONCE = Behaviour(
    NAME,
    "counts tied weights once for that block",
    "modeling_utils.py `caching_allocator_warmup`",
    since="4.54",
)
LEAVES_SHARE = Behaviour(
    NAME,
    "leaves a share of the card free of that block; since, a number of bytes",
    "modeling_utils.py `caching_allocator_warmup` of 4.51 and 4.52",
    until="4.52",
)
READS_AHEAD = Behaviour(
    NAME,
    "reads weights in threads ahead of packing them",
    "core_model_loading.py, whose thread pool was made without asking for the quantizer until pull request 44576"
    " (5.4: `has_on_the_fly_quantization`)",
    since="5.0",
    until="5.4",
)
UNTIES_STORED_HEADS = Behaviour(
    NAME,
    "leaves embedding and head apart where a tied checkpoint stores both; since, it ties them where they are equal",
    "core_model_loading.py, modeling_utils.py `tie_weights` of 5.0 and 5.4",
    since="5.0",
    until="5.4",
)
AUTO_GPTQ = Behaviour(
    NAME,
    "runs GPTQ by AutoGPTQ; since, by GPTQModel, which takes Marlin",
    "quantizers/quantizer_gptq.py",
    until="4.48",
)
PACKS_LINEAR_ALONE = Behaviour(
    NAME,
    "has bitsandbytes take nn.Linear itself alone; before, what derives from it, too",
    "integrations/bitsandbytes.py `replace_with_bnb_linear` (`type(module) is nn.Linear`; 5.4.0 takes the others)",
    since="5.5",
)
BEFORE_BITSANDBYTES_0_50 = Behaviour(
    NAME,
    "is of a time when bitsandbytes was older than 0.50",
    "release dates on PyPI",
    until="5.0",
)
BEFORE_ACCELERATE_1_0 = Behaviour(
    NAME,
    "is of a time when accelerate was older than 1.0",
    "release dates on PyPI (October 2024)",
    until="4.46",
)
BEFORE_OPENRLHF_0_8_10 = Behaviour(
    NAME,
    "is what OpenRLHF up to 0.8.9 pins (4.54.1)",
    "openrlhf 0.8.9 requirements.txt",
    until="4.55",
)
NEEDS_ACCELERATE_1_1 = Behaviour(
    NAME,
    "does not run with an accelerate older than 1.1.0",
    "setup.py: `accelerate>=1.1.0`",
    since="5.0",
)
FSDP_SHARDING_KEYS = Behaviour(
    NAME,
    "reads `version` and `reshard_after_forward` of `fsdp_config`",
    "training_args.py and trainer.py of the wheels 4.46.0 to 5.23.0",
    since="5.0",
)
FSDP_PLUGIN_KEYS = Behaviour(
    NAME,
    "reads `cpu_offload`, `auto_wrap_policy`, `state_dict_type` of `fsdp_config`; before, offload is a word of `fsdp`",
    "training_args.py and trainer.py of the wheels 4.46.0 to 5.23.0",
    since="5.10",
)

_ARGUMENTS = (
    "training_args.py of the wheels 4.29.2 to 4.32.1, 4.55.4, 4.57.1, 5.0.0, 5.3.0, 5.4.0, 5.9.0, 5.10.0, 5.23.0"
)
_MODELING = "modeling_utils.py of the wheels 4.55.4, 4.57.1, 5.0.0 and 5.23.0"

DEFAULTS = (
    Default(NAME, "optim", "adamw_hf", _ARGUMENTS, until="4.32"),
    Default(NAME, "optim", "adamw_torch", _ARGUMENTS, since="4.32", until="4.55"),
    Default(NAME, "dtype", "float32", _MODELING, until="5.0"),
    Default(NAME, "reentrant", True, _MODELING, until="5.0"),
    Default(NAME, "fsdp_reshard_after_forward", False, f"{_ARGUMENTS}; that of FSDP 2", until="5.4"),
    Default(NAME, "fsdp_version", 1, _ARGUMENTS, until="5.10"),
    Default(NAME, "fsdp_wrap", "none", f"{_ARGUMENTS}; of an `fsdp` without `auto_wrap`", until="5.10"),
)
