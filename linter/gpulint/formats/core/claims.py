"""The signs of every tool's files; `others.py` has those of files that look alike."""

from __future__ import annotations

from .signs import (
    FILES,
    MOSTLY,
    OWN,
    SHARED,
    TELLING,
    Signature,
    any_of,
    below,
    claim,
    says,
    section,
    signature,
    switch,
    value,
)

YAML = frozenset({"yaml"})
TOML = frozenset({"toml"})
FLAGS = frozenset({"flags"})
_LAID = YAML | FLAGS
"""A YAML file, or one with a command's overrides laid over it."""

_ENGINE = 0.6
"""The share of an engine's options in its file: many have common names (`model`, `dtype`), so half is too few."""
_AREAL = any_of(TELLING, "cluster", "allocation_mode", "experiment_name")
_AREAL_MODEL = ("mb_spec", "backend", "optimizer", "fsdp")
_LITGPT = (
    section(TELLING, "train"),
    any_of(
        TELLING, "train.global_batch_size", "train.micro_batch_size", "train.max_seq_length", "train.max_tokens",
        "train.lr_warmup_steps",
    ),
)  # fmt: skip
_MCLI = says(OWN, "command", "llm-foundry")
_MEGATRON = (
    "num_layers", "hidden_size", "num_attention_heads", "micro_batch_size", "tensor_model_parallel_size",
)  # fmt: skip
_NEMO_MODEL = any_of(
    TELLING,
    *below(
        "model",
        "tensor_model_parallel_size", "megatron_amp_O2", "mcore_gpt", "restore_from_path", "unet_config", "mm_cfg",
        "encoder_seq_length", "inductor", "first_stage_key", "vision", "patch_dim", "nemo_model", "checkpoint_folder",
        "language_model_path", "hparams_file", "precision",
    ),
)  # fmt: skip
_NESTED_TRAINER = any_of(TELLING, "critic.trainer", "actor.trainer")
_NEMO_RL_POLICY = (
    "train_global_batch_size", "train_micro_batch_size", "max_total_sequence_length", "dtensor_cfg", "megatron_cfg",
    "generation", "logprob_batch_size", "make_sequence_length_divisible_by", "sequence_packing",
)  # fmt: skip
_NEOX = (
    "train_iters", "lr_decay_iters", "data_impl", "checkpoint_activations", "partition_activations", "eval_iters",
    "pipe_parallel_size", "model_parallel_size", "synchronize_each_layer", "distributed_backend",
)  # fmt: skip
_SWIFT = ("tuner_type", "train_type", "rlhf_type", "sft_type")
_TORCHTUNE = (
    "model", "tokenizer", "checkpointer", "policy_model", "dataset", "optimizer", "loss", "metric_logger", "profiler",
)  # fmt: skip
_TRAINING_ARGUMENTS = (
    "per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "learning_rate",
    "num_train_epochs", "lr_scheduler_type", "gradient_checkpointing", "warmup_ratio", "warmup_steps", "max_steps",
    "logging_steps", "save_steps", "eval_strategy", "evaluation_strategy", "optim", "weight_decay", "save_strategy",
    "activation_checkpointing",
)  # fmt: skip
_VLLM = (
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_model_len", "max_num_seqs",
    "gpu_memory_utilization", "max_num_batched_tokens", "kv_cache_dtype", "enforce_eager", "enable_prefix_caching",
    "enable_chunked_prefill", "speculative_config", "compilation_config", "served_model_name", "enable_lora",
    "max_lora_rank", "swap_space", "cpu_offload_gb", "block_size", "enable_expert_parallel",
)  # fmt: skip

