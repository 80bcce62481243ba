"""A letter dropped from a known key of a published config is found at its line, at any depth, whatever the format."""

import collections
import json
import re

import pytest

from gpulint.formats.core.format import Project
from gpulint.formats.core.keys import load
from gpulint.formats.core.registry import FORMAT_NAMES, find, recognise
from gpulint.launchers.reading import open_jobs, recognise_file
from gpulint.settings.settings import Settings
from gpulint.source.document import SourceError
from gpulint.source.read import parse, read

from .test_written_changes import TEXTS

FILES = 200

LEAST_LENGTH = 8
"""Of a key that is broken: from a shorter one a dropped letter makes a word of its own too easily."""

FLAGS = {
    "tgi",
    "lmdeploy",
    "openrlhf",
    "ms_swift",
    "megatron_swift",
    "verl",
    "megatron",
    "slime",
    "sglang",
    "trtllm",
    "vllm",
    "prime_rl",
    "llama_cpp",
}
"""Formats that are mostly written as flags of a command."""

PROJECT = Project("", None, None, None, lambda *_: None)


def keyed():
    """Formats that have a schema of keys."""
    return [name for name in FORMAT_NAMES if has_schema(name)]


def has_schema(name):
    try:
        return bool(load(name).get("properties"))
    except FileNotFoundError:
        return False


def branches(schema, part):
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    if "anyOf" in part:
        return [item for branch in part["anyOf"] for item in branches(schema, branch)]
    return [part]


def known_entries(schema, parts, node, depth=0):
    """Entries of a document that the schema knows, in sections that say what becomes of unknown keys."""
    for entry in node.entries()[node.merged :]:
        key = entry.key.value
        name = key.lstrip("-").replace("-", "_") if isinstance(key, str) else key
        found = [part["properties"][n] for part in parts for n in {key, name} if n in part.get("properties", {})]
        if not found:
            continue
        if says_unknown(parts) and not any("x-removed" in item for item in found):
            yield entry, {n for part in parts for n in part["properties"]}
        if entry.value.is_mapping and depth < 6:
            below = [item for part in found for item in branches(schema, part) if "properties" in item]
            if below:
                yield from known_entries(schema, below, entry.value, depth + 1)


def set_aside(entry):
    """Keys that are never unknown: people's own, and those without a value."""
    return entry.key.value.startswith("_") or (entry.value.is_scalar and entry.value.value is None)


def lines_of(jobs, name):
    """The lines on which the options of a format's commands stand."""
    configs = [item.reading.config for item in jobs if item.reading.format == name]
    return {entry.key.span.line for config in configs for entry in config.root.entries()}


def says_unknown(parts):
    return all(part.get("x-unknown-keys") for part in parts)


def planted(document, name):
    """The text with one known key of the file without its fourth last letter, that word, and its line, key by key."""
    schema = load(name)
    top = [schema]
    roots = [document.root]
    if name == "megatron" and document.root.get("MODEL_ARGS") is not None:
        roots = [entry.value for entry in document.root.entries() if entry.value.is_mapping]
    for root in roots:
        for entry, names in known_entries(schema, top, root):
            key = entry.key.value
            typo = key[:-4] + key[-3:]
            start = document.text.find(key, entry.key.span.start)
            if len(key) < LEAST_LENGTH or set_aside(entry) or not 0 <= start - entry.key.span.start <= 3:
                continue
            if {typo, typo.replace("-", "_"), typo.replace("_", "-")} & (names | set(map(str, root.keys()))):
                continue
            try:
                changed = parse(
                    document.text[:start] + typo + document.text[start + len(key) :], document.path, document.syntax
                )
            except SourceError:
                continue
            found = recognise(changed)
            if found is not None and found.name == name:
                yield changed, typo, entry.key.span.line


def flags_planted(text, name, lines):
    """A launcher's text with one known option broken on one of the lines of a command, that option and its line."""
    properties = load(name)["properties"]
    for match in re.finditer(r"--([a-z][a-z0-9_-]{7,})(?=[ =\n\"'])", text):
        option = match[1]
        spellings = {option, option.replace("-", "_"), option.replace("_", "-")}
        known = spellings & set(properties)
        typo = option[:-4] + option[-3:]
        other = {typo, typo.replace("-", "_"), typo.replace("_", "-")}
        if text.count("\n", 0, match.start()) + 1 not in lines:
            continue
        if not known or any("x-removed" in properties[item] for item in known):
            continue
        if any(item.startswith(tuple(other)) for item in properties):
            continue  # argparse takes the beginning of an option
        yield text[: match.start(1)] + typo + text[match.end(1) :], typo, text.count("\n", 0, match.start()) + 1


@pytest.fixture(scope="module")
def corpus(shared):
    by_format = collections.defaultdict(list)
    for row in json.loads((shared / "corpus" / "INDEX.json").read_text()):
        by_format[row["format"]].append(shared / "corpus" / row["path"])
    return by_format


