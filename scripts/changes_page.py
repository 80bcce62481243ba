"""Which changes of the suggestions each format can write, tried on the examples of the rules."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from gpulint.formats.core.format import Reading

_TRIED = 25
"""Examples of a format on which every change is tried."""

_VALUES: dict[str, Any] = {
    "micro_batch_size": 1, "gradient_accumulation_steps": 16, "sequence_length": 512, "parallelism.tensor": 2,
    "evaluation.micro_batch_size": 1, "rl.vllm_gpu_memory_utilization": 0.25, "inference.gpu_memory_utilization": 0.85,
    "inference.max_num_batched_tokens": 1024, "inference.max_num_seqs": 8, "inference.batch_size": 1,
    "inference.max_model_len": 2048,
}  # fmt: skip
"""A value for each field that a recipe works out."""


def section() -> Iterator[str]:
    """The lines of the section: a row a format, with the changes that it writes and those that it only says."""
    edits, words, tried = _tried()
    changes = _changes()
    yield "Changes that make a job fit, as `gpulint plan` shows them: those that gpulint can write in the format's"
    yield "keys, and those that it only describes, because they need a command or another file. The lists come from the"
    yield "examples of the rules: a format without examples has no row, and a change that fits no example is missing."
    yield ""
    yield "| format | edits | described |"
    yield "| --- | --- | --- |"
    for name in sorted(tried.keys() - {"job"}):
        written = [change for change in changes[tried[name]] if edits[name][change]]
        said = [change for change in changes[tried[name]] if words[name][change] and change not in written]
        yield f"| {name} | {', '.join(written) or '-'} | {', '.join(said) or '-'} |"


def _changes() -> dict[str, dict[str, dict[str, Any]]]:
    """The changes of the recipes that save memory, by kind of job and name."""
    from gpulint.rules.load import bundled

    found: dict[str, dict[str, dict[str, Any]]] = {"training": {}, "inference": {}}
    for name, recipe in bundled()[1].items():
        if not recipe.room:
            found[str(recipe.kind)][name] = {
                path: _VALUES[path] if isinstance(value, (dict, list)) else value
                for path, value in (recipe.set or {}).items()
            }
    return found


def _tried() -> tuple[Mapping[str, Counter[str]], Mapping[str, Counter[str]], dict[str, str]]:
    """Of each format and change how often it could be written and said, and the kind of its jobs."""
    from gpulint.formats.core.key_changes import UntakenKeyError
    from gpulint.formats.core.registry import FORMAT_NAMES, find

    changes = _changes()
    edits: defaultdict[str, Counter[str]] = defaultdict(Counter)
    words: defaultdict[str, Counter[str]] = defaultdict(Counter)
    kinds: dict[str, str] = {}
    seen: Counter[tuple[str, str]] = Counter()
    enough: set[str] = set()
    for reading in _readings(enough):
        name, kind = reading.format, reading.job.kind
        if name not in FORMAT_NAMES or seen[name, kind] >= _TRIED or kinds.setdefault(name, kind) != kind:
            continue
        seen[name, kind] += 1
        if seen[name, kind] >= _TRIED:
            enough.add(name)
        form = find(name)
        for change, fields in changes[kind].items():
            with suppress(UntakenKeyError):  # the release of an example may lack the key
                edits[name][change] += bool(form.edits(reading, fields))
                words[name][change] += bool(form.describe(reading, fields))
    return edits, words, kinds


def _readings(enough: Container[str]) -> Iterator[Reading]:
    """The readings of the rules' examples, without those of formats of which there are `enough`."""
    from gpulint.launchers.reading import UnrecognisedError, open_jobs, recognise_file
    from gpulint.rules.examples import config_text
    from gpulint.rules.index import rule_files
    from gpulint.settings.settings import Settings
    from gpulint.source.document import SourceError

    with tempfile.TemporaryDirectory() as folder:
        number = 0
        for file in rule_files(str(Path(__file__).resolve().parent.parent / "rules")):
            for example in file.source["examples"]:
                number += 1
                root = Path(folder, str(number))
                path = root / example.get("file", "config.yaml")
                for name, text in {path.name: config_text(example), **example.get("files", {})}.items():
                    place = path if name == path.name else root / name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_text(text if isinstance(text, str) else "", encoding="utf-8")
                settings = Settings(root=str(root), gpu="h100-80gb", gpus=8)
                try:
                    recognised = recognise_file(str(path))
                    if recognised.kind in enough:
                        continue
                    opened = open_jobs(recognised, settings).opened
                except (UnrecognisedError, SourceError, OSError, ValueError):
                    continue
                yield from (item.reading for item in opened)
