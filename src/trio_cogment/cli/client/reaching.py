"""Finding the service of a command: the places to look, and waiting until it listens.

A flag wins over the variable of the service, which wins over `ENDPOINT_VARIABLE`. When none of them says where, the
service is looked for on its own default port and on the port of `serve`, on this machine. The own port wins when both
have it, so that separate servers on their default ports are found whatever else runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.services import ServiceKind, default_address
from trio_cogment.cli.client.common import ClientSettings, channel_to
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import as_endpoint
from trio_cogment.cli.tls import ASKS_FOR_CERTIFICATE, MAY_SPEAK_TLS

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from trio_cogment.rpc import Channel, Method

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

Places: TypeAlias = Sequence[GrpcEndpoint]
#: Makes a call that changes nothing, of which servers without the service say that they do not know it.
Question: TypeAlias = "Callable[[], tuple[Method, Message]]"

#: Where all services are, unless a flag or the variable of one says otherwise.
ENDPOINT_VARIABLE = "COGMENT_ENDPOINT"

_NAMES = {
    ServiceKind.DIRECTORY: "directory",
    ServiceKind.LIFECYCLE: "orchestrator",
    ServiceKind.DATASTORE: "trial datastore",
    ServiceKind.MODEL_REGISTRY: "model registry",
}
#: What of a trouble with TLS is told with the flags that help.
_FLAGS = {MAY_SPEAK_TLS: "--root_cert", ASKS_FOR_CERTIFICATE: "--private_key and --trust_chain"}
_MAX_SECONDS = 10.0**9
#: A wait that is longer than this is announced.
_QUIET_SECONDS = 2.0
#: The pause before a place is tried again.
_PAUSE_SECONDS = 0.2
#: How long what answers elsewhere waits for the first attempt at the service's own port.
_PRECEDENCE_SECONDS = 1.0


def default_places(kind: ServiceKind) -> Places:
    """Return where a service is looked for if nothing says where: its own default port, then that of `serve`."""
    addresses = dict.fromkeys((default_address(kind), default_address(ServiceKind.LIFECYCLE)))
    return [parse_server_endpoint(address) for address in addresses]


def places_option(
    flag: str, kind: ServiceKind | Places, *, variable: str, text: str
) -> Callable[[_Decorated], _Decorated]:
    """Return the flag with the endpoint of a service, or its default places; its value is the places to look."""
    places = default_places(kind) if isinstance(kind, ServiceKind) else kind

    def as_places(ctx: click.Context, param: click.Parameter, value: str | None) -> Places:
        endpoint = as_endpoint(ctx, param, value)
        return places if endpoint is None else [endpoint]

    return click.option(
        flag,
        callback=as_places,
        default=None,
        metavar="ENDPOINT",
        envvar=[variable, ENDPOINT_VARIABLE],
        show_default=", then ".join(map(str, places)),
        show_envvar=True,
        help=text,
    )


@asynccontextmanager
async def reached(
    settings: ClientSettings,
    kind: ServiceKind | None,
    places: Places,
    *,
    config: RpcConfig | None = None,
    bounded: bool = True,
    flag: str = "",
    name: str = "",
    question: Question | None = None,
) -> AsyncIterator[Channel]:
    """Connect to a service, waiting for it up to the time limit if it does not listen yet.

    Args:
        settings: the time limit, and TLS.
        kind: what is looked for; None: any service.
        places: where; if there are several, a place counts only if it has the service.
        config: limits and windows of the channel.
        bounded: the time limit holds for the block too; otherwise the block limits its own waits.
        flag: that names another place; a wait that is announced says so.
        name: of the service in texts, if the kind does not tell it.
        question: tells a service of no kind from others, if there are several places.

    Raises:
        Failure: it cannot be reached, or did not answer in time; the text says what was looked for, and where.
    """
    import trio

    name = name or (_NAMES.get(kind, kind.value) if kind is not None else "service")
    deadline = trio.current_time() + settings.timeout_seconds
    # With one place the channel itself waits, and in any case until the deadline.
    wait = min(settings.timeout_seconds + 1, _MAX_SECONDS) if len(places) == 1 else 0.0
    config = replace(
        config or RpcConfig(),
        await_server_seconds=wait,
        connect_backoff_initial_seconds=_PAUSE_SECONDS,
        connect_backoff_max_seconds=_PAUSE_SECONDS,
    )
    async with AsyncExitStack() as stack:
        channels = {
            place: await stack.enter_async_context(channel_to(settings, place, config=config)) for place in places
        }
        advice = f"; {flag}, or {ENDPOINT_VARIABLE}, names another place" if flag else ""
        search = _Search(name, channels, advice)
        with trio.move_on_at(deadline):
            await search.run(partial(_version_of, kind) if kind is not None else question)
        if search.found is None:
            where = f" at {places[0]}" if len(places) == 1 else ""
            waited = f"; waited {settings.timeout_seconds:g} s (--timeout)" if search.may_come else ""
            trouble = search.trouble()
            for text, flags in _FLAGS.items():
                trouble = trouble.replace(text, f"{text}: {flags}")
            raise Failure(f"the {name}{where} cannot be reached: {trouble}{waited}")
        with trio.CancelScope() as answering:
            if bounded:
                answering.deadline = deadline
            yield channels[search.found]
        if answering.cancelled_caught:
            limit = f"{settings.timeout_seconds:g} s (--timeout)"
            raise Failure(f"the {name} at {search.found} did not answer within {limit}")


def _version_of(kind: ServiceKind) -> tuple[Method, Message]:
    from trio_cogment.api.common_pb2 import VersionRequest
    from trio_cogment.base.services import SERVICES
    from trio_cogment.rpc import methods_of

    return methods_of(SERVICES[kind].descriptor())["Version"], VersionRequest()


class _Search:
    """A search for a service in several places at the same time.

    Attributes:
        found: where it is.
        may_come: nothing speaks against it that it is somewhere later.
    """

    def __init__(self, name: str, channels: dict[GrpcEndpoint, Channel], advice: str) -> None:
        self.found: GrpcEndpoint | None = None
        self.may_come = True
        self._name = name
        self._channels = channels
        self._advice = advice
        self._troubles: dict[GrpcEndpoint, str] = {}

    def trouble(self) -> str:
        """Return why it was not found so far."""
        troubles = [self._troubles.get(place) or channel.trouble for place, channel in self._channels.items()]
        return "; ".join(filter(None, troubles)) or "no answer"

    async def run(self, question: Question | None) -> None:
        """Search until it is found, or cannot be found any more."""
        import trio

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._announce)
            if len(self._channels) == 1:
                await self._connect()
            else:
                assert question is not None
                await self._look_everywhere(question)
            nursery.cancel_scope.cancel()

    async def _announce(self) -> None:
        import trio

        await trio.sleep(_QUIET_SECONDS)
        click.echo(f"trio-cogment: waiting for the {self._name}: {self.trouble()}{self._advice}", err=True)

    async def _connect(self) -> None:
        from trio_cogment.base.errors import RpcError

        [(place, channel)] = self._channels.items()
        try:
            await channel.connection()
        except RpcError as error:
            self._troubles[place] = error.message
            # A channel waits for what does not listen; anything else is the same later.
            self.may_come = False
        else:
            self.found = place

    async def _look_everywhere(self, question: Question) -> None:
        import trio

        own, *others = self._channels
        tried = trio.Event()
        async with trio.open_nursery() as nursery:

            async def look(place: GrpcEndpoint) -> None:
                while not await self._has(place, question):
                    if place == own:
                        tried.set()
                    await trio.sleep(_PAUSE_SECONDS)
                if place != own:
                    with trio.move_on_after(_PRECEDENCE_SECONDS):
                        await tried.wait()
                self.found = self.found or place
                nursery.cancel_scope.cancel()

            for place in (own, *others):
                nursery.start_soon(look, place)

    async def _has(self, place: GrpcEndpoint, question: Question) -> bool:
        """Tell whether the server at a place has the service; any answer but that it has not will do."""
        from trio_cogment.base.errors import RpcError, StatusCode

        try:
            await self._channels[place].unary(*question())
        except RpcError as error:
            if error.code is StatusCode.UNIMPLEMENTED:
                self._troubles[place] = f"{place} has no {self._name}"
                return False
            if error.code is StatusCode.UNAVAILABLE:
                self._troubles[place] = error.message
                return False
        return True
