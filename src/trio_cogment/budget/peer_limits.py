"""Limits of one peer, and of all peers of a server together: connections, calls, resets.

A peer is an account (`Identity.account`): a token, a certificate, or a remote address, over all its connections. Of
peers on this machine nothing is known but that they are here, so their address is not an account: the actors of a whole
machine would share its limits. For them, as for everybody, the limits of the server count, and nobody gets all of
those: a connection may have as many open calls as are still free on the whole server. One that is alone gets half.
With a hundred that want all they can get, each has a hundredth, and so much is left for the next that comes.

Nothing here waits, and nothing is remembered of a peer that is gone once its rates have recovered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trio_cogment.access.identity import Identity
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.base.recount import Count

#: The first words of accounts that count though they are on this machine.
_KNOWN = frozenset(["token", "certificate"])
_ADDRESSES = frozenset(["ipv4", "ipv6"])
#: Peers that are gone are looked for when there are twice as many as were left the last time, and at least this many.
_LEAST_PEERS = 64


class Bucket:
    """Lets `capacity` events through at once, and `rate` a second after that.

    Args:
        capacity: how many at once.
        rate: how many a second.
        now: the time in seconds.
    """

    __slots__ = ("_capacity", "_level", "_rate", "_updated")

    def __init__(self, capacity: float, rate: float, now: float) -> None:
        self._capacity = capacity
        self._rate = rate
        self._level = capacity
        self._updated = now

    def level(self, now: float) -> float:
        """Return how many events would be let through at once."""
        self._level = min(self._capacity, self._level + (now - self._updated) * self._rate)
        self._updated = now
        return self._level

    def take(self, now: float) -> bool:
        """Count an event; False if it is one too many, which does not count."""
        if self.level(now) < 1:
            return False
        self._level -= 1
        return True

    def full(self, now: float) -> bool:
        """Whether it is as if nothing had ever happened."""
        return self.level(now) >= self._capacity


class _Peer:
    """What is known of one account."""

    __slots__ = ("calls", "connections", "opened", "resets")

    def __init__(self, config: RpcConfig, now: float) -> None:
        interval = config.flood_interval_seconds
        self.connections = 0
        self.opened = Bucket(config.max_peer_connects, config.max_peer_connects / interval, now)
        self.resets = Bucket(config.max_peer_resets, config.max_peer_resets / interval, now)
        self.calls = Bucket(config.peer_call_burst, config.max_peer_calls_per_second, now)

    def forgettable(self, now: float) -> bool:
        return not self.connections and self.opened.full(now) and self.resets.full(now) and self.calls.full(now)


def is_counted(identity: Identity) -> bool:
    """Whether limits per peer count for somebody; see the module."""
    kind = identity.account.partition(":")[0]
    return kind in _KNOWN or (kind in _ADDRESSES and not identity.local)


class PeerLimits:
    """The accounts of one server; see the module.

    Args:
        config: the limits.
        clock: the time in seconds.

    Attributes:
        connections: that are open.
        calls: that are open, on all connections.
        most_calls: how many these may be.
    """

    def __init__(self, config: RpcConfig, clock: Callable[[], float]) -> None:
        self.connections = 0
        self.calls = 0
        self.most_calls = config.max_calls
        self._config = config
        self._clock = clock
        self._peers: dict[str, _Peer] = {}
        self._look_at = _LEAST_PEERS

    @property
    def accounts(self) -> list[str]:
        """The accounts that are remembered."""
        return list(self._peers)

    def connect(self, identity: Identity) -> PeerConnection:
        """Count a connection, until it is closed.

        Raises:
            ResourceExhaustedError: it is one too many; its text names the limit. Nothing but the attempt was counted.
        """
        config = self._config
        peer = self.peer_of(identity)
        if peer is not None and not peer.opened.take(self._clock()):
            interval = config.flood_interval_seconds
            raise ResourceExhaustedError(
                f"max_peer_connects: {config.max_peer_connects} connections of one peer in {interval:g} s are enough"
            )
        if self.connections >= config.max_connections:
            raise ResourceExhaustedError(f"max_connections: this server has {config.max_connections} connections")
        if peer is not None:
            if peer.connections >= config.max_peer_connections:
                raise ResourceExhaustedError(
                    f"max_peer_connections: this peer has {config.max_peer_connections} connections"
                )
            peer.connections += 1
        self.connections += 1
        return PeerConnection(self, identity, peer)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        peers = self._peers.values()
        yield Count("connections", self.connections, self.connections)
        yield Count("calls", self.calls, self.calls)
        known = sum(peer.connections for peer in peers)
        yield Count("connections of peers", known, min(known, self.connections))

    def peer_of(self, identity: Identity) -> _Peer | None:
        """Return what is known of somebody; None: limits per peer do not count."""
        if not is_counted(identity):
            return None
        peer = self._peers.get(identity.account)
        if peer is None:
            now = self._clock()
            if len(self._peers) >= self._look_at:
                self._peers = {account: peer for account, peer in self._peers.items() if not peer.forgettable(now)}
                self._look_at = max(2 * len(self._peers), _LEAST_PEERS)
            peer = self._peers[identity.account] = _Peer(self._config, now)
        return peer

    def refusal(self, on_connection: int) -> ResourceExhaustedError:
        """Return what is said to a call that is one too many."""
        return ResourceExhaustedError(
            f"max_calls: this server has {self.calls} calls of {self.most_calls}, this connection {on_connection}"
        )

    def count_call(self, peer: _Peer) -> None:
        """Count a call of a peer that is counted; see `PeerConnection.begin_call`."""
        if not peer.calls.take(self._clock()):
            raise ResourceExhaustedError(
                f"max_peer_calls_per_second: more than {self._config.max_peer_calls_per_second:g} calls of one peer a "
                "second"
            )

    def end_connection(self, peer: _Peer | None, calls: int) -> None:
        """Count a connection less, and the calls it still had."""
        self.connections -= 1
        self.calls -= calls
        if peer is not None:
            peer.connections -= 1

    def count_reset(self, peer: _Peer | None) -> bool:
        """Count a call that was reset; False if it is one too many."""
        return peer is None or peer.resets.take(self._clock())


class PeerConnection:
    """One connection in the books.

    Attributes:
        calls: how many of its calls are open.
    """

    __slots__ = ("_identity", "_limits", "_peer", "calls")

    def __init__(self, limits: PeerLimits, identity: Identity, peer: _Peer | None) -> None:
        self.calls = 0
        self._identity = identity
        self._limits = limits
        self._peer = peer

    def begin_call(self, identity: Identity) -> None:
        """Count a call, until `end_call`.

        Args:
            identity: who makes it, which need not be who has made the connection.

        Raises:
            ResourceExhaustedError: it is one too many; its text names the limit. It was not counted.
        """
        limits = self._limits
        if self.calls >= limits.most_calls - limits.calls:
            raise limits.refusal(self.calls)
        known = identity is self._identity or identity.account == self._identity.account
        peer = self._peer if known else limits.peer_of(identity)
        if peer is not None:
            limits.count_call(peer)
        limits.calls += 1
        self.calls += 1

    def end_call(self) -> None:
        """A call is over, and its handler has ended."""
        self.calls -= 1
        self._limits.calls -= 1

    def count_reset(self) -> bool:
        """Count a call that its client has made for nothing; False if the peer has made too many."""
        return self._limits.count_reset(self._peer)

    def close(self) -> None:
        """The connection is over; its calls are, too."""
        self._limits.end_connection(self._peer, self.calls)
        self.calls = 0
