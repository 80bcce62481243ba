"""Addresses at which each of several nodes finds itself: `localhost` as the place where all ranks meet.

`own-address`: the address is the loopback, or what `hostname` says on each node. `hosts-file-address`: `hostname
--ip-address` looks the node's name up, often in its own hosts file where it is 127.0.1.1 (manual of hostname(1)).
`local-interface`: NCCL or Gloo are told to use an interface that reaches no other node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...formats.core.coercion import as_integer
from .starts import is_written, number, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from ...source.node import Entry, Span
    from .starts import Start

_LOOPBACK = re.compile(r"(?:\w+://)?(?:localhost|127(?:\.\d+){3}|\[?::1\]?|0\.0\.0\.0)(?::\S*)?")
_ASKS_ITSELF = re.compile(r"\$\(\s*hostname(?:\s+-[IifsA]+)?\s*(?:\|[^)]*)?\)|`\s*hostname[^`]*`|\$\{?HOSTNAME\}?")
_HOSTS_FILE = re.compile(r"\bhostname\s+(?:--ip-address\b|-i\b)")
_INTERFACES = re.compile(r"=?(?:lo|docker0)")
_LOCAL = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


class _Address(NamedTuple):
    """An address that the ranks are told, by the key that tells it."""

    key: str
    text: str
    span: Span
    at: tuple[int, ...] = ()
    path: str | None = None


def own_address(start: Start) -> Iterator[Problem]:
    """The problems of the addresses of a start that spans several nodes."""
    nodes = spanned(start)
    if nodes is None or nodes < 2:
        return
    for address in _addresses(start):
        if _is_one_of_several(start.file.text, address.span.start):
            continue
        if _LOOPBACK.fullmatch(address.text):
            found_here = start.problem("own-address", address.key, address.span, value=address.text, found=str(nodes))
            yield found_here._replace(path=address.path or found_here.path)
        elif _HOSTS_FILE.search(address.text):
            yield start.problem("hosts-file-address", address.key, address.span, value=address.text[:80])
        elif (found := _ASKS_ITSELF.match(address.text)) is not None and _on_each_node(start, address):
            yield start.problem("own-address", address.key, address.span, value=found[0], found=str(nodes))
    for name in _LOCAL:
        word = start.environment.get(name)
        span = start.at(word) if word is not None else None
        if word is not None and span is not None and _INTERFACES.fullmatch(word.text):
            yield start.problem("local-interface", name, span, value=word.text.lstrip("="))


def _is_one_of_several(text: str, here: int) -> bool:
    """Whether what stands at a place is the default of a variable, or one of several values that the file gives it."""
    before = text[:here]
    name = _ASSIGNED.search(before)
    return _DEFAULT.search(before) is not None or (name is not None and len(re.findall(rf"\b{name[1]}=", text)) > 1)


_ASSIGNED = re.compile(r"\b([A-Za-z_]\w*)=[\"']?$")
_DEFAULT = re.compile(r"\$\{\w+:?[-=]$")


def spanned(start: Start) -> int | None:
    """Over how many nodes the ranks of a start are spread, as far as it says so itself."""
    for name, root in start.launcher("torchrun", "accelerate", "deepspeed", "ft_launcher"):
        entry = option(root, "nnodes", "num_machines", "num_nodes")
        if entry is not None:
            least = str(entry.value.value).partition(":")[0]
            return as_integer(least) or (start.resources.nodes if start.everywhere else None)
        told = start.resources.told.get("accelerate.num_machines") if name == "accelerate" else None
        if told is not None:
            return as_integer(told[0])
        if name == "deepspeed":
            return _hosts(start)
        return 1
    own = start.options
    if (nodes := number(option(own, "nnodes"))) is not None:
        return nodes
    whole, local = number(option(own, "data-parallel-size", "dp")), number(option(own, "data-parallel-size-local"))
    if whole is not None and local:
        return -(-whole // local)
    if start.program.head == "ray":
        return start.resources.nodes
    return start.resources.nodes if start.everywhere else None


def _hosts(start: Start) -> int | None:
    """The hosts of the file that DeepSpeed's launcher is given."""
    return next((len(hosts) for _, root in start.launcher("deepspeed") if (hosts := listed_hosts(start, root))), None)


