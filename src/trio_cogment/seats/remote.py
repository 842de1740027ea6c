"""Seats of others: `endpoint`, a service elsewhere, and `human`, a client that joins the trial."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from typing_extensions import override

from trio_cogment.api.common_pb2 import ActorParams
from trio_cogment.base.endpoints import CLIENT, ClientEndpoint, parse_endpoint
from trio_cogment.base.errors import EndpointError, InvalidArgumentError
from trio_cogment.environments.spec import HUMAN
from trio_cogment.seats.base import Seat, SeatContext

_MAX_PORT = 65535


class RemoteSeat(Seat):
    """A seat of a service actor elsewhere; made by `endpoint`."""

    label = "endpoint"

    def __init__(self, address: str, implementation: str, **options: Any) -> None:
        """Keep where it is.

        Raises:
            EndpointError: the address is none of a service.
        """
        super().__init__(**options)
        if isinstance(parse_endpoint(address), ClientEndpoint):
            raise EndpointError(f"endpoint: {address!r}: expected that of a service; human() is a seat for a client")
        self._address = address
        self._name = implementation

    def _implementation(self, registered: str) -> str:
        return self._name

    def _endpoint(self, endpoint: str) -> str:
        return self._address

    def actor(self, context: SeatContext) -> None:
        """Return None: it is remote."""


def endpoint(
    address: str,
    implementation: str = "",
    *,
    optional: bool = False,
    default: Any = None,
    response_timeout_seconds: float = 0.0,
    connection_timeout_seconds: float = 0.0,
) -> RemoteSeat:
    """Return a seat that a service actor elsewhere takes, in any language: it has the class `player`.

    Its observations are `trio_cogment.spaces.Observation`, its actions `trio_cogment.spaces.Action`. One that is not
    `active` or not `alive` is to be answered with an empty action.

    Args:
        address: `grpc://host:port`, or `cogment://discover...` to have a directory find it.
        implementation: which of the service's implementations; by default its first.
        optional: the trial goes on without it, when it does not come or is lost.
        default: the action that is taken then.
        response_timeout_seconds: how long an answer may take before the actor counts as lost; 0: no limit.
        connection_timeout_seconds: how long to wait for it when a trial starts; 0: no limit.

    Raises:
        EndpointError: the address is none of a service.
        InvalidArgumentError: the seat is optional and has no default action, or a timeout is negative.
    """
    return RemoteSeat(
        address,
        implementation,
        optional=optional,
        default=default,
        response_timeout_seconds=response_timeout_seconds,
        connection_timeout_seconds=connection_timeout_seconds,
    )


class HumanSeat(Seat):
    """A seat for a client that joins the trial; made by `human`.

    Attributes:
        name: of who is to sit there; may be empty.
        port: the TCP port on which clients are served; None if the platform is served by others.
        address: the address to listen on.
        endpoint: where clients connect, while `serve_clients` serves them; empty before and after.
        page: is told the link of the page on which the person plays; None: there is no page.
        grace_seconds: for how long the seat is kept for a page that has gone.
        absent: plays after that, until the person comes back; None: nobody does.
        secret_file: with the keys by which the link of the page is known again; empty: those of this process.
        agents: whose seat it is, as far as trials were started.
    """

    def __init__(
        self,
        name: str,
        port: int | None,
        address: str,
        page: Callable[[str], object] | None,
        grace_seconds: float,
        absent: Seat | None,
        secret_file: str | os.PathLike[str],
        **options: Any,
    ) -> None:
        """Keep where clients come from.

        Raises:
            InvalidArgumentError: the port is none, or a page has none; or the grace is not positive; or who is to play
                for a person cannot; or there is a secret, and no page or no fixed port.
        """
        super().__init__(**options)
        if absent is not None and (page is None or absent.chooses or isinstance(absent, RemoteSeat | HumanSeat)):
            raise InvalidArgumentError(
                "absent: expected a seat of this process, such as random() or policy(...), and a page; got "
                f"{absent.label} {'without' if page is None else 'with'} a page"
            )
        if absent is not None and self.optional:
            raise InvalidArgumentError("absent: expected None where the seat is optional: then the default is taken")
        if page is not None and port is None:
            raise InvalidArgumentError("port: expected one, or 0 for any, where a page is to be served; got None")
        if secret_file and (page is None or not port):
            raise InvalidArgumentError(
                "secret_file: expected it where there is a page, and a port that is the same each time; got "
                f"{'no page' if page is None else f'port={port}'}"
            )
        if not grace_seconds > 0:
            raise InvalidArgumentError(f"grace_seconds: expected seconds, more than 0; got {grace_seconds!r}")
        if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= _MAX_PORT):
            raise InvalidArgumentError(f"port: expected 0 to {_MAX_PORT}, or None; got {port!r}")
        self.label = f"{HUMAN}:{name}" if name else HUMAN
        self.name = name
        self.port = port
        self.address = address
        self.endpoint = ""
        self.page = page
        self.watches = page is not None
        self.grace_seconds = grace_seconds
        self.absent = absent
        self.secret_file = os.fspath(secret_file)
        self.agents: set[str] = set()

    @override
    def advice(self, agent: str) -> str:
        if self.page is None:
            return "; human(optional=True, default=ACTION) has the trial go on without a client"
        return (
            f"; the person of {agent!r} has left, or the page was closed for longer than grace_seconds="
            f"{self.grace_seconds:g}: with human(absent=random()) others play then, with human(default=ACTION) that "
            "action is taken"
        )

    def reseed(self, seed: int) -> None:
        """See `Seat.reseed`: who plays for the person begins again."""
        if self.absent is not None:
            self.absent.reseed(seed)

    def __getstate__(self) -> dict[str, Any]:
        if self.port is not None:
            raise TypeError(f"human: port: expected None, because it can be opened once only; got {self.port}")
        return dict(vars(self))

    def actor_params(self, agent: str, **options: Any) -> ActorParams:
        """Return the parameters of the actor; see `Seat.actor_params`."""
        self.agents.add(agent)
        return super().actor_params(agent, **options)

    def _implementation(self, registered: str) -> str:
        # Nobody looks it up for a client; it tells those who read the trial's parameters who was to sit there.
        return self.label

    def _endpoint(self, endpoint: str) -> str:
        return CLIENT

    def actor(self, context: SeatContext) -> None:
        """Return None: it is remote."""


def human(
    name: str = "",
    *,
    port: int | None = None,
    address: str = "127.0.0.1",
    page: Callable[[str], object] | None = None,
    grace_seconds: float = 30.0,
    absent: Seat | None = None,
    secret_file: str | os.PathLike[str] = "",
    optional: bool = False,
    default: Any = None,
    response_timeout_seconds: float = 0.0,
    join_timeout_seconds: float = 0.0,
) -> HumanSeat:
    """Return a seat for a client: a trial waits for one to join before it begins.

    With `page`, the person plays in a browser, one trial after the other: `human(port=0, page=print)` prints the link
    of the page, `human(port=0, page=webbrowser.open)` opens it. See `docs/play.md`.

    Otherwise the client is a program that somebody sits at, on any SDK of Cogment. For each trial in turn it joins as
    the actor with the agent's name; `trio_cogment.rl.join_trials` does that:

        async with trio_cogment.connect("grpc://127.0.0.1:8080", spec=RL_SPEC) as client:
            await join_trials(client, "player_1", play)

    It gets messages `trio_cogment.spaces.Observation`, of which the first of a trial has the agent's spaces, and sends
    `trio_cogment.spaces.Action`. An observation that is not `active` or not `alive` is to be answered with an empty
    action: it is another's turn, or the agent is out.

    Args:
        name: of who is to sit there; the trial's parameters have it.
        port: serve the platform on this TCP port, so that clients can connect; 0 for any free one, which the seat's
            attribute `endpoint` tells. None: somebody else serves it, or the client is in this process.
        address: the address to listen on. Whoever reaches it controls the platform: no password is asked.
        page: serve a page on the port, and call this with its link. It needs `port`.
        grace_seconds: for how long the seat is kept when the page has gone. After that `absent` plays, or the default
            action is taken, if there is one; otherwise the client counts as lost.
        absent: who plays then, until the person comes back: `random()` or `policy(...)`.
        secret_file: with it, and a fixed port, the link counts in the next process, too: whose program was killed, and
            goes on (`run_trials(..., resume=True)`), is back by the same page. The file is made if it is not there; who
            can read it can make links. Seats on one port have the same.
        optional: the trial begins without a client, or goes on without one that is lost.
        default: the action that is taken then.
        response_timeout_seconds: how long an answer may take before the client counts as lost; 0: no limit.
        join_timeout_seconds: how long a trial waits for the client; 0: no limit.

    Raises:
        InvalidArgumentError: the port is none, or a page has none, a timeout is negative, or the seat is optional and
            has no default action; or `absent` is not a seat of this process, or there is no page; or there is a
            `secret_file` without a page or a fixed port.
    """
    return HumanSeat(
        name,
        port,
        address,
        page,
        grace_seconds,
        absent,
        secret_file,
        optional=optional,
        default=default,
        response_timeout_seconds=response_timeout_seconds,
        connection_timeout_seconds=join_timeout_seconds,
    )
