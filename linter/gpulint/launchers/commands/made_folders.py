"""Folders that commands of a script fill: a download from a hub, a checkpoint that is converted for TensorRT-LLM.

A later command that names the folder means the model in it, and `trtllm-build` builds for the degrees and the precision
of the conversion (TensorRT-LLM 1.0, `convert_checkpoint.py` of each model and `examples/quantization/quantize.py`).
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from .flags import read_flags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ...source.document import Document
    from ..shell.words import Word
    from .wrappers import Unwrapped


class Made(NamedTuple):
    """What lies in a folder: a model by the word that names it, and what `trtllm-build` takes over, as flags."""

    model: Word
    flags: tuple[Word, ...] = ()


_DOWNLOADS = {
    ("huggingface-cli", "download"): "local-dir", ("hf", "download"): "local-dir",
    ("modelscope", "download"): "local_dir",
}  # fmt: skip
_CLONED = re.compile(r"(?:https://|git@)(?:huggingface\.co|hf\.co)[/:](?P<id>[\w.-]+/[\w.-]+?)(?:\.git)?/?")
_CONVERTS = ("convert_checkpoint.py", "quantize.py")
_KEPT = frozenset({"tp_size", "pp_size", "cp_size", "dtype"})
_FORMATS = {
    "fp8": "FP8", "int4_awq": "W4A16_AWQ", "w4a8_awq": "W4A16_AWQ", "nvfp4": "NVFP4", "int8_wo": "W8A16",
    "int4_wo": "W4A16_GPTQ", "int8": "W8A16", "int4": "W4A16_GPTQ",
}  # fmt: skip
"""`--qformat` and `--weight_only_precision` -> the quantisation as the engine calls it."""


def made_by(program: Unwrapped, file: Document, folders: Mapping[str, Made]) -> dict[str, Made]:
    """The folders that a program fills, with what lies in them; `folders` are those that there are already."""
    found = _downloaded(program) or _converted(program, file, folders) or _built(program, folders)
    return dict([found]) if found is not None else {}


def with_folders(program: Unwrapped, folders: Mapping[str, Made]) -> Unwrapped:
    """The program with the model in the place of the folder, and with what a build takes over from a conversion."""
    if not folders or not program.words:
        return program
    words: list[Word] = []
    more: tuple[Word, ...] = ()
    for word in program.words:
        option, equals, value = word.text.rpartition("=")
        made = folders.get(_plain(value)) if word.known else None
        if made is None:
            words.append(word)
            continue
        start = len(option) + len(equals)
        model = made.model
        words.append(word._replace(text=word.text[:start] + model.text, at=(*word.at[:start], *model.at)))
        if program.head.startswith("trtllm"):
            more = made.flags
    return program._replace(words=(*words, *more))


def _plain(path: str) -> str:
    return posixpath.normpath(path)


def _downloaded(program: Unwrapped) -> tuple[str, Made] | None:
    words = program.words
    flag = _DOWNLOADS.get((program.head, words[0].text)) if words else None
    if flag is not None:
        folder = _value(words, flag)
        model = _value(words, "model") or next((word for word in words[1:2] if not word.text.startswith("-")), None)
        return (_plain(folder.text), Made(model)) if folder is not None and model is not None else None
    if program.head != "git" or not words or words[0].text != "clone":
        return None
    here = next((number for number, word in enumerate(words) if _CLONED.fullmatch(word.text)), None)
    if here is None:
        return None
    match = _CLONED.fullmatch(words[here].text)
    assert match is not None
    start, end = match.span("id")
    model = words[here]._replace(text=match["id"], at=words[here].at[start:end])
    folder_text = words[here + 1].text if here + 1 < len(words) else match["id"].rpartition("/")[2]
    return _plain(folder_text), Made(model)


def _converted(program: Unwrapped, file: Document, folders: Mapping[str, Made]) -> tuple[str, Made] | None:
    if not program.head.endswith(_CONVERTS):
        return None
    source, target = _value(program.words, "model_dir"), _value(program.words, "output_dir")
    if source is None or target is None or not target.known:
        return None
    before = folders.get(_plain(source.text))
    flags = tuple(_taken_over(program.words, file))
    return _plain(target.text), Made(before.model if before is not None else source, flags)


def _built(program: Unwrapped, folders: Mapping[str, Made]) -> tuple[str, Made] | None:
    """An engine, which `trtllm-serve` is given later, is of the model and the degrees of its checkpoint."""
    source, target = _value(program.words, "checkpoint_dir"), _value(program.words, "output_dir")
    made = folders.get(_plain(source.text)) if source is not None else None
    if program.head != "trtllm-build" or made is None or target is None:
        return None
    return _plain(target.text), made


def _taken_over(words: Sequence[Word], file: Document) -> Iterator[Word]:
    """The flags of a conversion that say what an engine from it is."""
    given = {str(entry.key.value) for entry in read_flags(words, file).document.root.entries()}
    for name in sorted(given & _KEPT):
        value = _value(words, name)
        if value is not None:
            yield value._replace(text=f"--{name}", at=value.at[:1] * (len(name) + 2))
            yield value
    named = _value(words, "qformat") or (_value(words, "weight_only_precision") if "use_weight_only" in given else None)
    method = _FORMATS.get(named.text) if named is not None else None
    if named is not None and method is not None:
        yield named._replace(text="--quantization", at=named.at[:1] * len("--quantization"))
        yield named._replace(text=method, at=named.at[:1] * len(method))


def _value(words: Sequence[Word], flag: str) -> Word | None:
    """The value of a flag, in either spelling."""
    for word, after in zip(words, [*words[1:], None], strict=False):
        name, equals, text = word.text.partition("=")
        if name.replace("-", "_") == "__" + flag.replace("-", "_"):
            return word._replace(text=text, at=word.at[len(name) + 1 :]) if equals else after
    return None