TOOLS: dict[str, Signature] = {
    "job": signature(
        "job.format", "The top-level key `gpulint` with a job version.",
        claim(says(10 * OWN, "gpulint", "^job/"), syntaxes=FILES | TOML),
    ),
    "autotrain": signature(
        "autotrain.format", "`task` and `base_model` beside a `backend` or `data` of AutoTrain's.",
        claim(
            any_of(TELLING, "task"), any_of(TELLING, "base_model"), any_of(OWN, "backend", "project_name"),
            any_of(SHARED, "data", "params"),
        ),
    ),
    "areal": signature(
        "rl.areal", "An `actor` (once `model`) of AReaL's beside its cluster or allocation.",
        claim(_AREAL, any_of(TELLING, *below("actor", *_AREAL_MODEL)), any_of(SHARED, "actor.path"), syntaxes=_LAID),
        claim(_AREAL, any_of(TELLING, *below("model", *_AREAL_MODEL)), any_of(SHARED, "model.path"), syntaxes=_LAID),
        claim(_AREAL, syntaxes=FLAGS),
    ),
    "skyrl": signature(
        "rl.skyrl", "`trainer.policy` beside `generator.n_samples_per_prompt` or the placement of its models.",
        claim(
            any_of(TELLING, "trainer.policy.model"),
            any_of(OWN, "trainer.placement", "generator.n_samples_per_prompt"), syntaxes=FILES | TOML,
        ),
        claim(any_of(SHARED, "trainer"), syntaxes=FLAGS),
    ),
    "axolotl": signature(
        "axolotl.format", "YAML with `base_model` and some of axolotl's training keys.",
        claim(
            any_of(TELLING, "base_model"),
            any_of(
                TELLING, "datasets", "pretraining_dataset", "sequence_len", "micro_batch_size", "adapter",
                "load_in_4bit", "load_in_8bit", "sample_packing", "tokenizer_type", "rl",
            ),
            syntaxes=FILES | FLAGS,
        ),
    ),
    "litgpt": signature(
        "native.litgpt", "`train` beside a checkpoint folder or the name of a model.",
        claim(*_LITGPT, any_of(OWN, "checkpoint_dir"), syntaxes=YAML),
        claim(
            *_LITGPT, any_of(TELLING, "model_name"), any_of(TELLING, "tokenizer_dir", "out_dir", "num_nodes"),
            syntaxes=YAML,
        ),
    ),
    "torchtitan": signature(
        "torchtitan.format", "`[model]` with a flavour beside `[training]`.",
        claim(any_of(OWN, "model.flavor"), any_of(SHARED, "job", "training"), syntaxes=TOML | FLAGS),
    ),
    "slime": signature(
        "rl.slime", "No file of its own: command lines with three of slime's options.",
        claim(
            any_of(
                OWN, "rollout_batch_size", "actor_num_gpus_per_node", "num_rollout", "hf_checkpoint", "ref_load",
                least=3,
            ),
            syntaxes=FLAGS,
        ),
    ),
    "megatron": signature(
        "megatron.format", "MODEL_ARGS with Megatron's options, or flags most of which are.",
        claim(section(OWN, "MODEL_ARGS")),
        claim(any_of(TELLING, *_MEGATRON, least=3), syntaxes=FLAGS),
    ),
    "nemo": signature(
        "nemo.nemo", "`model` with NeMo's keys beside a `trainer` or a launcher's `run`.",
        claim(_NEMO_MODEL, section(SHARED, "model"), any_of(TELLING, "trainer.devices"), syntaxes=YAML),
        claim(_NEMO_MODEL, section(SHARED, "model"), any_of(TELLING, "run"), syntaxes=YAML),
        claim(_NEMO_MODEL, section(SHARED, "model"), _NESTED_TRAINER, syntaxes=YAML),
        claim(
            any_of(TELLING, "run", "trainer.devices"),
            any_of(TELLING, "tensor_model_parallel_size", "critic.trainer", "actor.trainer"), syntaxes=YAML,
        ),
    ),
    "olmo": signature(
        "native.olmo", "`model` with OLMo's sizes beside `optimizer` and a batch key.",
        claim(
            any_of(TELLING, "max_duration"), any_of(TELLING, "model.d_model"),
            any_of(TELLING, "model.mlp_ratio", "model.mlp_hidden_size", "model.max_sequence_length"), syntaxes=YAML,
        ),
    ),
    "llm_foundry": signature(
        "native.llm_foundry", "`model.name` beside `train_loader`, at the top or below an mcli run's `parameters`.",
        claim(_MCLI, any_of(TELLING, "image", "compute"), syntaxes=YAML),
        claim(
            any_of(TELLING, "max_seq_len"), any_of(OWN, "train_loader"), any_of(SHARED, "model.name"), syntaxes=YAML,
        ),
        claim(
            any_of(TELLING, "parameters.max_seq_len"), any_of(OWN, "parameters.train_loader"),
            any_of(SHARED, "parameters.model.name"), syntaxes=YAML,
        ),
    ),
    "nanotron": signature(
        "native.nanotron", "`parallelism` with dp beside `tokens` and `model.model_config`.",
        claim(
            any_of(TELLING, "tokens"), any_of(OWN, "parallelism.dp"), any_of(TELLING, "model.model_config"),
            syntaxes=YAML,
        ),
    ),
    "gpt_neox": signature(
        "megatron.gpt_neox", "`num-layers` beside NeoX's parallel sizes, or its training keys beside DeepSpeed's.",
        claim(
            any_of(TELLING, *_NEOX, least=3), any_of(OWN, "zero_optimization", "train_micro_batch_size_per_gpu"),
            syntaxes=YAML,
        ),
        claim(
            any_of(TELLING, "num_layers"), any_of(TELLING, "hidden_size", "num_attention_heads"),
            any_of(
                OWN, "pipe_parallel_size", "model_parallel_size", "gpt_j_residual", "train_micro_batch_size_per_gpu",
            ),
            syntaxes=YAML,
        ),
    ),
    "lingua": signature(
        "native.lingua", "`distributed` with lingua's keys beside `model` or `data` with a batch.",
        claim(
            any_of(
                OWN,
                *below(
                    "distributed", "fsdp_type", "model_dtype", "selective_activation_checkpointing", "dp_shard",
                    "dp_replicate",
                ),
            ),
            any_of(TELLING, "data.batch_size"), syntaxes=_LAID,
        ),
    ),
    "mistral_finetune": signature(
        "native.mistral_finetune", "`model_id_or_path` beside mistral-finetune's data or its adapter.",
        claim(
            any_of(OWN, "model_id_or_path"),
            any_of(TELLING, "data.instruct_data", "lora.rank", "save_adapters", "run_dir"), syntaxes=_LAID,
        ),
    ),
    "megatron_bridge": signature(
        "megatron.bridge", "`train` with its iterations or batches beside sections of a ConfigContainer.",
        claim(
            any_of(TELLING, "train.train_iters", "train.global_batch_size", "train.micro_batch_size"),
            any_of(
                OWN, "ddp", "dist", "rng", "scheduler", "logger", "checkpoint", "dataset", "peft", "mixed_precision",
                least=2,
            ),
            syntaxes=YAML,
        ),
    ),
    "trlx": signature(
        "rl.trlx", "`train` with trlx's pipeline or trainer beside `method` and `model`.",
        claim(
            any_of(TELLING, "method"), any_of(SHARED, "model"), any_of(OWN, "train.pipeline", "train.trainer"),
            syntaxes=YAML,
        ),
    ),
    "torchtune": signature(
        "torchtune.format", "A section of torchtune's whose `_component_` lies in torchtune.",
        *(claim(says(2 * OWN, f"{name}._component_", "^torchtune\\.")) for name in _TORCHTUNE),
    ),
    "llamafactory": signature(
        "llamafactory.format", "A key of LLaMA-Factory's (`finetuning_type`, `stage`) beside the model.",
        claim(
            any_of(TELLING, "model_name_or_path"), any_of(OWN, "finetuning_type", "infer_backend", "export_dir"),
            syntaxes=FILES | FLAGS,
        ),
        claim(
            any_of(TELLING, "model_name_or_path"), says(OWN, "stage", "^(pt|sft|rm|ppo|dpo|kto)$"),
            syntaxes=FILES | FLAGS,
        ),
        claim(
            any_of(TELLING, "model_name_or_path"), any_of(TELLING, "template"),
            any_of(
                TELLING, "cutoff_len", "quantization_bit", "lora_target", "lora_rank", "neat_packing", "pref_loss",
                "use_galore", "use_apollo", "use_badam", "flash_attn", "enable_liger_kernel",
                "freeze_trainable_layers", "disable_gradient_checkpointing", "val_size", "dataset_dir",
                "adapter_name_or_path", "predict_with_generate", "vllm_maxlen", "pure_bf16",
            ),
            syntaxes=FILES | FLAGS,
        ),
    ),
    "nemo_automodel": signature(
        "nemo.automodel", "A YAML file with a model section and a `step_scheduler`, or a target of the package.",
        claim(section(SHARED, "model"), section(OWN, "step_scheduler"), syntaxes=YAML),
        claim(says(2 * OWN, "model._target_", "^nemo_automodel\\."), syntaxes=YAML),
    ),
    "nemo_rl": signature(
        "nemo.rl", "A `policy` with NeMo RL's keys, `generation.vllm_cfg`, or a file of `defaults`.",
        claim(any_of(OWN, *below("policy", *_NEMO_RL_POLICY)), syntaxes=_LAID),
        claim(any_of(TELLING, "policy.model_name"), any_of(TELLING, "defaults"), syntaxes=_LAID),
        claim(any_of(OWN, "generation.vllm_cfg"), syntaxes=_LAID),
        claim(
            says(TELLING, "defaults", "\\.ya?ml$"), any_of(TELLING, "cluster.gpus_per_node", "generation"),
            syntaxes=_LAID,
        ),
    ),
    "openrlhf": signature("rl.openrlhf", "No file of its own: its flags stand in launchers."),
    "megatron_swift": signature(
        "ms_swift.megatron_swift", "`model` beside arguments of Megatron and of ms-swift.",
        claim(
            value(SHARED, "model"),
            any_of(
                OWN, "micro_batch_size", "global_batch_size", "tensor_model_parallel_size", "recompute_granularity",
                least=2,
            ),
            any_of(TELLING, *_SWIFT, "dataset", "mcore_model"),
        ),
    ),
    "ms_swift": signature(
        "ms_swift.format", "`model` beside the kind of tuning in ms-swift's words.",
        claim(value(SHARED, "model"), any_of(OWN, *_SWIFT)),
    ),
    "h2o_llmstudio": signature(
        "native.h2o_llmstudio", "A YAML file with `llm_backbone` and a section of the experiment.",
        claim(any_of(OWN, "llm_backbone"), any_of(SHARED, "architecture", "training", "problem_type"), syntaxes=YAML),
    ),
    "prime_rl": signature(
        "rl.prime_rl", "TOML with an `orchestrator`, a model beside `data.seq_len`, or an `env`.",
        claim(
            any_of(SHARED, "model"), any_of(TELLING, "env"),
            any_of(TELLING, "rollouts_per_example", "sampling", "batch_size"), syntaxes=TOML,
        ),
        claim(any_of(OWN, "orchestrator"), any_of(SHARED, "model", "trainer", "inference"), syntaxes=TOML),
        claim(any_of(TELLING, "model.name"), any_of(TELLING, "data.seq_len"), syntaxes=TOML),
    ),
    "verl": signature(
        "verl.format", "`actor_rollout_ref`, a `rollout` beside `model.path`, or a `_target_` in verl.",
        claim(section(3 * OWN, "actor_rollout_ref"), syntaxes=FILES | TOML | FLAGS),
        claim(
            any_of(TELLING, "model.path"), any_of(OWN, "rollout.tensor_model_parallel_size"),
            syntaxes=FILES | TOML | FLAGS,
        ),
        claim(says(3 * OWN, "_target_", "^verl\\."), syntaxes=FILES | TOML | FLAGS),
    ),
    "verl_sft": signature(
        "verl.sft", "`data.train_batch_size` beside `model.partial_pretrain` or `optim`.",
        claim(
            any_of(TELLING, "data.train_batch_size"), any_of(OWN, "model.partial_pretrain", "optim"), syntaxes=_LAID,
        ),
        claim(any_of(OWN, "model.partial_pretrain"), syntaxes=FLAGS),
    ),
    "oumi": signature(
        "oumi.format", "`model.model_name` beside a section of Oumi to train, generate or evaluate.",
        claim(
            any_of(OWN, "model.model_name"), any_of(TELLING, "training", "generation", "tasks", "engine"),
            syntaxes=YAML, known=MOSTLY,
        ),
        claim(
            any_of(OWN, "model.model_name"), any_of(TELLING, "training", "generation", "tasks", "engine"),
            syntaxes=FLAGS,
        ),
    ),
    "hf_trainer": signature(
        "hf_trainer.format", "TrainingArguments keys beside a model, or a file mostly of them.",
        claim(any_of(TELLING, "model_name_or_path"), any_of(SHARED, *_TRAINING_ARGUMENTS), syntaxes=FILES | FLAGS),
        claim(
            any_of(SHARED, "per_device_train_batch_size", "gradient_accumulation_steps"),
            any_of(TELLING, *_TRAINING_ARGUMENTS, "output_dir", "bf16", "fp16", least=3), syntaxes=FILES | FLAGS,
            known=MOSTLY,
        ),
    ),
    "accelerate": signature(
        "accelerate.format", "`distributed_type` or `compute_environment` beside other keys of accelerate.",
        claim(
            any_of(OWN, "distributed_type", "compute_environment"),
            any_of(
                TELLING, "num_processes", "num_machines", "mixed_precision", "machine_rank", "use_cpu",
                "main_training_function", "deepspeed_config", "fsdp_config", "rdzv_backend", "main_process_port",
                "gpu_ids", "iam_role_name",
            ),
            syntaxes=FILES | TOML | FLAGS,
        ),
    ),
    "deepspeed": signature(
        "deepspeed.format", "`zero_optimization`, or a batch or a precision section among DeepSpeed's keys.",
        claim(switch(OWN, "zero_optimization"), syntaxes=FILES | FLAGS, known=MOSTLY),
        claim(any_of(TELLING, "train_micro_batch_size_per_gpu"), syntaxes=FILES | FLAGS, known=0.5),
        claim(
            switch(SHARED, "fp16", "bf16"),
            any_of(
                SHARED, "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                "optimizer", "steps_per_print", "gradient_clipping",
            ),
            syntaxes=FILES | FLAGS, known=MOSTLY,
        ),
    ),
    "sglang": signature(
        "serving.sglang", "A flat YAML file mostly of SGLang's options, one of them its own.",
        claim(
            any_of(
                OWN, "mem_fraction_static", "disable_radix_cache", "disaggregation_mode", "chunked_prefill_size",
                "tp_size", "cuda_graph_max_bs", "max_running_requests", "context_length", "schedule_conservativeness",
                "dp_size", "schedule_policy", "enable_dp_attention", "max_prefill_tokens", "ep_size",
            ),
            syntaxes=YAML, known=_ENGINE, plain=("*",),
        ),
    ),
    "trtllm": signature(
        "serving.trtllm", "Mostly arguments of the LLM API, with one of its sections (`kv_cache_config` ...).",
        claim(any_of(OWN, "kv_cache_config", "cuda_graph_config", "moe_config", "enable_attention_dp"), known=_ENGINE),
    ),
    "hf_inference": signature("hf_trainer.inference", "No file of its own: its arguments stand in Python files."),
    "tgi": signature("serving.tgi", "No file of its own: its flags and variables stand in launchers."),
    "lmdeploy": signature("serving.lmdeploy", "No file of its own: its flags stand in launchers."),
    "llama_cpp": signature("serving.llama_cpp", "No file of its own: its flags stand in launchers."),
    "vllm": signature(
        "serving.vllm", "Mostly options of vLLM, two of them an engine's own, or one with dashes.",
        claim(
            any_of(TELLING, *(key.replace("_", "-") for key in _VLLM)), syntaxes=YAML, known=_ENGINE, plain=("model",),
        ),
        claim(
            any_of(TELLING, *_VLLM, "model", least=2), any_of(SHARED, *_VLLM), syntaxes=YAML, known=_ENGINE,
            plain=("model",),
        ),
    ),
}  # fmt: skip
"""What the files of each format have."""
