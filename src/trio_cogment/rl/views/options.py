"""Options of a view's trials: where they run, and what is kept of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trio_cogment.base.config import PlatformConfig
from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.seats.base import Seat
from trio_cogment.seats.remote import HumanSeat


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformOptions:
    """Where the trials of a view run, and what is kept of them.

    Attributes:
        store: keeps the episodes: `memory:`, `sqlite:PATH`, or a storage; or where there is a datastore that does,
            `grpc://host:port` or `cogment://discover...`. With `orchestrator`, only the latter.
        model_registry: the folder of a model registry; not with `orchestrator`.
        orchestrator: run the trials on this one, `grpc://host:port`, instead of a platform of the view's own.
        directory: asked for what `cogment://discover` describes and is not in this process: its `grpc://host:port`.
        address: with `orchestrator`: where it reaches this process, if the environment or a seat is here.
        port: see `address`; 0 for any free one.
        config: limits and timeouts of the view's own platform; with `orchestrator`, its `rpc` and `client_tls` count,
            for the connection.
        thread: run the platform in a thread of its own. By default so if a participant or the orchestrator is
            elsewhere, because connections have to be kept alive, and where Trio runs in this thread already.
    """

    store: Any = None
    model_registry: Any = None
    orchestrator: str = ""
    directory: Any = None
    address: str = "127.0.0.1"
    port: int = 0
    config: PlatformConfig | None = None
    thread: bool | None = None

    @property
    def records(self) -> bool:
        """Whether the episodes are kept in this process."""
        return self.store is not None and not is_address(self.store)

    @property
    def datalog_endpoint(self) -> str | None:
        """The endpoint of what keeps the episodes; None: what keeps trials by default where they run, if anything."""
        if self.store is None:
            return None
        return self.store if is_address(self.store) else DISCOVER

    @property
    def shows_rewards(self) -> bool:
        """Whether others than a trial's participants may see the rewards in it."""
        return bool(self.datalog_endpoint or self.orchestrator)

    def check(self, seats: Sequence[Seat]) -> None:
        """See that everything has a meaning where the trials run.

        Raises:
            InvalidArgumentError: something is of the view's own platform, and it has none.
        """
        if not self.orchestrator:
            return
        where = f"orchestrator={self.orchestrator!r}"
        if self.store is not None and not is_address(self.store):
            raise InvalidArgumentError(
                f"store: expected the address of a datastore with {where}, where its orchestrator finds it "
                f"(grpc://host:port, or cogment://discover), got {self.store!r}"
            )
        if self.model_registry is not None:
            raise InvalidArgumentError(
                f"model_registry: expected None with {where}, got {self.model_registry!r}: give registry= to the seats"
            )
        for seat in seats:
            if isinstance(seat, HumanSeat) and seat.port is not None:
                raise InvalidArgumentError(
                    f"seats: human: expected port=None with {where}, because clients join there; got {seat.port}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Ticks of a view's trials that end by the clock; see docs/real-time.md.

    Attributes:
        tick_hz: ticks a second.
        default: the action that is taken for an agent of the caller's that has not acted when a tick ends; where these
            differ, a mapping with one for each of the caller's agents.
        hold_action: its last action is taken again, if it has one.
        observe_every: the caller's agents are shown every n-th tick, and act once for all up to the next one.

    Raises:
        InvalidArgumentError: it is no rate, or there is no default.
    """

    tick_hz: float
    default: Any
    hold_action: bool = False
    observe_every: int = 0

    def __post_init__(self) -> None:
        if not self.tick_hz > 0:
            raise InvalidArgumentError(f"rate: tick_hz: expected ticks a second, more than 0; got {self.tick_hz!r}")
        if self.default is None:
            raise InvalidArgumentError("rate: default: expected the action of an agent that has not acted; got None")

    def default_of(self, agent: str, agents: Collection[str]) -> Any:
        """Return the default action of one of the caller's agents, which are given."""
        given = self.default
        return given[agent] if isinstance(given, Mapping) and given.keys() == set(agents) else given

    def in_real_time(self, options: PlatformOptions | None) -> PlatformOptions:
        """Return the options of a platform whose clock goes on between steps, unless they say otherwise."""
        found = options or PlatformOptions()
        return found if found.thread is not None else replace(found, thread=True)


def is_address(target: Any) -> bool:
    """Whether it says where something is served."""
    return isinstance(target, str) and target.startswith(("grpc://", "cogment://"))
