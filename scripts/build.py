"""Regenerates everything that is generated from the project's own files; `--check` only says what is stale.

    python scripts/build.py [--check]

A generator is a function that yields (path below the project root, text); add yours to GENERATORS.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
Generated = tuple[str, str]


def rules_index() -> Iterator[Generated]:
    """`rules/index.json`: the bundled rules compiled."""
    from gpulint.rules.index import index_text

    yield "rules/index.json", index_text(str(ROOT / "rules"))


def rules_pages() -> Iterator[Generated]:
    """`docs/rules/`: a page a rule with the real outcome of its examples."""
    from gpulint.rules import explain
    from gpulint.rules.examples import run_examples
    from gpulint.rules.index import rule_files
    from gpulint.rules.load import bundled

    bundled.cache_clear()
    for file in rule_files(str(ROOT / "rules")):
        yield f"docs/rules/{file.id}.md", explain.page(file, run_examples(file))


def rules_tables() -> Iterator[Generated]:
    """The table of the rules, and the facts that they can name."""
    from gpulint.rules import explain
    from gpulint.rules.facts import facts_page
    from gpulint.rules.index import rule_files

    yield "docs/rules/index.md", explain.index_page(rule_files(str(ROOT / "rules")))
    yield "docs/rules/facts.md", facts_page.page()


def formats_page() -> Iterator[Generated]:
    """`docs/formats.md`: the table of config formats and launchers."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from formats_page import page  # type: ignore[import-not-found]

    yield "docs/formats.md", page()


def keys_page() -> Iterator[Generated]:
    """`docs/format-keys.md`: the keys of each format and the fields that they set."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from keys_page import page  # type: ignore[import-not-found]

    yield "docs/format-keys.md", page()


def schemas() -> Iterator[Generated]:
    """`schemas/`: what gpulint reads and prints. Releases of pydantic before 2.13 spell the same schemas otherwise."""
    import pydantic

    sys.path.insert(0, str(ROOT / "scripts"))
    from declared_schemas import texts  # type: ignore[import-not-found]

    if tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 13):
        for name, text in texts():
            yield f"schemas/{name}.json", text


def settings_page() -> Iterator[Generated]:
    """The keys in `docs/settings.md`."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from settings_page import page  # type: ignore[import-not-found]

    yield "docs/settings.md", page((ROOT / "docs/settings.md").read_text(encoding="utf-8"))


def commands_page() -> Iterator[Generated]:
    """`docs/commands.md`: every command with its options, as click knows them."""
    sys.path.insert(0, str(ROOT / "scripts"))
    from commands_page import page  # type: ignore[import-not-found]

    yield "docs/commands.md", page()


def accuracy_pages() -> Iterator[Generated]:
    """`docs/accuracy.md`'s tables, `docs/accuracy-tables.md` and a part of `CHANGELOG.md`: the last record."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.accuracy import pages, record

    recorded = record.read()
    yield "docs/accuracy.md", pages.summary((ROOT / "docs/accuracy.md").read_text(encoding="utf-8"), recorded)
    yield "docs/accuracy-tables.md", pages.tables(recorded)
    yield "CHANGELOG.md", pages.changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), recorded)


def gitlab_template() -> Iterator[Generated]:
    """`ci/gitlab.yml`: the job that `gpulint init --ci gitlab` writes."""
    from gpulint.commands.init import with_job

    yield "ci/gitlab.yml", with_job(None)


GENERATORS: tuple[Callable[[], Iterator[Generated]], ...] = (
    schemas, rules_index, rules_pages, rules_tables, formats_page, keys_page, settings_page, commands_page,
    accuracy_pages, gitlab_template,
)  # fmt: skip
"""In order: what a later one reads, an earlier one has written."""


def main(arguments: list[str]) -> int:
    """Write what is stale, or with `--check` list it; 1 when something was stale under `--check`."""
    checking = "--check" in arguments
    stale: list[str] = []
    for generate in GENERATORS:
        for name, text in generate():
            path = ROOT / name
            if path.exists() and path.read_text(encoding="utf-8") == text:
                continue
            stale.append(name)
            if not checking:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"{'stale' if checking else 'wrote'} {name}")
    return int(checking and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
