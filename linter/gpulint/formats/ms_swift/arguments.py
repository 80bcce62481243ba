"""ms-swift's arguments under the names that the Trainer, TRL and PEFT have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.arguments import Arguments

if TYPE_CHECKING:
    from ..core.arguments import Given

_ALIASES = {
    "model_name_or_path": ("model", "model_id_or_path", "model_type"),
    "dtype": ("torch_dtype",),
    "attn_implementation": ("attn_impl",),
    "lora_r": ("lora_rank",),
    "max_length": ("max_length",),
    "max_completion_length": ("max_completion_length", "response_length"),
}
"""Arguments of the Trainer, TRL and PEFT -> ms-swift's own names, former ones last."""


class SwiftArguments(Arguments):
    """Arguments under the names of the Trainer, found under ms-swift's."""

    __slots__ = ()

    def __contains__(self, name: str) -> bool:
        return any(super(SwiftArguments, self).__contains__(alias) for alias in _ALIASES.get(name, (name,)))

    def raw(self, *names: str) -> Given | None:
        """The first of `names` that the file has, whatever its value (null included)."""
        return super().raw(*(alias for name in names for alias in _ALIASES.get(name, (name,))))
