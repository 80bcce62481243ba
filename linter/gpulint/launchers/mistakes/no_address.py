"""Several nodes and no address at which they meet: each then takes the default, which is its own 127.0.0.1.

Sources: torch 2.13 `distributed/run.py` (`--master-addr`; only `PET_*` variables are read), SGLang 0.5.23 `managers/
scheduler.py` (`dist_init_addr`), accelerate 1.15.0 `utils/launch.py` (`main_process_ip`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...formats.core.coercion import as_integer
from .starts import number, option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...formats.core.format import Problem
    from .starts import Start


def no_address(start: Start) -> Iterator[Problem]:
    """The problem of the option that says how many nodes there are. Operators give their pods an address themselves."""
    if "group" in start.resources.told:
        return
    for name, root in start.launcher("torchrun", "accelerate"):
        nodes = option(root, "nnodes") if name == "torchrun" else option(root, "num_machines")
        stated = ("rdzv_endpoint", "master_addr", "standalone") if name == "torchrun" else ("main_process_ip",)
        elsewhere = name == "accelerate" and (
            option(root, "config_file") is not None or option(root, "machine_rank") is None
            or option(root, "use_deepspeed") is not None
        )  # fmt: skip
        several = nodes is not None and (as_integer(nodes.value.value) or 0) > 1
        if (
            nodes is not None
            and several
            and not elsewhere
            and option(root, *stated) is None
            and not _by_variable(start)
        ):
            key = "main_process_ip" if name == "accelerate" else "rdzv_endpoint"
            yield start.problem(
                "no-address",
                str(nodes.key.value),
                nodes.value.span,
                value=str(nodes.value.value),
                other=f"{name}'s --{key}",
            )
        return
    if start.program.head not in ("sglang.launch_server", "sglang"):
        return
    nodes = option(start.options, "nnodes")
    count = number(nodes)
    if (
        nodes is not None
        and count is not None
        and count > 1
        and option(start.options, "dist-init-addr", "nccl-init-addr") is None
    ):
        yield start.problem(
            "no-address", str(nodes.key.value), nodes.value.span, value=str(count), other="SGLang's --dist-init-addr"
        )


def _by_variable(start: Start) -> bool:
    return any(name in start.environment for name in ("PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"))
