"""Comments that speak to gpulint.

# gpulint: gpu=h100-80gb gpus=8 nodes=1
# gpulint: ignore[RULE, ...] reason          (this line or the next)
# gpulint: ignore-file[RULE, ...] reason
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .source.document import Document, SourceError

_MARK = re.compile(r"^\s*gpulint:\s*(.*)$")
_PAIR = re.compile(r"([a-z_]+)=(\S+)")
_IGNORE = re.compile(r"ignore(-file)?\[([^\]]*)\]")


@dataclass(slots=True)
class Directives:
    """What the comments of one file say.

    `ignored` maps a line to the rule ids or names suppressed there; line 0 stands for the whole file. `lines`
    tells on which line `gpu`, `gpus` and `nodes` stand.
    """

    gpu: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    lines: dict[str, int] = field(default_factory=dict)
    ignored: dict[int, set[str]] = field(default_factory=dict)

    def ignores(self, line: int, rule: str, name: str) -> bool:
        """Whether a finding of `rule` on `line` is suppressed: on its line, the line above, or for the file."""
        return any(mark in self.ignored.get(place, ()) for place in (0, line, line - 1) for mark in (rule, name, "all"))


def read_directives(document: Document) -> Directives:
    """The directives of a document.

    Raises SourceError with the comment's line for a directive that cannot be understood: a silent typo there
    would check against the wrong hardware.
    """
    directives = Directives()
    for comment in document.comments:
        mark = _MARK.match(comment.text)
        if mark is None or mark[1].startswith("job/"):
            continue
        text = mark[1]
        ignore = _IGNORE.match(text)
        if ignore:
            names = {name.strip() for name in ignore[2].split(",") if name.strip()}
            line = 0 if ignore[1] else comment.line
            directives.ignored.setdefault(line, set()).update(names)
            continue
        _hardware(document.path, comment.line, text, directives)
    return directives


def _hardware(path: str, line: int, text: str, directives: Directives) -> None:
    rest = _PAIR.sub("", text).strip(" ,")
    pairs = _PAIR.findall(text)
    if rest or not pairs:
        raise SourceError(path, f"cannot understand the comment 'gpulint: {text.strip()}'", line, 1)
    for key, value in pairs:
        value = value.rstrip(",")
        if key == "gpu":
            directives.gpu = value
        elif key in ("gpus", "nodes"):
            if not value.isdigit() or int(value) < 1:
                raise SourceError(path, f"{key} in a gpulint comment takes a whole number, not {value!r}", line, 1)
            setattr(directives, key, int(value))
        else:
            raise SourceError(path, f"unknown key {key!r} in a gpulint comment; known are gpu, gpus, nodes", line, 1)
        directives.lines[key] = line
