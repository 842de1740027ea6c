"""A trial's run: the streams of its participants, its data log, and the nursery of their tasks.

A run lasts from the complete parameters to the end of the trial's last task. The trial itself (`_trial`) is known
longer, before its run and after it.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from trio_cogment.api.common_pb2 import TakenUp, TrialParams, TrialState
from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.base.endpoints import parse_endpoint
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.taking_up import why_not
from trio_cogment.budget.memory import memory_of_run
from trio_cogment.servers.orchestrator._connections import Connections, Target
from trio_cogment.servers.orchestrator._datalog import Datalog
from trio_cogment.servers.orchestrator._participant_streams import ParticipantStreams
from trio_cogment.servers.orchestrator._trial import FAILED, Trial
from trio_cogment.servers.orchestrator._watch import STOPPING
from trio_cogment.servers.orchestrator.sinks import SampleSink
from trio_cogment.trial import ParametersComplete

_log = logging.getLogger(__name__)

HANDED_OVER: Final = "the orchestrator stops, and the trial goes on at the next one that takes it up"


class TrialRun:
    """The run of one trial.

    Args:
        trial: gets its participants and its data log from here.
        params: its parameters, checked.
        targets: where each participant is reached; None for client actors.
        sink: takes the samples, if they are wanted.
        connections: lends the channels to participants.
        config: limits and timeouts.
        rng: makes the trial's reconnections differ from those of others.
        on_samples_lost: told how many samples did not reach the data log, whenever some did not.
        taken_up: the stored trial with which it goes on.
    """

    def __init__(
        self,
        trial: Trial,
        params: TrialParams,
        targets: Mapping[int, Target | None],
        sink: SampleSink | None,
        *,
        connections: Connections,
        config: OrchestratorConfig,
        rng: random.Random,
        on_samples_lost: Callable[[int], None],
        taken_up: TakenUp | None = None,
    ) -> None:
        self.trial = trial
        self._params = params
        self._taken_up = taken_up
        self._nursery: trio.Nursery | None = None
        #: Tasks for when there is a nursery; None once there has been one.
        self._early: list[tuple[Callable[..., Awaitable[None]], str, tuple[Any, ...]]] | None = []
        #: When everybody has had the time to hear of the end, on Trio's clock.
        self._farewell = math.inf
        self._streams = ParticipantStreams(
            trial.trial_id,
            params,
            targets,
            connections,
            holding=trial.holding,
            config=config,
            feed=trial.feed,
            spawn=self.spawn,
            trace=trial.trace,
        )
        self._sink = sink
        self._why_not = why_not(params)
        if self._why_not and config.resume and getattr(sink, "counts_attempts", False):
            _log.warning("trial %s: nobody can go on with it: %s", trial.trial_id, self._why_not)
        self._datalog: Datalog | None = None
        if sink is not None:
            self._datalog = Datalog(
                trial.trial_id,
                trial.user_id,
                sink,
                config=config,
                rng=rng,
                owner=self,
                loan=memory_of_run().messages.loan(),
            )
        self.on_samples_lost = on_samples_lost
        trial.equip(self._streams, self._datalog)

    def begin(self) -> None:
        """Make the trial PENDING at once, if it need not wait for its data log; `run` must follow."""
        if self._datalog is None:
            self.trial.feed(self._parameters())
            self.trial.settled.set()

    async def run(self) -> None:
        """Run the trial to its end; the trial's `settled` tells when it is PENDING.

        Cancelling does nothing to it: whoever does calls `abandon`.
        """
        trial = self.trial
        try:
            async with trio.open_nursery() as nursery:
                # Shielded, so that END can leave when the host cancels.
                nursery.cancel_scope.shield = True
                nursery.cancel_scope.deadline = self._farewell
                self._nursery = nursery
                self._spawn_early()
                if self._datalog is not None:
                    trial.refusal = await self._open_datalog(nursery, self._datalog)
                    if trial.refusal is None:
                        trial.feed(self._parameters())
                        trial.settled.set()
                if trial.refusal is None:
                    await trial.timers.wait_stopped()
                    await self._streams.part()
                else:
                    nursery.cancel_scope.cancel()
                # What is left ends by itself: streams within their farewell, the data log when it has everything or
                # takes no more of it.
        except* Exception as failures:  # noqa: BLE001  said below
            # The boundary of a trial: whatever went wrong in here ends this one and no other.
            _log.error("trial %s: failed", trial.trial_id, exc_info=failures)
            self._nursery = None  # it takes no more tasks
            if not trial.settled.is_set():
                trial.refusal = RpcError(StatusCode.INTERNAL, FAILED)
            trial.hard_end(FAILED, EndCause.INTERNAL)
        finally:
            trial.settled.set()
            trial.release()
            self._streams.disband()
            self._nursery = None

    def _parameters(self) -> ParametersComplete:
        held_back = self.trial.holding.hold_back(self._params.nb_buffered_ticks)
        taken_up, self._taken_up = self._taken_up, None  # it may be large
        return ParametersComplete(self._params, held_back, taken_up)

    async def _open_datalog(self, nursery: trio.Nursery, datalog: Datalog) -> CogmentError | None:
        # Not in the scope that bounds the wait: a call keeps the deadline it was opened under.
        nursery.start_soon(self._run_datalog, datalog)
        # As it was read, not as it was written: that may have a token in it.
        return await datalog.wait_opened(str(parse_endpoint(self._params.datalog.endpoint)))

    async def _run_datalog(self, datalog: Datalog) -> None:
        trace = self.trial.trace
        try:
            if trace is None:
                await datalog.run(self._params)
            else:
                with trace.span("data log") as span:
                    await datalog.run(self._params)
                    span.set_attribute("trio_cogment.samples.lost", datalog.dropped_samples)
            if self.trial.hands_over:
                await self._release(datalog)
        finally:
            self.trial.samples_settled(datalog.dropped_samples)

    async def _release(self, datalog: Datalog) -> None:
        assert self._sink is not None
        try:
            await self._sink.release(self.trial.trial_id)  # type: ignore[attr-defined]  # see `can_be_handed_over`
        except CogmentError as error:
            _log.warning("trial %s: could not be handed over: %s", self.trial.trial_id, error)
        else:
            _log.info("trial %s: handed over; samples lost: %d", self.trial.trial_id, datalog.dropped_samples)

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks in its nursery, and of the calls without one; none once it has left that."""
        if self._nursery is None:
            return []
        calls = [self._task_name(name) for name in self._streams.open_names]
        return sorted([*(task.name for task in self._nursery.child_tasks), *calls])

    @property
    def writes_samples(self) -> bool:
        """Whether its data log may still be given samples."""
        return self._datalog is not None and not self._datalog.over

    def give_up_full_datalog(self) -> None:
        """The host stops: a data log that cannot store samples is told how the trial ended, and no more."""
        if self._datalog is not None:
            self._datalog.give_up_if_full()

    def abandon(self, farewell: float) -> None:
        """The host cancels: everybody is told, and has until `farewell`, on Trio's clock, to hear it."""
        self.trial.hard_end(STOPPING, EndCause.SERVER_STOPPED)
        self._farewell = min(self._farewell, farewell)
        if self._nursery is not None:
            self._nursery.cancel_scope.deadline = self._farewell

    def spawn(self, function: Callable[..., Awaitable[None]], name: str, *arguments: Any) -> None:
        """Start a task of the trial; it is over when the trial is."""
        if self._nursery is not None:
            self._nursery.start_soon(function, *arguments, name=self._task_name(name))
        elif self._early is not None:
            self._early.append((function, name, arguments))

    def _spawn_early(self) -> None:
        early, self._early = self._early or (), None
        for function, name, arguments in early:
            self.spawn(function, name, *arguments)

    def _task_name(self, name: str) -> str:
        return f"trial {self.trial.trial_id}: {name}"

    def on_replaced(self, why: str) -> None:
        """Another attempt has the trial, or may take it: its participants are told."""
        self.trial.hard_end(why, EndCause.SERVER_STOPPED)

    @property
    def can_be_handed_over(self) -> bool:
        """Whether another attempt can go on with it: its environment can, and its datastore counts attempts."""
        machine = self.trial.machine
        counts = getattr(self._sink, "counts_attempts", False)
        if self.trial.over or not counts or self._datalog is None or self._datalog.has_gap:
            return False
        begun = machine.latest_observation is not None
        running = machine.state == TrialState.RUNNING and machine.environment.takes_up and not self._why_not
        return running if begun else machine.state == TrialState.PENDING

    def hand_over(self) -> None:
        """Stop in the middle: participants are told that it goes on elsewhere, and what was made so far is stored.

        When the data log has it, the trial is released, so that another attempt may take it over. One that has not
        begun gives its data log nothing: a sample without observations is none to go on from.
        """
        self.trial.hands_over = True
        self.trial.has_begun = self.trial.machine.latest_observation is not None
        self.trial.hard_end(HANDED_OVER, EndCause.SERVER_STOPPED)

    def on_datalog_full(self, full: bool) -> None:
        """Let the trial wait for its data log: nobody is read, and its time stands still, until the log has room."""
        if full:
            self.trial.timers.suspend()
            self._streams.pause()
        else:
            self.trial.timers.resume()
            self._streams.resume()
