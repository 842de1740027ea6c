"""The streams of all the participants of one trial."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.services import SERVICES, TRIAL_ID, ServiceKind
from trio_cogment.rpc import Metadata, Method, methods_of
from trio_cogment.servers.orchestrator._connections import Connections, Target
from trio_cogment.servers.orchestrator._fair_turns import Turn
from trio_cogment.servers.orchestrator._outboxes import Outboxes, outbox_memory
from trio_cogment.servers.orchestrator._participant_stream import (
    OUTBOX_MESSAGES_PER_PARTICIPANT,
    Feed,
    ParticipantStream,
    Spawn,
)
from trio_cogment.servers.orchestrator._room import Holding
from trio_cogment.trial import ENVIRONMENT

if TYPE_CHECKING:
    from trio_cogment.servers.orchestrator._tracing import TrialTrace

RUN_ACTOR = methods_of(SERVICES[ServiceKind.ACTOR].descriptor())["RunTrial"]
RUN_ENVIRONMENT = methods_of(SERVICES[ServiceKind.ENVIRONMENT].descriptor())["RunTrial"]


def _method_of(index: int) -> Method:
    return RUN_ENVIRONMENT if index == ENVIRONMENT else RUN_ACTOR


def _spawn_nothing(*_arguments: object) -> None:
    pass


class ParticipantStreams(dict[int, ParticipantStream]):
    """A trial's streams by participant: one for everybody in its parameters, none of them open yet.

    Args:
        trial_id: goes out as metadata, and into logs.
        params: the trial's parameters.
        targets: where each participant is reached; None for client actors, who come by themselves.
        connections: lends the channels to them.
        holding: of the trial.
        config: limits and timeouts.
        feed: takes the machine's inputs.
        spawn: starts a task of the trial.
        trace: of the trial; None: it has none.
    """

    def __init__(
        self,
        trial_id: str,
        params: TrialParams,
        targets: Mapping[int, Target | None],
        connections: Connections,
        *,
        holding: Holding,
        config: OrchestratorConfig,
        feed: Feed,
        spawn: Spawn,
        trace: TrialTrace | None = None,
    ) -> None:
        self._trace = trace
        self._metadata = Metadata(((TRIAL_ID, trial_id),))
        self._targets = targets
        self._connections = connections
        #: Signing a token costs more than opening a call with it.
        self._authorization = connections.authorizations(trial_id, holding)
        self._holding = holding
        self._farewell_seconds = config.farewell_seconds
        self._spawn = spawn
        self._paused: bool  # set by the first pause
        #: Those whose streams wait for a turn to be opened, without a task for each.
        self._to_open: deque[int] = deque()
        self._opening: trio.CancelScope | None = None
        names = {**{i: actor.name for i, actor in enumerate(params.actors)}, ENVIRONMENT: params.environment.name}
        most = max(config.max_outbox_messages, OUTBOX_MESSAGES_PER_PARTICIPANT * len(names))
        outboxes = Outboxes(most, config.max_outbox_bytes, outbox_memory())
        super().__init__(
            {index: ParticipantStream(index, name, feed, spawn, outboxes) for index, name in names.items()}
        )

    def connect(self, index: int) -> None:
        """Begin to open the stream to a service actor or the environment; to one elsewhere when its turn comes."""
        target = self._targets[index]
        assert target is not None
        turn = self._connections.turn(self._holding.account)
        if isinstance(target, GrpcEndpoint):
            if self._to_open or not turn.begin_nowait():
                self._to_open.append(index)
                if len(self._to_open) == 1:
                    self._spawn(self._open_in_turn, "streams to open")
                return
        elif self[index].open_nowait(target, _method_of(index), self._metadata):
            return
        self._hold(index, turn)

    def _metadata_for(self, target: Target | None) -> Metadata:
        """Return what goes out with a stream's headers; to those elsewhere, who may ask for it, also who calls."""
        if not isinstance(target, GrpcEndpoint):
            return self._metadata
        return Metadata((*self._metadata, *self._authorization()))

    def _hold(self, index: int, turn: Turn) -> None:
        stream, target = self[index], self._targets[index]
        metadata = self._metadata_for(target)
        arguments = self._connections, turn, target, _method_of(index), metadata, self._farewell_seconds
        hold: Callable[..., Awaitable[None]] = stream.hold
        if self._trace is not None:
            hold = partial(self._hold_in_span, self._trace, stream)
        self._spawn(hold, stream.name, *arguments)

    async def _hold_in_span(self, trace: TrialTrace, stream: ParticipantStream, *arguments: Any) -> None:
        # The call is part of the participant's span, whoever has fed the trial that begins it.
        with trace.within(stream.index):
            await stream.hold(*arguments)

    async def _open_in_turn(self) -> None:
        with trio.CancelScope() as self._opening:
            while self._to_open:
                turn = self._connections.turn(self._holding.account)
                await turn.begin()
                index = self._to_open.popleft()
                if self[index].is_closing:
                    turn.end()  # it has never heard of the trial, and need not now
                else:
                    self._hold(index, turn)

    @property
    def open_names(self) -> list[str]:
        """The names of those whose calls are open, and held by no task."""
        return [stream.name for stream in self.values() if stream.is_open]

    async def part(self) -> None:
        """Wait until those whose calls no task holds have heard of the end, within the farewell; then end the calls.

        After `Cancelled` they are ended, too. Streams that wait for a turn are not opened any more.
        """
        if self._opening is not None:
            self._opening.cancel()
        try:
            # They usually need this one turn.
            await trio.lowlevel.checkpoint()
            if any(stream.is_open for stream in self.values()):
                with trio.move_on_after(self._farewell_seconds):
                    for stream in self.values():
                        await stream.wait_left()
        finally:
            self.leave()

    def leave(self) -> None:
        """End the calls that no task holds."""
        for stream in self.values():
            stream.leave()

    def disband(self) -> None:
        """End the calls that no task holds, and forget everybody."""
        self.leave()
        for stream in self.values():
            stream.drop_outbox()
        # They know the run: without a cycle all of it is gone at once, and not when garbage is collected next.
        self.clear()
        self._spawn = _spawn_nothing

    @property
    def queued_messages(self) -> int:
        """How many messages wait for participants that do not read fast enough."""
        return sum(stream.queued_messages for stream in self.values())

    @property
    def longest_queue(self) -> int:
        """How many of them wait for one participant, the one with the most."""
        return max((stream.queued_messages for stream in self.values()), default=0)

    @property
    def max_queued_messages(self) -> int:
        """How many may wait for one participant."""
        return max((stream.max_queued_messages for stream in self.values()), default=0)

    def pause(self) -> None:
        """Take no messages from anybody."""
        self._paused = True
        for stream in self.values():
            stream.pause()

    def resume(self) -> None:
        """Take messages again."""
        self._paused = False
        for stream in self.values():
            stream.resume()
            if self._paused:
                return  # what waited on this stream was enough for another pause
