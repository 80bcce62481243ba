"""What else a launch says that rules may read: environment variables, options of the wrappers, the container."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...job.origin import Origin
from ...source.places import places_of
from ..containers.docker import tell_container
from ..shell.script import place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...source.document import Document
    from ..launch import Resources
    from ..shell.shell import Word
    from .wrappers import Unwrapped

MAX_VARIABLES = 200

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,63}")


def tell(resources: Resources, program: Unwrapped, variables: Mapping[str, Word], file: Document) -> None:
    """Note the variables with stated values, and the options of what wraps the program."""
    places = places_of(file.text)
    for name, word in list(variables.items())[:MAX_VARIABLES]:
        if word.known and word.text and _VARIABLE.fullmatch(name):
            written = bool(word.at) and word.at[0] >= 0
            span = place(places, word.at) if written else None
            origin = Origin("file" if written else "derived", "", file.path if written else None, name, span, span)
            resources.told[f"environment.{name}"] = (word.text, origin)
    for wrapper, options in (*program.launchers, *program.options):
        for entry in options.root.entries():
            key = str(entry.key.value).replace("-", "_")
            if entry.value.is_scalar:
                resources.tell(f"{wrapper}.{key}", entry.value.value, file.path, key, entry.value.span)
    wrappers = [name for name, _ in (*program.launchers, *program.options)]
    if wrappers:
        resources.told["wrappers"] = (wrappers, Origin("derived", "the command line"))
    tell_container(resources, program, file)
    if program.image:
        resources.told.setdefault("container.image", (program.image, Origin("derived", "the command line")))
