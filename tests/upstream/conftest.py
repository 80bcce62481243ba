"""Every row of `gpulint.upstream`, by its module and name."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from gpulint import upstream
from gpulint.upstream.behaviour import Behaviour, BehaviourByType, Default, Span

MODULES = [import_module(module.name) for module in pkgutil.walk_packages(upstream.__path__, f"{upstream.__name__}.")]


def rows_of(kind):
    """(module and name, row) of one class; those of a tuple by the tuple's name and their place in it."""
    for module in MODULES:
        for name, value in vars(module).items():
            listed = value if isinstance(value, tuple) and not hasattr(value, "_fields") else ()
            for place, row in [(name, value), *((f"{name}[{place}]", row) for place, row in enumerate(listed))]:
                if isinstance(row, kind) and getattr(row, "package", "") == getattr(module, "NAME", None):
                    yield f"{module.__name__.removeprefix('gpulint.upstream.')}.{place}", row


BEHAVIOURS = dict(rows_of(Behaviour))
BY_TYPE = dict(rows_of(BehaviourByType))
DEFAULTS = dict(rows_of(Default))


def spans():
    """(id, a function of a version, the span in which it holds) of each row and of each type that a row names."""
    for name, row in BEHAVIOURS.items():
        yield name, row.at, Span(row.since, row.until)
    for name, row in DEFAULTS.items():
        yield name, row.at, Span(row.since, row.until)
    for name, row in BY_TYPE.items():
        for type_, span in [*row.types.items(), ("no type that it names", row.others)]:
            yield f"{name}[{type_}]", lambda version, row=row, type_=type_: row.at(version, type_), span
