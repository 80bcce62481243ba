"""The README and the pages of docs/ are true: every `$ gpulint ...` block shows what the command prints.

A page's blocks run in order in a folder that holds a copy of `examples/`. A fenced block with a `title="PATH"` is a
file of that name from there on. `cat FILE` and `echo $?` are the only other commands; tests/test_pre_commit.py checks
what pre-commit prints.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpulint.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    if path.name != "writing-rules.md"  # tests/rules/test_writing_rules.py: its files are made from one another
    and re.search('```console|title="', path.read_text(encoding="utf-8"))
)
BLOCK = re.compile(
    r"^```(?:console\n(?P<console>.*?)|\w+ title=\"(?P<name>[^\"]+)\"\n(?P<text>.*?))^```$", re.MULTILINE | re.DOTALL
)
ELSEWHERE = ("pre-commit", "git")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A repository with the examples, in which the commands run."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("GITHUB_ACTIONS", "TF_BUILD", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class Shell:
    """What the pages' commands need of one: the last exit code, and a file as standard input."""

    code = 0

    def output(self, command: str) -> str:
        """What a command prints, both streams."""
        if command == "echo $?":
            return f"{self.code}\n"
        command, _, given = command.partition(" < ")
        program, *words = shlex.split(command)
        if program == "cat":
            (name,) = words
            return Path(name).read_text(encoding="utf-8")
        assert program == "gpulint", f"a block of its own language for what is not shown: {command}"
        text = Path(given).read_text(encoding="utf-8") if given else None
        done = CliRunner().invoke(main, words, input=text, prog_name="gpulint")
        self.code = done.exit_code
        return done.output


def renewed(block: re.Match[str], shell: Shell) -> str:
    """The block with what its commands print now."""
    if block["name"]:
        path = Path(block["name"])
        assert not path.is_absolute()
        assert ".." not in path.parts
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["text"], encoding="utf-8")
        return block[0]
    commands = re.findall(r"^\$ (.*)$", block["console"], re.MULTILINE)
    if commands[0].startswith(ELSEWHERE):
        return block[0]
    shown = [f"$ {command}\n{shell.output(command)}".rstrip("\n") + "\n" for command in commands]
    return "```console\n" + "".join(shown) + "```"


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_the_command_prints(request, folder, page):
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    shell = Shell()
    now = BLOCK.sub(lambda block: renewed(block, shell), text)
    if request.config.getoption("--update-golden"):
        path.write_text(now, encoding="utf-8")
    assert now == path.read_text(encoding="utf-8")


WRITTEN = re.compile(r"(?:`|^ {4}|^\$ )(?:\.venv/bin/)?gpulint ([a-z][\w-]*(?: [a-z][\w-]*)*)([^`\n]*)", re.MULTILINE)


EVERY = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", EVERY, ids=lambda path: path.stem)
def test_commands_and_options_that_a_page_names_exist(page):
    for words, rest in WRITTEN.findall(page.read_text(encoding="utf-8")):
        command, context = main, click.Context(main)
        for word in words.split():
            if isinstance(command, click.Group):
                named = command.get_command(context, word.replace("chek", "check"))  # a page shows what that prints
                command = named or command.commands.get(getattr(command, "otherwise", ""))
                assert command is not None, f"{page.name}: gpulint {words}"
        known = {option for item in command.params for option in (*item.opts, *item.secondary_opts)} | {"--help", "-h"}
        named = set(re.findall(r"(?<!\S)(--[a-z][\w-]*)", f"{words} {rest}"))
        assert named <= known, f"{page.name}: gpulint {words}{rest}"


def test_pages_are_found():
    assert {"README.md", "docs/index.md", "docs/ci.md"} <= set(PAGES)


@pytest.mark.parametrize("page", EVERY, ids=lambda path: path.stem)
def test_files_that_a_page_links_are_there(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


READ = [
    *EVERY,
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "editors/vscode/README.md")),
]


@pytest.mark.parametrize("page", READ, ids=lambda path: path.stem)
def test_a_page_names_no_folder_of_a_developer_s_machine(page):
    assert re.findall(r"\.\./shared|/work/|/home/(?!me/)", page.read_text(encoding="utf-8")) == []


def test_the_site_is_built(tmp_path):
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "fonts.googleapis" not in page
