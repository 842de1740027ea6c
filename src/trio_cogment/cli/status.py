"""`trio-cogment status`: the statuses of one service, or of those that a directory knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.endpoints import DISCOVER, DiscoverEndpoint, GrpcEndpoint, parse_endpoint, parse_server_endpoint
from trio_cogment.base.errors import EndpointError, RpcError
from trio_cogment.base.services import SERVICES, ServiceKind, kind_of_type
from trio_cogment.cli.client.common import (
    ClientSettings,
    channel_to,
    client_options,
    client_settings,
    run_client,
    show,
)
from trio_cogment.cli.client.directory import (
    directory_client,
    directory_options,
    endpoint_text,
    kind_of,
    type_option,
    type_text,
)
from trio_cogment.cli.client.reaching import Places, reached
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.text import fields_of, printable

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor

    from trio_cogment.api.common_pb2 import StatusReply
    from trio_cogment.api.directory_pb2 import FullServiceData
    from trio_cogment.rpc import CallOpener

#: As with the reference; `--timeout` can make it less.
_MAX_SECONDS = 10.0
#: How many services are asked at the same time.
_MAX_CALLS = 16


def _as_target(_ctx: click.Context, _param: click.Parameter, value: str) -> GrpcEndpoint | DiscoverEndpoint:
    try:
        return parse_server_endpoint(value, discovery=True, field_name="")
    except EndpointError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("names", nargs=-1, metavar="[NAMES]...")
@type_option("Type of the service; the default is to try, or to show, all types.")
@click.option(
    "--endpoint",
    default=DISCOVER,
    callback=_as_target,
    show_default=True,
    metavar="ENDPOINT",
    help="Services to ask: grpc://host:port, or cogment://discover... for those that the directory knows.",
)
@directory_options
@click.option(
    "-v",
    "--verbose",
    count=True,
    help="More about each service: -v its endpoint, -vv its type, -vvv whether it is permanent, -vvvv its properties.",
)
@client_options
@click.pass_context
def status(
    ctx: click.Context,
    /,
    names: tuple[str, ...],
    verbose: int,
    endpoint: GrpcEndpoint | DiscoverEndpoint,
    kind: str,
    **_: Any,
) -> int:
    """Ask services for their statuses with these names; '*' means all of them, no name means none."""
    settings = client_settings(ctx)
    settings = replace(settings, timeout_seconds=min(settings.timeout_seconds, _MAX_SECONDS))
    where, token = ctx.params["directory_endpoint"], ctx.params["directory_authentication_token"]
    if isinstance(endpoint, GrpcEndpoint):
        answers = run_client(_ask_awaited, settings, endpoint, kind_of(kind), names)
        return _show_all_of(settings, endpoint, kind, answers)
    if endpoint.kind is None and not endpoint.service_id:
        endpoint = replace(endpoint, kind=kind_of(kind))
    run_client(_show_found, settings, where, token, endpoint, verbose, names)
    return 0


@dataclass(slots=True, kw_only=True)
class _Answer:
    """The answer of a service.

    Attributes:
        statuses: by name.
        found_type: the type of the service, if the command found it by trying.
        error: why there are no statuses.
        names_endpoint: the error says who was asked.
    """

    statuses: dict[str, str] = field(default_factory=dict)
    found_type: str = ""
    error: str = ""
    names_endpoint: bool = False

    def __str__(self) -> str:
        if self.error:
            return printable(f" ::: {self.error}")
        said = "".join(f" [{name}:{self.statuses[name]}]" for name in sorted(self.statuses))
        return self.found_type + printable(said)

    def as_json(self) -> dict[str, Any]:
        return {"error": self.error} if self.error else {"statuses": self.statuses}


def _show_all_of(settings: ClientSettings, endpoint: GrpcEndpoint, kind: str, answers: Sequence[_Answer]) -> int:
    """Show what is at one endpoint; the JSON of the first service is at the top too, as it is for a single one.

    Returns:
        The exit code: 1 without any status.

    Raises:
        Failure: there is none, and it is not shown as JSON.
    """
    error = answers[0].error
    if error and settings.output == "text":
        raise Failure(error if answers[0].names_endpoint else f"{kind or 'the service'} at {endpoint}: {error}")
    found = [{"type": kind or answer.found_type, **answer.as_json()} for answer in answers]
    text = "\n".join(f"{kind}{answer}" for answer in answers)
    show(settings, text, found[0] if len(found) == 1 else {**found[0], "services": found})
    return int(bool(error))


async def _show_found(
    settings: ClientSettings,
    where: Places,
    token: str,
    target: DiscoverEndpoint,
    verbose: int,
    names: Sequence[str],
) -> None:
    text = settings.output == "text"
    async with reached(settings, ServiceKind.DIRECTORY, where, bounded=False) as channel:
        directory = await _ask(settings, channel, ServiceKind.DIRECTORY, names)
        if text:
            click.echo(f"{ServiceKind.DIRECTORY.value}{directory}")
        if directory.error:
            raise Failure(f"--directory_endpoint: {directory.error}")
        services = await directory_client(settings, channel, token).inquire(
            target.kind, target.properties, service_id=target.service_id, token=target.token
        )
    answers = await _ask_all(settings, services, names)
    if text:
        for service, answer in zip(services, answers, strict=True):
            click.echo(f"[{_described(service, verbose)}]{answer}")
        return
    found = [{**fields_of(service), **answer.as_json()} for service, answer in zip(services, answers, strict=True)]
    show(settings, "", {"directory": directory.as_json(), "services": found})


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


async def _ask_all(
    settings: ClientSettings, services: Sequence[FullServiceData], names: Sequence[str]
) -> list[_Answer]:
    """Ask all services; an error of one does not affect the others."""
    import trio

    answers = [_Answer() for _ in services]
    limit = trio.CapacityLimiter(_MAX_CALLS)

    async def ask(number: int, service: FullServiceData) -> None:
        async with limit:
            answers[number] = await _ask_service(settings, service, names)

    async with trio.open_nursery() as nursery:
        for number, service in enumerate(services):
            nursery.start_soon(ask, number, service)
    return answers


async def _ask_service(settings: ClientSettings, service: FullServiceData, names: Sequence[str]) -> _Answer:
    from trio_cogment.api.directory_pb2 import ServiceEndpoint

    endpoint, ssl = endpoint_text(service.endpoint)
    kind = kind_of_type(service.details.type)
    if service.endpoint.protocol == ServiceEndpoint.COGMENT:
        return _Answer(error="it is a client actor, which cannot be asked")
    if kind is None:
        return _Answer(error=f"its type, {service.details.type}, is unknown here")
    if ssl and settings.tls is None:
        return _Answer(error="it expects TLS, which needs --root_cert")
    try:
        target = parse_endpoint(endpoint)
    except EndpointError as error:
        return _Answer(error=str(error))
    assert isinstance(target, GrpcEndpoint)
    return await _ask_at(settings, target, kind, names)


async def _ask_awaited(
    settings: ClientSettings, target: GrpcEndpoint, kind: ServiceKind | None, names: Sequence[str]
) -> list[_Answer]:
    """Ask what is at an endpoint, which may not listen yet; without a kind, all that is there."""
    try:
        async with reached(settings, kind, [target], bounded=False) as channel:
            return await _ask_kinds(settings, channel, kind, names)
    except Failure as failure:
        return [_Answer(error=failure.message, names_endpoint=True)]


async def _ask_at(settings: ClientSettings, target: GrpcEndpoint, kind: ServiceKind, names: Sequence[str]) -> _Answer:
    # The directory has found it alive a moment ago: one that does not listen is told at once.
    async with channel_to(settings, target, config=RpcConfig(await_server_seconds=0)) as channel:
        return await _ask(settings, channel, kind, names)


async def _ask(settings: ClientSettings, channel: CallOpener, kind: ServiceKind, names: Sequence[str]) -> _Answer:
    """Ask a service for its statuses."""
    [answer] = await _ask_kinds(settings, channel, kind, names)
    return answer


async def _ask_kinds(
    settings: ClientSettings, channel: CallOpener, kind: ServiceKind | None, names: Sequence[str]
) -> list[_Answer]:
    """Ask for statuses; without a kind all are tried, in the order of `ServiceKind`, and those there answer."""
    import trio

    if kind is ServiceKind.OTHER:
        return [_Answer(error="a service of type other has no statuses")]
    answers: list[_Answer] = []
    error = ""
    deadline = trio.current_time() + settings.timeout_seconds
    for candidate in [kind] if kind else [kind for kind in ServiceKind if kind is not ServiceKind.OTHER]:
        try:
            statuses = await _statuses(channel, SERVICES[candidate].descriptor(), names, deadline)
        except RpcError as failure:
            error = error or str(failure)
        else:
            answers.append(_Answer(statuses=statuses, found_type="" if kind else candidate.value))
    return answers or [_Answer(error=error)]


async def _statuses(
    channel: CallOpener, service: ServiceDescriptor, names: Sequence[str], deadline: float
) -> dict[str, str]:
    import trio

    from trio_cogment.api.common_pb2 import StatusRequest
    from trio_cogment.rpc import methods_of

    timeout = max(0.0, deadline - trio.current_time())
    reply: StatusReply = await channel.unary(methods_of(service)["Status"], StatusRequest(names=names), timeout=timeout)
    return dict(reply.statuses)
