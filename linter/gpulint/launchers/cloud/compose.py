"""Docker Compose (compose-spec: `services`, `deploy.resources.reservations.devices`, `shm_size`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...job.origin import Origin
from ...repository.images import versions as image_versions
from ..commands.images import elsewhere, not_estimated, program_of, why_alone
from ..commands.jobs import jobs_of_commands
from ..commands.skip_reasons import NOTHING
from ..containers.docker import CONTAINER_SHARED_MEMORY
from ..containers.mounts import of_compose
from ..containers.ports import forwarded
from ..kubernetes.container import (
    Container,
    foreign,
    jobs_of_container,
    listed_environment,
    one_string,
    split_command,
)
from ..kubernetes.pod_settings import SHARED
from ..launch import Asked, Launch, Launcher, Resources, Started
from ..mistakes.manifests import refused_devices
from ..quantities import size
from ..shell.shell import Command, Word
from ..values import count, mappings, scalar, value_at

if TYPE_CHECKING:
    from ...formats.core.format import Problem, Project
    from ...source.document import Document
    from ...source.node import Node

NAME = "docker_compose"
_DEFAULT = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)")


def recognise(document: Document) -> bool:
    """`services`, each a mapping with an image or a build."""
    services = document.root.get("services")
    if services is None or not services.is_mapping:
        return False
    return any(
        entry.value.is_mapping and set(entry.value.keys()) & {"image", "build", "extends", "command"}
        for entry in services.entries()
    )


def launches(document: Document, project: Project) -> Started:
    """The jobs of every service."""
    found: list[Launch] = []
    bare: list[Launch] = []
    problems: list[Problem] = []
    devices: list[str] = []
    alone = ""
    services = document.root.get("services")
    for entry in services.entries() if services is not None else ():
        service = entry.value
        if not service.is_mapping:
            continue
        resources = Resources()
        resources.beside = None if "profiles" in service.keys() else services  # noqa: SIM118
        resources.mounts = of_compose(service)
        _read_resources(service, document, resources)
        device = elsewhere(_image(service))
        if device and not {"build"} & set(service.keys()):
            devices.append(device)
            continue
        problems += refused_devices(service, document)
        started = _jobs(service, document, project, resources, f"service {entry.key.value}")
        found += started.launches
        bare += started.bare
        problems += started.problems
        alone = alone or why_alone(_image(service))
    return Started(found, problems, "" if found else alone or _why(services, devices), bare=bare)


def _why(services: Node | None, devices: list[str]) -> str:
    """Why no service is a job."""
    known = [entry.value for entry in services.entries() if entry.value.is_mapping] if services is not None else []
    device = next((name for name in devices if name != "CPUs"), devices[0] if devices else "")
    if known and all(_builds(service) for service in known):
        return "builds images, starts no server"
    return not_estimated(device) if device else NOTHING


def _builds(service: Node) -> bool:
    return service.get("build") is not None and service.get("command") is None


def _image(service: Node) -> str:
    image = service.get("image")
    return _filled(str(image.value)) if image is not None and image.is_scalar else ""


def _jobs(service: Node, document: Document, project: Project, resources: Resources, part: str) -> Started:
    name = _image(service)
    if _builds(service):
        return Started([], [], "builds an image")
    stated = listed_environment(document, service.get("environment"))
    variables = {key: _with_default(value) for key, value in stated.items()}
    first = split_command(document, service.get("entrypoint"))
    command = split_command(document, service.get("command")) or []
    entry = service.get("entrypoint")
    if entry is not None and entry.is_sequence and first:
        problem = one_string(document, next(iter(entry.items())), first)
        if problem is not None:
            return Started([], [problem], "its command is one string")
    words = [*(_entry_words(name, command) if first is None else first), *command]
    if not words:
        return jobs_of_container(Container(name, None, (), variables), document, project, resources, part)
    filled = tuple(_with_default(word) for word in words)
    started = jobs_of_commands([Command(filled, variables)], document, project, resources, part, image_versions(name))
    return foreign(started, name)


def _entry_words(image: str, command: list[Word]) -> list[Word]:
    """The program of an image, or the one that its arguments tell."""
    at = command[0].at[:1] if command and command[0].at else (0,)
    return [Word(text, at * len(text)) for text in program_of(image, command)]


def _filled(text: str) -> str:
    """A text with the defaults of its variables: `${TAG:-latest}`."""
    return _DEFAULT.sub(lambda match: match[2] if match[2] is not None else match[0], text)


def _with_default(word: Word) -> Word:
    text = _filled(word.text)
    if text == word.text:
        return word
    at = (word.at + word.at[-1:] * len(text))[: len(text)]
    return word._replace(text=text, at=at, known="$" not in text)


def _read_resources(service: Node, document: Document, resources: Resources) -> None:
    for device in mappings(value_at(service, "deploy.resources.reservations.devices")):
        entry, ids = device.entry("count"), device.get("device_ids")
        resources.read("gpus_per_node", entry, document.path, "devices.count", count)
        if entry is None and ids is not None and ids.items():
            resources.state("gpus_per_node", len(ids.items()), document.path, "devices.device_ids", ids.span)
            listed = ",".join(str(item.value) for item in ids.items())
            resources.tell("devices", listed, document.path, "devices.device_ids", ids.span)
    if (all_ := service.entry("gpus")) is not None:
        resources.read("gpus_per_node", all_, document.path, parse=count)
        for device in mappings(all_.value):
            resources.read("gpus_per_node", device.entry("count"), document.path, "gpus.count", count)
    limit = service.find("mem_limit") or service.find("deploy.resources.limits.memory")
    if limit is not None and limit.value.is_scalar and (most := size(_filled(str(limit.value.value)))):
        resources.state("host_memory", most, document.path, str(limit.key.value), limit.value.span)
        resources.tell("container.memory_limit", most, document.path, str(limit.key.value), limit.value.span)
    image = service.entry("image")
    if image is not None and image.value.is_scalar:
        resources.tell("container.image", _filled(str(image.value.value)), document.path, "image", image.value.span)
    ports = service.entry("ports")
    if ports is not None:
        published = [_published(item) for item in ports.value.items()]
        listed = ",".join(port for port in published if port)
        resources.tell("container.ports", listed, document.path, "ports", ports.value.span)
        inside = tuple(port for item in ports.value.items() if (port := _inside(item)) is not None)
        if len(inside) == len(ports.value.items()) and service.get("network_mode") is None:
            at = ports.value.items()[0].span if inside else ports.value.span
            resources.asked_ports.append(Asked(inside, "published port", "ports", document.path, at))
    others = [name for name in ("runtime", "gpus", "devices", "extends") if service.get(name) is not None]
    if mappings(value_at(service, "deploy.resources.reservations.devices")):
        others.append("reservations.devices")
    resources.told["container.devices"] = (others, Origin("derived", "the service"))
    privileged = service.entry("privileged")
    if privileged is not None:
        value, span = privileged.value.value, privileged.value.span
        resources.tell("container.privileged", value, document.path, "privileged", span)
    _shared_memory(service, document, resources)


def _inside(item: Node) -> int | None:
    """The container's port of an entry of `ports`."""
    return forwarded(scalar(item, "target") if item.is_mapping else _filled(str(item.value)))


def _published(item: Node) -> str:
    """The host's port of an entry of `ports`: `8000:8000`, `127.0.0.1:8000:80/tcp`, `{target: 80, published: 8000}`."""
    if item.is_mapping:
        given = item.get("published")
        return str(given.value) if given is not None else ""
    parts = _filled(str(item.value)).split(":")
    return parts[-2] if len(parts) > 1 else ""


def _shared_memory(service: Node, document: Document, resources: Resources) -> None:
    """`shm_size`, else Docker's 64 MiB unless the service has the host's or mounts another."""
    resources.read("shared_memory", service.entry("shm_size"), document.path, parse=size)
    if service.get("shm_size") is not None:
        return
    mounts = [node for key in ("volumes", "tmpfs") if (node := service.get(key)) is not None]
    mounted = any(SHARED in document.text[node.span.start : node.span.end] for node in mounts)
    if service.get("ipc") is None and service.get("extends") is None and not mounted:
        resources.shared_memory = CONTAINER_SHARED_MEMORY
        resources.origins["shared_memory"] = Origin("default", "64 MiB, Docker's default")


LAUNCHER = Launcher(
    NAME, "Docker Compose file", "compose-spec 2025", recognise, launches, "`deploy.resources.reservations.devices`"
)
