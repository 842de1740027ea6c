"""`TrialRuns`: runs with the entry point `builtin:trials`, whose trials the trainer starts itself."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
from google.protobuf.json_format import ParseDict, ParseError
from typing_extensions import override

from trio_cogment.access import THIS_PROCESS
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import CogmentError, InvalidArgumentError
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import counted
from trio_cogment.rpc import OwnNursery
from trio_cogment.sdk import Controller
from trio_cogment.sdk.spec import Spec, load_params
from trio_cogment.trainer.dispatch.dispatcher import Starter
from trio_cogment.trainer.dispatching import RunOrder, RunSink
from trio_cogment.trainer.run_config import Trials
from trio_cogment.trainer.runs import Cause
from trio_cogment.trainer.trials.following import TrialFollower
from trio_cogment.trainer.trials.leftovers import GRACE_SECONDS, end_left_behind
from trio_cogment.trainer.trials.naming import Place, starts_of, trial_id_of
from trio_cogment.trainer.trials.where import Where

if TYPE_CHECKING:
    from trio_cogment.rl.runner import Run, TrialResult


# The parameters of a run's trials, from its configuration.


def params_of(trials: Trials, spec: Spec) -> TrialParams:
    """Return the parameters that all trials of a run share. It blocks, where they are in a file.

    Raises:
        InvalidArgumentError: they make no sense; the text names the key.
        FailedPreconditionError: see `load_params`.
    """
    if trials.params is None:
        params = load_params(trials.params_file, spec=spec if spec.actor_classes else None)
    else:
        try:
            params = ParseDict(dict(trials.params), TrialParams())
        except ParseError as error:
            raise InvalidArgumentError(f"trials.params: {error}") from error
    actors = {actor.name: actor for actor in params.actors}
    for name, changes in trials.actors.items():
        if name not in actors:
            known = ", ".join(map(repr, actors))
            raise InvalidArgumentError(f"trials.actors.{name}: expected one of the actors {known}")
        try:
            ParseDict(dict(changes), actors[name])
        except ParseError as error:
            raise InvalidArgumentError(f"trials.actors.{name}: {error}") from error
    return params


_log = logging.getLogger(__name__)

#: How registrations call the worker that a trainer is itself.
_KIND = "builtin:trials"
_SHOWN_CHARACTERS = 300


class TrialRuns(Starter):
    """Runs of trials; a `Starter` of a dispatcher.

    Args:
        where: where the trials are.
        host: runs what blocks.
    """

    def __init__(self, where: Where, host: Host) -> None:
        self._where = where
        self._runner = host.runner(1)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """There is nothing to get ready."""
        yield

    @override
    async def recover(self, orders: Collection[RunOrder]) -> None:
        # They are the trainer's own; where it does not know its name, the orchestrator lets it end no others.
        mine = [self._where.account or THIS_PROCESS.account]
        await end_left_behind({order.run_id: mine for order in orders}, self._where)

    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        """Run the trials of a run, and tell the sink how that ended. On `Cancelled` they end, softly if they can."""
        trials = order.config.trials
        assert trials is not None
        try:
            await self._runner(importlib.import_module, "trio_cogment.rl.runner")  # it takes a while
            params = self._recorded(await self._runner(params_of, trials, self._where.spec))
        except (CogmentError, ImportError) as error:
            await sink.ended(order.run_id, Cause.START_FAILED, f"dispatch_error: {error}"[:_SHOWN_CHARACTERS])
            return
        await sink.starting(order.run_id, gpus, registers=False)
        await sink.attach(order.run_id, "", _KIND)
        driven = _Driven(order, trials, params, self._where, sink)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(driven.drive)
            await driven.ended()
        cause, reason = driven.verdict
        await sink.ended(order.run_id, cause, reason[:_SHOWN_CHARACTERS])

    def _recorded(self, params: TrialParams) -> TrialParams:
        if self._where.datastore is not None and not params.HasField("datalog"):
            params.datalog.endpoint = self._where.datalog
        return params


class _Driven:
    """The trials of one run while they go on.

    Attributes:
        verdict: how the run ends, when its trials have ended.
    """

    def __init__(self, order: RunOrder, trials: Trials, params: TrialParams, where: Where, sink: RunSink) -> None:
        self._run_id = order.run_id
        self._again = order.again
        self._trials = trials
        self._params = params
        self._where = where
        self._sink = sink
        self._scope = trio.CancelScope(shield=True)
        self._done = trio.Event()
        self._run: Run | None = None
        self._failures: list[TrialResult] = []
        self.verdict = (Cause.FAILED, "internal error")

    async def ended(self) -> None:
        """Return when all is over; on `Cancelled`, end the trials first."""
        try:
            await self._done.wait()
        finally:
            if not self._done.is_set():
                with trio.CancelScope(shield=True):
                    if self._run is not None:
                        await self._run.stop(grace_seconds=GRACE_SECONDS)
                self._scope.cancel()

    async def drive(self) -> None:
        """Run the trials, whatever is cancelled meanwhile, and publish what happens in them."""
        with self._scope:
            try:
                await self._drive()
            except CogmentError as error:
                self.verdict = Cause.FAILED, f"dispatch_error: {error}"
        self._done.set()

    async def _drive(self) -> None:
        from trio_cogment.rl.runner import TrialCallback, open_run

        trials, where, run_id = self._trials, self._where, self._run_id
        controller = Controller(where.opener, spec=where.spec, user_id=run_id)
        # A trainer that was killed may have started some of them; their ids are taken as long as they are known.
        known = await controller.trial_infos() if self._again else ()
        before = starts_of(run_id, [info.trial_id for info in known])
        async with OwnNursery() as followers:

            class Starts(TrialCallback):
                def on_trial_start(self, index: int, _seed: int | None, trial_id: str) -> None:
                    if follower is not None:
                        followers.start_soon(follower.follow, trial_id, Place(index))

            follower = None
            if where.datastore is not None:
                follower = TrialFollower(run_id, self._sink, where.datastore, trials.telemetry)
            seeds = [*trials.seeds, *[None] * trials.count][: trials.count]
            async with (
                open_run(
                    trials.count,
                    params=self._params,
                    parallel=trials.parallel,
                    seeds=seeds if trials.seeds else None,
                    on=controller,
                    callbacks=[Starts()],
                    trial_id=lambda index, count: trial_id_of(run_id, index, before.get(index, 0) + count),
                ) as self._run,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._control, self._run)
                await self._watch(self._run)
                nursery.cancel_scope.cancel()
        self.verdict = self._verdict()

    async def _control(self, run: Run) -> None:
        """Do what controllers want."""
        control = self._sink.control(self._run_id)
        while True:
            run.limit_rate(control.max_rate_hz)
            if control.paused:
                run.pause()
            else:
                run.resume()
            control = await self._sink.control_changed(self._run_id, control)

    async def _watch(self, run: Run) -> None:
        """Count the failures until the end, or until there are too many."""
        async for result in run:
            self._sink.heard(self._run_id)
            if result.failed:
                self._failures.append(result)
                _log.info("run %s: trial %s failed: %s", self._run_id, result.trial_id, result.error)
                if len(self._failures) == self._trials.stop_after_failures:
                    await run.stop(grace_seconds=GRACE_SECONDS)

    def _verdict(self) -> tuple[Cause, str]:
        failed, limit = len(self._failures), self._trials.stop_after_failures
        if failed and (failed == self._trials.count or (limit is not None and failed >= limit)):
            return Cause.FAILED, f"{failed} of {counted(self._trials.count, 'trial')} failed: {self._failures[0].error}"
        return Cause.FINISHED, ""
