"""The parts of a Job that say what is loaded and what is trained of it: weights, quantization, adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..declared import declared

Dtype = Literal["float64", "float32", "bfloat16", "float16", "float8"]


@dataclass(slots=True)
class Quantization:
    """Quantization of the stored base weights."""

    method: str = declared(
        "The method: `bnb-nf4`, `bnb-fp4`, `bnb-int8`, `gptq`, `awq`, `fp8`, `mxfp4`, `hqq`, `gguf-<type>` ..."
    )
    bits: float | None = declared("Bits per quantized weight.", None, least=0)
    group_size: int | None = declared("Weights that share one scale.", None, least=-1)
    double_quant: bool = declared("Whether the scales are quantized too (double quantization).", False)
    skip: list[str] = declared("Names of modules that are not quantized and stay in `weights.dtype`.", made=list)
    storage_dtype: str | None = declared("Dtype of the tensors that store the quantized weights.", None)
    experts: bool = declared(
        "Whether fused 3-D expert tensors are quantized too, which bitsandbytes by itself leaves alone.", False
    )
    head: bool = declared("Whether the LM head is quantized too.", False)
    modules: dict[str, str] = declared(
        "Modules with another quantization method, by a part of their name: `{experts: mxfp4-linear}`.", made=dict
    )

    def __str__(self) -> str:
        plain = {"none": "16 bits", "pack-quantized": "compressed-tensors"}
        return plain.get(self.method, self.method)


UNPACKED = Quantization("none", 16)
"""A checkpoint that is not packed, where `Weights.stored` has to say so."""


@dataclass(slots=True)
class Weights:
    """The base weights as loaded."""

    dtype: Dtype | None = declared("Dtype of the base weights as loaded; null is the checkpoint's dtype.", None)
    trainable_dtype: Dtype | None = declared(
        "Dtype of the trained base weights, if only those are upcast; null is `weights.dtype`.", None
    )
    quantization: Quantization | None = declared("Quantization of the base weights.", None)
    stored: Quantization | None = declared(
        "Quantization of the checkpoint itself, where no config.json of it is read (method `none`: 16 bits); null is "
        "what its config states, else its name.",
        None,
    )
    float32: list[str] = declared(
        "Parts of names of parameters that stay in float32 (`norm`, `embed_tokens`).", made=list
    )
    float32_once: list[str] = declared(
        "Parts of names of parameters that are temporarily float32 before training.", made=list
    )
    frozen_layers_offloaded: bool = declared(
        "Whether frozen decoder layers stay in host RAM until they run (axolotl).", False
    )


@dataclass(slots=True)
class Adapter:
    """A PEFT adapter."""

    type: str = declared("`lora`, `dora` ...", "lora")
    r: int = declared("Rank of the adapter; AdaLoRA's `init_r`.", 8, least=1)
    alpha: float | None = declared("LoRA's alpha.", None, least=0)
    dropout: float = declared("LoRA dropout.", 0.0, least=0)
    targets: list[str] | str | None = declared(
        "Suffixes of adapted modules, or `all-linear`; names that the model lacks are skipped.", None
    )
    modules_to_save: list[str] = declared("Modules that are trained in full along with the adapter.", made=list)
    dtype: Dtype | None = declared(
        "Dtype of the adapter's weights; null is PEFT's default (float32 over 16-bit and 4-bit bases, by "
        "`autocast_adapter_dtype`).",
        None,
    )
    prepare_kbit: bool = declared(
        "Whether norms, embeddings and LM head are upcast to float32 (`prepare_model_for_kbit_training`).", False
    )
    prepared_head: Dtype | None = declared(
        "Dtype that embeddings and LM head get after that (TRL up to 0.19: bfloat16).", None
    )
    layers: list[int] | None = declared("Indices of the adapted layers; null for all.", None)
    rank_pattern: dict[str, int] = declared("Ranks of modules with another rank, by name.", made=dict)
    exclude: list[str] | str | None = declared(
        "PEFT's `exclude_modules`: suffixes of modules that are not adapted, or a regular expression.", None
    )
    parameters: list[str] = declared(
        "PEFT's `target_parameters`: suffixes of parameters (not modules) that are adapted "
        "(`mlp.experts.gate_up_proj`).",
        made=list,
    )
    options: dict[str, Any] = declared(
        "Options of adapter types other than LoRA (`num_virtual_tokens`, `oft_block_size`), by their PEFT names.",
        made=dict,
    )
    kernels: list[str] = declared(
        "Parts of a layer whose LoRA uses fused kernels (`qkv`, `o`, `mlp`): axolotl's `lora_*_kernel`, "
        "Unsloth's, or else fms-acceleration's.",
        made=list,
    )