@pytest.fixture(scope="module")
def documents(corpus):
    """Documents by format, as evenly as the corpus allows."""
    found = collections.defaultdict(list)
    wanted = set(keyed())
    for paths in corpus.values():
        for path in paths[:: max(1, len(paths) // 40)]:
            try:
                document = read(str(path))
            except (SourceError, OSError):
                continue
            form = recognise(document)
            if form is not None and form.name in wanted:
                found[form.name].append(document)
    return found


def test_planted_typos_are_found(documents, record_testsuite_property):
    missed, tried = [], collections.Counter()
    for name, listed in documents.items():
        for document in listed[:25]:
            for changed, typo, line in planted(document, name):
                try:
                    problems = find(name).read(changed, PROJECT).problems
                except SourceError:  # no job at all, and the reason is said
                    continue
                tried[name] += 1
                hits = [
                    item
                    for item in problems
                    if item.kind == "unknown-key" and item.key.rpartition(".")[2].lstrip("-") == typo.lstrip("-")
                ]
                if not any(item.span.line == line for item in hits):
                    missed.append(f"{name} {document.path}:{line} {typo}")
                break
    total = sum(tried.values())
    record_testsuite_property(
        "typos in files", f"{total - len(missed)} of {total} in {len(tried)} formats: {dict(tried)}"
    )
    assert total >= FILES
    assert not missed, f"{len(missed)} of {total} missed: {missed[:20]}"


def test_planted_typos_of_commands_are_found(corpus, tmp_path, record_testsuite_property):
    missed, tried = [], collections.Counter()
    for paths in corpus.values():
        for path in paths[:: max(1, len(paths) // 15)]:
            if path.suffix not in (".yaml", ".yml", ".sh") or path.stat().st_size > 40_000:
                continue
            jobs = opened(path)
            names = {item.reading.format for item in jobs if item.reading.config.syntax == "flags"} & FLAGS
            for name in names:
                if tried[name] >= 8:
                    continue
                case = next(flags_planted(path.read_text(), name, lines_of(jobs, name)), None)
                if case is None:
                    continue
                text, typo, line = case
                file = tmp_path / path.name
                file.write_text(text)
                after = opened(file)
                if not any(item.reading.format == name for item in after):
                    continue
                tried[name] += 1
                spots = {
                    (problem.key.replace("_", "-"), problem.span.line)
                    for item in after
                    for problem in item.reading.problems
                    if problem.kind == "unknown-key"
                }
                if (typo.replace("_", "-"), line) not in spots:
                    missed.append(f"{name} {path}:{line} {typo}")
    total = sum(tried.values())
    record_testsuite_property("typos in commands", f"{total - len(missed)} of {total}: {dict(tried)}")
    assert not missed, f"{len(missed)} of {total} missed: {missed[:20]}"
    assert total >= 20


def opened(path):
    """The jobs of a file; none where it is of no known kind."""
    from gpulint.launchers.reading import UnrecognisedError

    try:
        return open_jobs(recognise_file(str(path)), Settings()).opened
    except (SourceError, UnrecognisedError, OSError):
        return []


COMMANDS = {
    "lmdeploy": "lmdeploy serve api_server internlm/internlm2-chat-7b --cache-max-entry-count 0.5",
    "trtllm": "trtllm-serve meta-llama/Llama-3.1-8B --max_batch_size 8 --max_num_tokens 2048",
    "openrlhf": "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 2",
    "ms_swift": "swift sft --model Qwen/Qwen2.5-7B --tuner_type lora --per_device_train_batch_size 1 --max_length 2048",
    "megatron": "torchrun pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024"
    " --micro-batch-size 4 --max-position-embeddings 1024",
    "slime": "python3 train.py --hf-checkpoint Qwen/Qwen3-4B --num-rollout 100 --rollout-batch-size 16"
    " --actor-num-gpus-per-node 8 --ref-load /models/reference --rollout-max-response-len 2048 --micro-batch-size 2",
    "vllm": "vllm serve Qwen/Qwen2.5-7B --max-model-len 4096",
    "sglang": "python -m sglang.launch_server --model-path Qwen/Qwen2.5-7B --mem-fraction-static 0.8",
    "megatron_swift": "megatron sft --model Qwen/Qwen2.5-7B --tuner_type full --micro_batch_size 1 --max_length 2048",
    "llama_cpp": "llama-server --model qwen2.5-7b.Q4_K_M.gguf --ctx-size 4096 --parallel 2",
    "tgi": "text-generation-launcher --model-id Qwen/Qwen2.5-7B --max-total-tokens 4096",
}
"""A command of each format that is written as flags."""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_checked(name, tmp_path):
    file = tmp_path / "run.sh"
    text = f"#!/bin/bash\nset -e\n{COMMANDS[name]}\n"
    file.write_text(text)
    jobs = opened(file)
    assert [item.reading.format for item in jobs] == [name]
    cases = list(flags_planted(text, name, lines_of(jobs, name)))
    tried = 0
    for changed, typo, line in cases:
        file.write_text(changed)
        after = opened(file)
        tried += bool(after)
        problems = [problem for item in after for problem in item.reading.problems]
        spots = [(item.key.replace("_", "-"), item.span.line) for item in problems if item.kind == "unknown-key"]
        assert (typo.replace("_", "-"), line) in spots or not after  # an option that tells what the command is
    assert tried


@pytest.mark.parametrize("name", TEXTS)
def test_every_key_of_an_example_is_checked(name):
    suffix = "toml" if name == "torchtitan" else "yaml"
    cases = list(planted(parse(TEXTS[name], f"config.{suffix}", suffix), name))
    tried = 0
    for changed, typo, line in cases:
        try:
            problems = find(name).read(changed, PROJECT).problems
        except SourceError:  # no job without that key
            continue
        tried += 1
        unknown = [(item.key.rpartition(".")[2], item.span.line) for item in problems if item.kind == "unknown-key"]
        assert (typo.lstrip("-"), line) in unknown
    assert tried


def test_a_misspelt_key_of_a_job_file():
    document = parse("gpulint: job/v1\nmodel: gpt2\nmicro_batch_sze: 1\n", "job.yaml", "yaml")
    (problem,) = find("job").read(document, PROJECT).problems
    assert (problem.kind, problem.key, problem.span.line) == ("unknown-key", "micro_batch_sze", 3)


def test_no_format_with_keys_is_left_out(documents):
    assert set(keyed()) <= {*documents, *COMMANDS, *TEXTS, "job"}
