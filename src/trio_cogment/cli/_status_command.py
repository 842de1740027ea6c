"""What `trio-cogment status` does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click
import trio
from google.protobuf.descriptor import ServiceDescriptor

from trio_cogment.api.common_pb2 import StatusReply, StatusRequest
from trio_cogment.api.directory_pb2 import FullServiceData, ServiceEndpoint
from trio_cogment.cli._client_run import channel_to, run_client
from trio_cogment.cli._directory_commands import as_json, asking, endpoint_text, kind_of, type_text
from trio_cogment.cli._settings import ClientSettings, Failure
from trio_cogment.cli._text import printable
from trio_cogment.endpoints import DiscoverEndpoint, GrpcEndpoint, parse_endpoint
from trio_cogment.errors import CogmentError, EndpointError, RpcError
from trio_cogment.rpc import CallOpener, methods_of
from trio_cogment.services import SERVICES, ServiceKind, kind_of_type

#: As with the reference; `--timeout` can make it less.
_MOST_SECONDS = 10.0
#: Services that are asked at the same time.
_MOST_AT_ONCE = 16


@dataclass(slots=True, kw_only=True)
class _Answer:
    """What a service says.

    Attributes:
        statuses: by name.
        found_type: what it is, if that had to be found out.
        error: why it says nothing.
    """

    statuses: dict[str, str] = field(default_factory=dict)
    found_type: str = ""
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return printable(f" ::: {self.error}")
        said = "".join(f" [{name}:{self.statuses[name]}]" for name in sorted(self.statuses))
        return self.found_type + printable(said)

    def as_json(self) -> dict[str, Any]:
        return {"error": self.error} if self.error else {"statuses": self.statuses}


def show_statuses(
    settings: ClientSettings,
    where: str,
    token: str,
    endpoint: str,
    *,
    kind: str,
    verbose: int,
    names: Sequence[str],
) -> None:
    """Print the statuses of a service, or of those that a directory knows, and of the directory itself.

    Raises:
        Failure: the directory cannot be asked.
    """
    settings = replace(settings, timeout_seconds=min(settings.timeout_seconds, _MOST_SECONDS))
    try:
        target = parse_endpoint(endpoint, field_name="--endpoint")
    except EndpointError as error:
        raise Failure(str(error)) from None
    if isinstance(target, GrpcEndpoint):
        answer = run_client(settings, _ask_at, settings, target, kind_of(kind), names, bounded=False)
        _print(settings, f"{kind}{answer}", {"type": kind or answer.found_type, **answer.as_json()})
    elif isinstance(target, DiscoverEndpoint):
        if target.kind is None and not target.service_id:
            target = replace(target, kind=kind_of(kind))
        run_client(settings, _show_found, settings, where, token, target, verbose, names, bounded=False)
    else:
        raise Failure(f"--endpoint: {endpoint!r}: expected grpc://host:port or cogment://discover...")


async def _show_found(
    settings: ClientSettings, where: str, token: str, target: DiscoverEndpoint, verbose: int, names: Sequence[str]
) -> None:
    directory = await _ask_directory(settings, where, names)
    text = settings.output == "text"
    if text:
        click.echo(f"{ServiceKind.DIRECTORY.value}{directory}")
    if directory.error:
        raise Failure(f"--directory_endpoint: {directory.error}")
    async with asking(settings, where, token) as client:
        services = await client.inquire(
            target.kind, target.properties, service_id=target.service_id, token=target.token
        )
    answers = await _ask_all(settings, services, names)
    if text:
        for service, answer in zip(services, answers, strict=True):
            click.echo(f"[{_described(service, verbose)}]{answer}")
        return
    found = [{**as_json(service), **answer.as_json()} for service, answer in zip(services, answers, strict=True)]
    _print(settings, "", {"directory": directory.as_json(), "services": found})


def _print(settings: ClientSettings, text: str, data: Any) -> None:
    click.echo(json.dumps(data, ensure_ascii=False) if settings.output == "json" else text)


def _described(service: FullServiceData, verbose: int) -> str:
    endpoint, ssl = endpoint_text(service.endpoint)
    properties = service.details.properties
    parts = [
        str(service.service_id),
        endpoint + (" -- ssl" if ssl else ""),
        type_text(service.details.type),
        "permanent" if service.permanent else "transient",
        ", ".join(f"{name} = {properties[name]}" for name in sorted(properties)),
    ]
    return printable(" -- ".join(part for part in parts[: verbose + 1] if part))


async def _ask_directory(settings: ClientSettings, where: str, names: Sequence[str]) -> _Answer:
    try:
        async with channel_to(settings, where, flag="--directory_endpoint") as channel:
            return await _ask(settings, channel, ServiceKind.DIRECTORY, names)
    except CogmentError as error:
        return _Answer(error=str(error))


async def _ask_all(
    settings: ClientSettings, services: Sequence[FullServiceData], names: Sequence[str]
) -> list[_Answer]:
    """Ask all services; what goes wrong with one concerns no other."""
    answers = [_Answer() for _ in services]
    limit = trio.CapacityLimiter(_MOST_AT_ONCE)

    async def ask(number: int, service: FullServiceData) -> None:
        async with limit:
            answers[number] = await _ask_service(settings, service, names)

    async with trio.open_nursery() as nursery:
        for number, service in enumerate(services):
            nursery.start_soon(ask, number, service)
    return answers


async def _ask_service(settings: ClientSettings, service: FullServiceData, names: Sequence[str]) -> _Answer:
    endpoint, ssl = endpoint_text(service.endpoint)
    kind = kind_of_type(service.details.type)
    if service.endpoint.protocol == ServiceEndpoint.COGMENT:
        return _Answer(error="it comes to the orchestrator, and cannot be asked")
    if kind is None:
        return _Answer(error=f"its type, {service.details.type}, is unknown here")
    if ssl and settings.tls is None:
        return _Answer(error="it expects TLS, for which we have no files (--private_key, --root_cert, --trust_chain)")
    try:
        target = parse_endpoint(endpoint)
    except EndpointError as error:
        return _Answer(error=str(error))
    assert isinstance(target, GrpcEndpoint)
    return await _ask_at(settings, target, kind, names)


async def _ask_at(
    settings: ClientSettings, target: GrpcEndpoint, kind: ServiceKind | None, names: Sequence[str]
) -> _Answer:
    async with channel_to(settings, str(target), flag="--endpoint") as channel:
        return await _ask(settings, channel, kind, names)


async def _ask(
    settings: ClientSettings, channel: CallOpener, kind: ServiceKind | None, names: Sequence[str]
) -> _Answer:
    """Ask a service for its statuses; without a kind the first that answers, in the order of `ServiceKind`, counts."""
    if kind is ServiceKind.OTHER:
        return _Answer(error="a service of type other has no statuses")
    error = ""
    deadline = trio.current_time() + settings.timeout_seconds
    for candidate in [kind] if kind else [kind for kind in ServiceKind if kind is not ServiceKind.OTHER]:
        try:
            statuses = await _statuses(channel, SERVICES[candidate].descriptor(), names, deadline)
        except RpcError as failure:
            error = error or str(failure)
        else:
            return _Answer(statuses=statuses, found_type="" if kind else candidate.value)
    return _Answer(error=error)


async def _statuses(
    channel: CallOpener, service: ServiceDescriptor, names: Sequence[str], deadline: float
) -> dict[str, str]:
    timeout = max(0.0, deadline - trio.current_time())
    reply: StatusReply = await channel.unary(methods_of(service)["Status"], StatusRequest(names=names), timeout=timeout)
    return dict(reply.statuses)
