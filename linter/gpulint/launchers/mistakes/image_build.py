"""CUDA extensions that an image compiles when it is built, or a container when it starts.

`no-compiler`: the image has no nvcc. `no-torch`: pip builds in an environment of its own, in which there is no torch.
`other-cuda`: nvcc is of another major release than torch, which refuses to build.

Sources: flash-attn 2.8.3 `setup.py` (imports torch; CUDAExtension needs CUDA_HOME; "only images whose names contain
'devel' will provide nvcc"); torch 2.8 `utils/cpp_extension.py` (_join_cuda_home, _check_cuda_version); DeepSpeed
docs, "Pre-install DeepSpeed Ops"; NVIDIA's page of nvidia/cuda: base, runtime, devel.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats.core.format import Problem
from ...repository.images import name_of
from ...source.places import places_of
from ..shell.script import place
from ..shell.shell import commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...source.document import Document
    from ..shell.script import Script
    from ..shell.shell import Word

_COMPILED = frozenset({"flash-attn", "causal-conv1d", "mamba-ssm", "grouped-gemm"})
"""Packages whose PyPI releases are sources with CUDA kernels."""

_IMPORTS_TORCH = frozenset({"flash-attn"})
"""Those whose setup.py imports torch, and whose pyproject.toml does not ask for it."""

_BARE = re.compile(r"(?:.*/)?(?:python|ubuntu|debian|buildpack-deps)")
_CUT = re.compile(r"(?:^|[-.])(?:runtime|base)(?:[-.]|$)")
_TOOLKIT = re.compile(
    r"cuda-toolkit|cuda-nvcc|nvidia-cuda-toolkit|cuda-compiler|cudatoolkit-dev|cuda_\d[\w.]*\.run|nvcc"
)
_CUDA = re.compile(r"(?:^|[-:])(?:cuda)?(\d{2})\.\d")
_INDEX = re.compile(r"whl/(?:nightly/|test/)?cu(\d{2})\d")
_PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?(?:[=<>~!@ ].*)?$")


class Build:
    """What is known of an image while it is built."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.toolkit = False
        self.variables: dict[str, str] = {}
        self.torch_cuda = 0

    def set(self, variables: Mapping[str, str]) -> None:
        """Variables that hold from here on."""
        self.variables.update(variables)
        self.toolkit = self.toolkit or any(name in ("CUDA_HOME", "CUDA_PATH") for name in variables)

    def copied(self, text: str) -> None:
        """Files that come into the image: a toolkit may be among them."""
        self.toolkit = self.toolkit or "cuda" in text

    @property
    def without_compiler(self) -> bool:
        """Whether the image surely has no nvcc."""
        name, _, tag = self.image.partition(":")
        if self.toolkit or "$" in self.image:
            return False
        cuda = name_of(self.image).endswith(("nvidia/cuda", "pytorch/pytorch"))
        return _BARE.fullmatch(name) is not None or (cuda and _CUT.search(tag) is not None)

    @property
    def cuda(self) -> int:
        """The major release of the image's toolkit; 0 where nobody knows."""
        tag = self.image.partition(":")[2]
        found = _CUDA.search(tag) if name_of(self.image).endswith("nvidia/cuda") else None
        return int(found[1]) if found is not None else 0


def build_problems(script: Script, build: Build, file: Document) -> Iterator[Problem]:
    """The problems of the commands of a script that builds on an image, which they change."""
    for command in commands(script):
        words = list(command.words)
        texts = [word.text for word in words]
        while texts and "=" in texts[0] and not texts[0].startswith("-"):
            words, texts = words[1:], texts[1:]
        build.toolkit = build.toolkit or any(_TOOLKIT.search(text) for text in texts)
        yield from install_problems(words, build, file, {name: word.text for name, word in command.variables.items()})


def install_problems(
    words: Sequence[Word], build: Build, file: Document, variables: Mapping[str, str]
) -> Iterator[Problem]:
    """The problems of a command that installs packages by pip or uv."""
    texts = [word.text for word in words]
    if "install" not in texts[:5] or not any(text.rpartition("/")[2] in ("pip", "pip3", "uv") for text in texts[:3]):
        return
    index = next((found for text in texts if (found := _INDEX.search(text))), None)
    held = {**build.variables, **variables}
    skipped = held.get("FLASH_ATTENTION_SKIP_CUDA_BUILD", "").upper() == "TRUE"
    isolated = not any(text.startswith("--no-build-isolation") for text in texts)
    for word in words[texts.index("install") + 1 :]:
        found = _PACKAGE.fullmatch(word.text)
        name = found[1].lower().replace("_", "-") if found is not None else ""
        if name == "torch" and index is not None:
            build.torch_cuda = int(index[1])
        ops = name == "deepspeed" and any(key.startswith("DS_BUILD_") and value == "1" for key, value in held.items())
        if name not in _COMPILED and not ops:
            continue
        span = place(places_of(file.text), word.at)
        if name in _IMPORTS_TORCH and isolated and held.get("PIP_NO_BUILD_ISOLATION") is None:
            yield Problem("no-torch", name, span, {"value": name}, file.path)
        if build.without_compiler and not skipped:
            yield Problem("no-compiler", name, span, {"value": name, "found": build.image}, file.path)
        elif build.cuda and build.torch_cuda and build.cuda != build.torch_cuda and not skipped:
            values = {"value": name, "found": str(build.cuda), "expected": str(build.torch_cuda)}
            yield Problem("other-cuda", name, span, values, file.path)