def listed_hosts(start: Start, root: object) -> list[str]:
    """The lines of a hostfile that name a host; none where the file is not here."""
    from ...source.document import SourceError

    entry = option(root, "hostfile", "H")  # type: ignore[arg-type]
    if entry is None:
        return []
    try:
        document = start.project.open(str(entry.value.value), start.file.path)
    except SourceError:
        return []
    lines = document.text.splitlines() if document is not None else []
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


_TORCHRUN = ("rdzv_endpoint", "master_addr")
_ENGINES = ("dist-init-addr", "nccl-init-addr", "data-parallel-address", "master-addr", "master_addr")


def _addresses(start: Start) -> Iterator[_Address]:
    """Where the ranks are told to meet: by the launcher, else by the engine's options and the environment."""
    for _, root in start.launcher("torchrun", "ft_launcher"):
        alone = option(root, "standalone")
        if alone is not None:
            yield _Address("standalone", "localhost:0", alone.key.span)
            return
        static = option(root, "rdzv_backend") is None
        yield from _stated(root, *(_TORCHRUN if static else _TORCHRUN[:1]))
        return
    for name, root in start.launcher("accelerate", "deepspeed"):
        found = list(_stated(root, "main_process_ip", "master_addr"))
        told = start.resources.told.get("accelerate.main_process_ip")
        if not found and name == "accelerate" and told is not None and told[1].span is not None:
            yield _Address("main_process_ip", str(told[0]), told[1].span, (), told[1].file)
        yield from found
        return
    if start.program.head == "ray":
        root = start.options
        yield from () if option(root, "head") is not None else _stated(root, "address")
        return
    found = list(_stated(start.options, *_ENGINES))
    yield from found
    word = start.environment.get("MASTER_ADDR")
    span = start.at(word) if word is not None else None
    if word is not None and span is not None and not found and _reads_master(start):
        yield _Address("MASTER_ADDR", word.text, span, word.at)


def _reads_master(start: Start) -> bool:
    """Whether a program is a script that several tasks run, which meet at MASTER_ADDR (torch's `env://`)."""
    return start.program.head.endswith(".py") or start.program.module or start.everywhere


def _stated(root: object, *names: str) -> Iterator[_Address]:
    for name in names:
        entry: Entry | None = option(root, name)  # type: ignore[arg-type]
        if entry is not None and entry.value.is_scalar:
            span = entry.value.span
            yield _Address(name, str(entry.value.value), span, tuple(range(span.start, span.end)))


def _on_each_node(start: Start, address: _Address) -> bool:
    """Whether each node asks for its own name: within a task of srun, or in a script that every node runs."""
    if "srun" not in start.wrappers:
        return start.everywhere
    text, here = start.file.text, address.at[0] if address.at else address.span.start
    begin = text.rfind("srun", 0, here)
    if begin < 0 or "\n" in re.sub(r"\\\r?\n", "", text[begin:here]):
        return False
    return text[begin:here].count("'") % 2 == 1 or text[here - 1] == "\\"


def same_rank(start: Start) -> Iterator[Problem]:
    """The rank of a node, written as a number into a command that each of several nodes runs."""
    if not start.everywhere:
        return
    for _, root in start.launcher("torchrun", "accelerate"):
        backend = option(root, "rdzv_backend")
        if backend is None or str(backend.value.value) in ("static", ""):
            entry = option(root, "node_rank", "machine_rank")
            yield from _ranked(start, entry)
            told = start.resources.told.get("accelerate.machine_rank") if entry is None else None
            if told is not None and told[1].span is not None:
                found = start.problem("same-rank", "machine_rank", told[1].span, value=str(told[0]))
                yield found._replace(path=told[1].file)
        return
    if (number(option(start.options, "nnodes")) or 1) > 1:
        yield from _ranked(start, option(start.options, "node-rank"))
    word = start.environment.get("NODE_RANK") if start.program.head in _RANKED else None
    span = start.at(word) if word is not None else None
    if (
        word is not None
        and span is not None
        and word.text.isdigit()
        and word.text == start.file.text[span.start : span.end]
    ):
        yield start.problem("same-rank", "NODE_RANK", span, value=word.text)


def _ranked(start: Start, entry: Entry | None) -> Iterator[Problem]:
    if entry is not None and number(entry) is not None and is_written(entry, start.file):
        yield start.problem("same-rank", str(entry.key.value), entry.value.span, value=str(entry.value.value))


_RANKED = frozenset({"llamafactory-cli", "swift", "megatron"})
"""Commands that start torchrun themselves, with NODE_RANK as the rank of the node."""
