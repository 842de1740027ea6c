"""Checks of ports and of the directory: whether a server could listen there, and who does if it could not."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trio_cogment.base.config import DirectoryConfig, RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import StatusCode
from trio_cogment.base.host.binding import bound_sockets
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.client.common import ClientSettings, channel_to
from trio_cogment.cli.doctor.findings import Finding, fail, ok, warn
from trio_cogment.cli.tls import MAY_NOT_SPEAK_TLS, MAY_SPEAK_TLS, unchecked_tls

if TYPE_CHECKING:
    from trio_cogment.rpc import Channel

#: Of each question.
_SECONDS = 2.0
_HERE = "127.0.0.1"
#: What a server says to whom it does not know, or who may not.
_GUARDED = frozenset([StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED])
_ASKED = (ServiceKind.LIFECYCLE, ServiceKind.DATASTORE, ServiceKind.MODEL_REGISTRY, ServiceKind.DIRECTORY)


def why_not_bound(hosts: Sequence[str], port: int) -> OSError | UnicodeError | None:
    """Return why nobody can listen on a port of these addresses; None: it is free."""
    try:
        sockets = bound_sockets(hosts, port)
    except (OSError, UnicodeError) as error:
        return error
    for one in sockets:
        one.close()
    return None


async def port(settings: ClientSettings, hosts: Sequence[str], number: int, *, flag: str) -> list[Finding]:
    """Check a port on which a server would listen.

    Args:
        settings: how to ask who listens there.
        hosts: addresses or names.
        number: of the port.
        flag: that names another port.

    Returns:
        One finding if the port is free on all of them together, as a server needs it; else one for each that it cannot
        have.
    """
    what = f"port {number}"
    why = why_not_bound(hosts, number)
    if why is None:
        return [ok(what, f"free on {', '.join(hosts)}")]
    alone = {host: why_not_bound([host], number) for host in hosts}
    wrong = [await _not_bound(settings, host, number, found, flag) for host, found in alone.items() if found]
    # Each alone can be had: two of them are the same address, for example.
    return wrong or [await _not_bound(settings, ", ".join(hosts), number, why, flag)]


async def _not_bound(
    settings: ClientSettings, host: str, number: int, why: OSError | UnicodeError, flag: str
) -> Finding:
    what = f"port {number}"
    if getattr(why, "errno", None) != errno.EADDRINUSE:
        text = str(getattr(why, "strerror", None) or why)
        return fail(what, f"{host}: {text}", f"name an address of this machine, or another port with {flag}")
    found = await who_listens(settings, GrpcEndpoint(_HERE if host in ("0.0.0.0", "::") else host, number))
    if found:
        return warn(what, f"in use on {host} by {found}", f"use that server, stop it, or name another port with {flag}")
    return fail(what, f"in use on {host} by another program", f"stop that program, or name another port with {flag}")


async def who_listens(settings: ClientSettings, place: GrpcEndpoint) -> str:
    """Return which services a server of the platform has; empty: it is none.

    If it does not answer as it is asked, it is asked with TLS and whatever certificate it shows: it is told nothing.
    """
    from trio_cogment.rpc import Channel

    config = RpcConfig(await_server_seconds=0)
    found, trouble = await _answers(channel_to(settings, place, config=config))
    if found:
        return found if settings.tls is None else f"{found}, with TLS"
    channel = Channel(place.host, place.port, tls=unchecked_tls(settings.tls), config=config)
    found, with_tls = await _answers(channel)
    if found:
        return f"{found}, with TLS"
    if MAY_SPEAK_TLS in trouble and MAY_NOT_SPEAK_TLS not in with_tls:
        return "a server with TLS, which does not answer without a certificate that it knows"
    return ""


async def _answers(channel: Channel) -> tuple[str, str]:
    """Return which services answer, and why no connection could be made."""
    import trio

    answers: dict[ServiceKind, tuple[object, str]] = {}

    async def ask(kind: ServiceKind) -> None:
        answers[kind] = await _version(channel, kind)

    async with channel, trio.open_nursery() as nursery:
        for kind in _ASKED:
            nursery.start_soon(ask, kind)
    found = [f"{kind.value} {answers[kind][1]}".rstrip() for kind in _ASKED if answers[kind][0] is StatusCode.OK]
    if found:
        return f"a server with {', '.join(found)}", ""
    asks = any(code in _GUARDED for code, _ in answers.values())
    return "a server that asks for tokens" if asks else "", channel.trouble


async def _version(channel: Channel, kind: ServiceKind) -> tuple[object, str]:
    from trio_cogment.api.common_pb2 import VersionInfo, VersionRequest
    from trio_cogment.base.errors import RpcError
    from trio_cogment.rpc import methods_of

    method = methods_of(SERVICES[kind].descriptor())["Version"]
    try:
        reply: VersionInfo = await channel.unary(method, VersionRequest(), timeout=_SECONDS)
    except RpcError as error:
        return error.code, ""
    return StatusCode.OK, next((one.version for one in reply.versions if one.name == "trio-cogment"), "")


async def directory(settings: ClientSettings, place: GrpcEndpoint | None) -> Finding:
    """Ask the directory that servers and participants would use.

    Args:
        settings: how to call it.
        place: where it is; None: no directory is named.
    """
    if place is None:
        return ok("directory", "none is named; `serve` is one itself")
    from trio_cogment.base.errors import CogmentError
    from trio_cogment.servers.discovery import DirectoryClient

    async with channel_to(settings, place, config=RpcConfig(await_server_seconds=0)) as channel:
        client = DirectoryClient(channel, config=DirectoryConfig(inquiry_timeout_seconds=_SECONDS))
        try:
            await client.version()  # it does not wait for a directory that is not there
            await client.look_up(0)  # which no service is, so that nothing is waited for
        except CogmentError as error:
            advice = "start it, or name another one with --directory_endpoint or COGMENT_DIRECTORY_ENDPOINT"
            if any(code.name in str(error) for code in _GUARDED):
                advice = "give a token that it knows with --token_file, or its keys of tokens with --auth_secret_file"
            return fail("directory", f"{place}: {error}", advice)
    return ok("directory", f"{place}: answers")
