"""The page of a rule, in Markdown, from its file: what `gpulint explain` prints and `docs/rules/` holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .examples import Outcome
    from .load import RuleFile


def page(file: RuleFile, outcomes: Sequence[Outcome] = ()) -> str:
    """The page of one rule; with `outcomes` the examples show the messages they really give."""
    source = file.source
    blocks = [
        f"# {file.id} {file.name}",
        ", ".join((file.severity, f"confidence {file.rule.confidence}", file.status, f"since {file.rule.since}"))
        + f"; {_FIXES[file.fix]}; applies to {file.applies_text}",
    ]
    for title, key in (("What it finds", "what"), ("Why it matters", "why"), ("Limits", "limits")):
        if source.get(key):
            blocks.append(f"## {title}\n\n{_paragraphs(source[key])}")
    blocks.append("## Condition\n\n" + _code(_condition(source["when"]), "python"))
    if source.get("suggest"):
        lines = [f"- {_advice(advice)}" for advice in source["suggest"]]
        blocks.append("## Suggestions\n\n" + "\n".join(lines))
    blocks.append("## Examples")
    for number, example in enumerate(source["examples"]):
        blocks.append(_example(example, outcomes[number] if outcomes else None))
    blocks.append(f"## Suppress\n\nOn the line, or the line above: `# gpulint: ignore[{file.id}] reason`")
    if source.get("references"):
        blocks.append("## References\n\n" + "\n".join(f"- {text}" for text in source["references"]))
    return "\n\n".join(blocks) + "\n"


def index_page(files: Sequence[RuleFile]) -> str:
    """The tables of all rules, one a subject."""
    subjects: dict[str, list[RuleFile]] = {}
    for file in files:
        subjects.setdefault(file.subject, []).append(file)
    stable = sum(file.status == "stable" for file in files)
    blocks = [
        "# Rules",
        f"{len(files)} rules, {stable} of them stable. {_ABOUT}",
        " | ".join(f"[{_title(name)}](#{_title(name).lower().replace(' ', '-')})" for name in sorted(subjects)),
    ]
    for name in sorted(subjects):
        rows = [
            f"| [{file.id}]({file.id}.md) | {file.name} | {file.severity} | {_status(file.status)} | {file.fix}"
            f" | {file.summary} |"
            for file in subjects[name]
        ]
        head = "| id | name | severity | status | fix | what it finds |\n|---|---|---|---|---|---|"
        blocks += [f"## {_title(name)}", "\n".join([head, *rows])]
    return "\n\n".join(blocks) + "\n"


_ABOUT = """Stable rules run by default; preview rules run with `--preview` or
when selected by id or name. A safe fix is applied by `--fix`, an unsafe one with `--unsafe-fixes`.
[Facts that rules can use](facts.md), [how to write one](../writing-rules.md)."""

_FIXES = {"safe": "safe fix", "unsafe": "unsafe fix", "-": "no fix"}


def _title(subject: str) -> str:
    """A folder of rules as a heading."""
    return {"fsdp": "FSDP", "zero": "ZeRO", "rl": "RL"}.get(subject, subject.replace("-", " ").capitalize())


def _status(status: str) -> str:
    return status if status != "stable" else ""


def _example(example: dict[str, Any], outcome: Outcome | None) -> str:
    from .examples import config_text

    name = example.get("file", "config.yaml")
    language = {".json": "json", ".sh": "bash", ".toml": "toml"}.get(name[name.rfind(".") :], "yaml")
    language = language if isinstance(example["config"], str) else "json"
    hardware = ", ".join(f"{key} {example[key]}" for key in ("gpu", "gpus", "nodes") if key in example)
    expected = ", ".join(example["expect"]) or "no finding"
    lines = [
        f"`{name}`" + (f" on {hardware}" if hardware else "") + f": {expected}",
        "",
        _code(config_text(example), language),
    ]
    for path, text in example.get("files", {}).items():
        lines += ["", f"with `{path}`:", "", _code(text, "json" if path.endswith(".json") else "yaml")]
    for finding in outcome.findings if outcome else ():
        lines += ["", f"> {finding.severity} {finding.rule}: {finding.message}"]
        lines += [f"> - {item.text}" + _effect(item.per_gpu) for item in finding.suggestions]
    return "\n".join(lines)


def _effect(size: int | None) -> str:
    from ..units import bytes_text

    return f" ({bytes_text(size)})" if size is not None else ""


def _condition(when: Any) -> str:
    return "\nand ".join(str(part) for part in when) if isinstance(when, list) else str(when)


def _advice(advice: Any) -> str:
    if isinstance(advice, str):
        return "otherwise a combination of two or three changes" if advice == "search" else _recipe(advice)
    if "text" in advice:
        return str(advice["text"]).replace("{{", "{").replace("}}", "}")
    parts = [f"`{key}: {_value(value)}`" for kind in ("set", "config") for key, value in advice.get(kind, {}).items()]
    parts += [_rename(key, value) for key, value in advice.get("rename", {}).items()]
    return ", ".join(parts)


def _value(value: Any) -> str:
    """A value as YAML writes it, of an expression its source."""
    from .quantity import text_of

    return value.removeprefix("= ") if isinstance(value, str) else text_of(value, "").replace(",", "")


def _rename(key: str, name: str) -> str:
    return "rename the key to the probable intended one" if key.startswith("item.") else f"rename `{key}` to `{name}`"


def _recipe(name: str) -> str:
    """A recipe in its own words, where they hold no numbers of a job, and what it costs."""
    from .load import bundled

    recipe = bundled()[1][name]
    words = "".join(recipe.text or ()) if all(isinstance(part, str) for part in recipe.text or ()) else ""
    return f"{words or name.replace('-', ' ')} (cost: {recipe.cost})"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(block.split()) for block in str(text).split("\n\n")).strip()


def _code(text: str, language: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
