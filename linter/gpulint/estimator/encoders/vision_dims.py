"""Sizes and switches of a vision encoder over the images of one micro batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...upstream.stack import Stack
from ...upstream.transformers import TOWER_INPUTS_REQUIRE_GRAD
from ...upstream.transformers_models import CHECKPOINTED_TOWER
from ..inputs.image_inputs import deep_layers, encoder_spec, stacks, vision, vision_spec

if TYPE_CHECKING:
    from ...job.job import Job
    from ...models.model import Model
    from ..inputs.image_inputs import EncoderSpec, ImageInputs, VisionSpec

BETWEEN = (3, 7, 15, 23, 30)
"""MllamaVisionConfig's default (configuration_mllama.py `intermediate_layers_indices`)."""

FULL = (7, 15, 23, 31)
"""Qwen2_5_VLVisionConfig's default (configuration_qwen2_5_vl.py `fullatt_block_indexes`)."""

HEAD = 64
"""Width of a head: Gemma4VisionConfig's default (configuration_gemma4.py `head_dim`)."""

PATCH = 14
"""Pixels along each side of a patch, where a windowed encoder does not say (configuration_qwen2_5_vl.py)."""


@dataclass(frozen=True, slots=True)
class VisionDims:
    """One vision encoder.

    model          how the model reads what the encoder makes;  encoder  how that is written
    images         those of the micro batch
    stacks         its stacks by their names before the number, with the layers of each, the largest being `stack`
    heads, head_dim   of a layer;  merge  patches along each side of what makes one token
    feature_layer  the layer whose output is read, from the end; 0 for what the encoder returns
    full           layers that attend to all of an image where the others have windows;  window  how many windows all
                   images are cut into, and the patches of each; None without
    deepstack      layers whose outputs the decoder's first layers get
    between        layers whose outputs the projector reads beside the last
    activation     the MLP's;  projector_activation, projector_norm  of the projector
    clips          linear layers cut off inputs and outputs;  standardizes  tokens are standardised in float32
    patches_require_grad  where the decoder's inputs are made to want a gradient, so are the encoder's (transformers 5)
    checkpointed   its tiles' layers are checkpointed where the decoder's are
    """

    model: VisionSpec
    encoder: EncoderSpec
    images: ImageInputs
    stacks: tuple[tuple[str, int], ...]
    stack: tuple[str, int]
    heads: int
    head_dim: int
    merge: int
    feature_layer: int
    full: tuple[int, ...]
    window: tuple[int, int] | None
    deepstack: tuple[int, ...]
    between: tuple[int, ...]
    activation: str
    projector_activation: str
    projector_norm: bool
    clips: bool
    standardizes: bool
    patches_require_grad: bool
    checkpointed: bool

    @property
    def rows(self) -> int:
        """Patches of all images."""
        return self.images.rows

    @property
    def token_rows(self) -> int:
        """Tokens of all images."""
        return self.images.images * self.images.tokens


def vision_dims(job: Job, model: Model, images: ImageInputs) -> VisionDims:
    """The dims of the vision encoder that a model reads images by."""
    spec = vision_spec(model)
    assert spec is not None
    encoder = encoder_spec(model, spec)
    assert encoder is not None
    fields, config, found = vision(model), model.config, stacks(model)
    counts = (fields.get(name) for name in ("num_heads", "num_attention_heads", "attention_heads"))
    feature, between = config.get("vision_feature_layer"), fields.get("intermediate_layers_indices")
    gated = str(fields.get("hidden_activation") or "gelu_pytorch_tanh")
    return VisionDims(
        model=spec,
        encoder=encoder,
        images=images,
        stacks=tuple(found.items()),
        stack=max(found.items(), key=lambda item: item[1]),
        heads=int(next((count for count in counts if count), encoder.heads)),
        head_dim=int(fields.get("head_dim") or HEAD),
        merge=images.merge,
        feature_layer=feature if spec.layer and isinstance(feature, int) else spec.layer,
        full=tuple(fields.get("fullatt_block_indexes") or FULL) if encoder.window else (),
        window=_windows(encoder, images, fields),
        deepstack=deep_layers(model),
        between=tuple(between) if isinstance(between, list) else BETWEEN,
        activation=gated if spec.projector == "soft" else str(fields.get("hidden_act") or encoder.activation),
        projector_activation=str(config.get("projector_hidden_act") or "gelu"),
        projector_norm=bool(config.get("projector_use_layernorm", True)),
        clips=bool(fields.get("use_clipped_linears")),
        standardizes=bool(fields.get("standardize")),
        patches_require_grad=Stack(job).does(TOWER_INPUTS_REQUIRE_GRAD),
        checkpointed=Stack(job).does(CHECKPOINTED_TOWER, model.model_type),
    )


def _windows(encoder: EncoderSpec, images: ImageInputs, fields: dict[str, Any]) -> tuple[int, int] | None:
    if not encoder.window:
        return None
    edge = max(1, int(fields.get("window_size") or encoder.window) // int(fields.get("patch_size") or PATCH))
    count = images.images * (-(-images.side // edge)) ** 2
    return count, max(1, images.rows // count)
