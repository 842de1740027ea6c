"""The telemetry of a run's trials: their samples, followed in the datastore while they are stored."""

from __future__ import annotations

import logging

import trio

from trio_cogment.base.errors import CogmentError, NotFoundError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.sdk import DatastoreClient
from trio_cogment.trainer.dispatching import RunSink
from trio_cogment.trainer.trials.episodes import EpisodeMaker
from trio_cogment.trainer.trials.naming import Place

_log = logging.getLogger(__name__)

_FIELDS = ("observation", "action", "reward")
#: A trial that has just been started may not be in the datastore yet: pauses between looks for it.
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class TrialFollower:
    """Publishes what happens in the trials of one run.

    Args:
        run_id: which run.
        sink: where it goes.
        datastore: has the samples.
        telemetry: `all`, `sample:N` (the steps of every Nth episode) or `episodes` (no steps).
    """

    def __init__(self, run_id: str, sink: RunSink, datastore: DatastoreClient, telemetry: str = "all") -> None:
        self._run_id = run_id
        self._sink = sink
        self._datastore = datastore
        self._every = 0 if telemetry == "episodes" else int(telemetry.partition(":")[2] or 1)

    async def follow(self, trial_id: str, place: Place) -> None:
        """Publish a trial, from its first sample to its end. It never fails: what cannot be read is logged."""
        for pause in (*_PAUSES, 0):
            try:
                await self._publish(trial_id, place)
            except NotFoundError as error:
                if pause:
                    await trio.sleep(pause)
                    continue
                _log.warning("run %s: trial %s has no telemetry: %s", self._run_id, trial_id, error)
            except CogmentError as error:
                _log.warning("run %s: trial %s: its telemetry ends here: %s", self._run_id, trial_id, error)
            return

    async def _publish(self, trial_id: str, place: Place) -> None:
        with_steps = bool(self._every) and place.index % self._every == 0
        maker = EpisodeMaker(self._run_id, trial_id, place, steps=with_steps)
        outcome: TrialOutcome | None = None
        async with self._datastore.samples(trial_id, follow=True, fields=_FIELDS) as samples:
            async for sample in samples:
                for step in maker.feed(sample):
                    await self._sink.publish(self._run_id, step)
                if sample.message.HasField("end"):
                    outcome = TrialOutcome.of(trial_id, sample.message.end)
        steps, episodes = maker.end(outcome)
        for step in steps:
            await self._sink.publish(self._run_id, step)
        for episode in episodes:
            await self._sink.publish(self._run_id, episode)
