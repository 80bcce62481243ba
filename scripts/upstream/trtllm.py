"""The options of `trtllm-serve` and `trtllm-build`, and the nested sections of a `--config` YAML, listed by hand.

`trtllm_options.json` names the files and commits that each part was compared with. The package index holds a stub that
fetches the wheel (over 2 GB) from another index, and the repository has 2.5 GB.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from .schema import whole

if TYPE_CHECKING:
    from .schema import Json


def trtllm() -> Json:
    """The listed options."""
    listed = json.loads((Path(__file__).parent / "trtllm_options.json").read_text(encoding="utf-8"))
    return whole("TensorRT-LLM", listed["options"], listed["unknown"])
