"""Handling of a worker's lines by the trainer."""

from __future__ import annotations

import logging

import trio

from trio_cogment.base.errors import CogmentError, StatusCode, status_of
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.trainer.dispatch.jsonl import Event, LogLine, Origin, parse_line
from trio_cogment.trainer.dispatching import RunSink

_log = logging.getLogger(__name__)

#: How registrations call a worker that is known by its output.
KIND = "jsonl.telemetry"
_SHOWN_CHARACTERS = 200
#: How long a model registry may take to say whether it has a version; the worker waits meanwhile.
_ASK_SECONDS = 5.0


class Listener:
    """Gives what a worker writes to the trainer.

    The first line that says something counts as its registration. A step that is held back by a pause, a rate or a busy
    storage holds back the worker, as its pipe is not read then.

    Args:
        origin: whose output it is.
        sink: where it goes.
        models: where the versions of models are that it says it has saved; None: it is taken at its word.

    Attributes:
        failure: what the worker said of its failure; empty: nothing.
        attached: it has written a line that says something.
        heartbeats: it sends heartbeats, so it is alive only if it does.
        skipped: lines that say nothing.
        lost: steps and episodes that were not accepted.
    """

    def __init__(self, origin: Origin, sink: RunSink, models: ModelRegistryClient | None = None) -> None:
        self._origin = origin
        self._models = models
        self._sink = sink
        self._next_time = 0.0
        self.failure = ""
        self.attached = self.heartbeats = False
        self.skipped = self.lost = 0

    async def take(self, lines: list[bytes]) -> None:
        """Take some lines."""
        for line in lines:
            found = parse_line(line, self._origin)
            if found is None:
                self.skipped += 1
            elif isinstance(found, LogLine):
                _log.debug("run %s: %s", self._origin.run_id, found.text[:_SHOWN_CHARACTERS])
            else:
                try:
                    await self._attach()
                    if isinstance(found, Event):
                        await self._note(found)
                    else:
                        await self._pace()
                        await self._sink.publish(self._origin.run_id, found)
                except CogmentError as error:
                    self.lost += 1
                    _log.debug("run %s: %s", self._origin.run_id, error)

    async def _attach(self) -> None:
        if not self.attached:
            await self._sink.attach(self._origin.run_id, self._origin.worker_id, KIND)
            self.attached = True

    async def _note(self, event: Event) -> None:
        self._sink.heard(self._origin.run_id)
        if event.name == "heartbeat":
            self.heartbeats = True
        elif event.name == "run_failed":
            self.failure = (event.error or event.name)[:_SHOWN_CHARACTERS]
        elif event.name == "checkpoint_saved":
            _log.info("run %s: a checkpoint: %s", self._origin.run_id, dict(event.payload))
            if event.checkpoint and await self._is_there(event.checkpoint):
                await self._sink.link(self._origin.run_id, event.checkpoint)

    async def _is_there(self, checkpoint: str) -> bool:
        """Whether a model registry has a version, as far as that can be found out."""
        if self._models is None:
            return True
        model, _, version = checkpoint.rpartition("@")
        try:
            with trio.move_on_after(_ASK_SECONDS) as asking:
                await self._models.version_info(model, int(version))
        except CogmentError as error:
            if status_of(error)[0] is StatusCode.NOT_FOUND:
                _log.warning("run %s: there is no model version %s: it is not linked", self._origin.run_id, checkpoint)
                return False
            _log.info("run %s: %s is linked unseen: %s", self._origin.run_id, checkpoint, error)
        if asking.cancelled_caught:
            _log.info("run %s: %s is linked unseen: the model registry is slow", self._origin.run_id, checkpoint)
        return True

    async def _pace(self) -> None:
        """Wait until the rate that controllers allow lets one more pass."""
        control = self._sink.control(self._origin.run_id)
        while control.max_rate_hz and not control.ended and trio.current_time() < self._next_time:
            with trio.move_on_at(self._next_time):
                control = await self._sink.control_changed(self._origin.run_id, control)
        if control.max_rate_hz:
            self._next_time = max(self._next_time, trio.current_time()) + 1 / control.max_rate_hz
