"""A sequence of a world: one trial, in which the gateway takes the part of every slot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.host import Host
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping
from trio_cogment.gateways.dm_env_rpc.gateway.parts import Part
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import BLOCKED, SlotInput
from trio_cogment.gateways.dm_env_rpc.gateway.slots import Reply, Slot
from trio_cogment.gateways.dm_env_rpc.gateway.templates import RewardMode, WorldTemplate
from trio_cogment.rpc import ClientCall
from trio_cogment.sdk import Controller

_log = logging.getLogger(__name__)

USER_ID = "dm_env_rpc"
#: So many ids are tried for a trial: an earlier world of the same name may have left trials behind.
_ATTEMPTS = 8


class Backstage(Protocol):
    """What worlds need of their gateway."""

    profile: Profile
    host: Host
    #: See `DmEnvRpcConfig.leave_seconds`.
    leave_seconds: float

    def make_mapping(self, template: WorldTemplate, slot: Slot, first: bytes | None) -> SlotMapping:
        """Return the mapping of a slot.

        Raises:
            CogmentError: there is none.
        """


class Sequence:
    """See the module.

    Args:
        backstage: the gateway.
        world: the name of the world.
        number: of the sequence.
        caller: the world's owner, in whose name the orchestrator is called.
        template: of the world.
        slots: those of the world.
        nursery: of the world, where what waits has its tasks.
        on_arrival: called when a slot has got its first observation.
        on_over: called when the trial has ended, or could not be started.

    Attributes:
        template: with which the trial was started.
        parts: by the names of the actors.
        begun: clients play; before that the trial waits with its first observations.
        end_asked: the gateway has asked for its end.
        is_asking: the orchestrator has not confirmed that yet.
        failure: why nobody can go on with it; None if they can.
        reward_mode, max_steps: see `parts.Surroundings`.
    """

    def __init__(
        self,
        backstage: Backstage,
        world: str,
        number: int,
        caller: Caller,
        template: WorldTemplate,
        slots: Iterable[Slot],
        nursery: trio.Nursery,
        on_arrival: Callable[[], None],
        on_over: Callable[[], None],
    ) -> None:
        self.template = template
        self.begun = False
        self.end_asked = self.is_asking = False
        self.failure: Exception | None = None
        self.reward_mode: RewardMode = template.reward_mode
        self.max_steps = template.params.max_steps
        self.parts = {slot.name: Part(slot, self) for slot in slots}
        self._backstage = backstage
        self._world = world
        self._number = number
        self._on_arrival = on_arrival
        self._on_over = on_over
        self._caller = caller
        self._opener = caller.opener()
        self._controller = Controller(self._opener, user_id=USER_ID)
        self._trial_id = ""
        self._nursery = nursery
        self._starting: ClientCall | None = None
        self._in_play = False
        self._playing = len(self.parts)
        #: Of the task that asks for the end.
        self._asking: trio.CancelScope | None = None
        self._abandoned = False
        self._hard = False

    # What the world does

    def start(self) -> None:
        """Start the trial, and play it to its end; who waits is told if it cannot be started.

        Nothing is told before the next checkpoint. If the orchestrator is in this process, there is no task for that:
        the start of a trial would cost twice as much.
        """
        try:
            params = self._params()
            self._starting = self._controller.start_trial_nowait(params, self._on_started, trial_id=self._name)
        except CogmentError:
            pass  # the task meets it again
        if self._starting is None:
            self._nursery.start_soon(self._start, 0, name=f"world {self._world!r}: sequence {self._number}")

    def _params(self) -> TrialParams:
        return self._backstage.profile.trial(self.template, self._world)

    @property
    def _name(self) -> str:
        return f"{self._world}.{self._number}"

    def _on_started(self, trial_id: str, error: RpcError | None) -> None:
        self._starting = None
        if self._abandoned:
            return
        if trial_id:
            self._play(trial_id)
        elif error is None:  # the id is taken
            self._nursery.start_soon(self._start, 1, name=f"world {self._world!r}: sequence {self._number}")
        else:
            self._nursery.start_soon(self._refused, error)

    async def _start(self, attempt: int) -> None:
        try:
            params = self._params()
            for number in range(attempt, _ATTEMPTS):
                wanted = self._name if not number else f"{self._name}-{self._backstage.host.new_id()[:8]}"
                trial_id = await self._controller.start_trial(params, trial_id=wanted)
                if trial_id:
                    break
            else:
                raise UnavailableError(f"no id for the trial: {self._name!r} is taken")
        except CogmentError as error:
            await self._refused(error)
        else:
            self._play(trial_id)

    async def _refused(self, error: CogmentError) -> None:
        self.fail(_not_started(error))
        self._on_over()

    def _play(self, trial_id: str) -> None:
        self._trial_id, self._in_play = trial_id, True
        for part in self.parts.values():
            if part.slot.record is not None:
                part.slot.record.begin(trial_id)
                part.slot.record.state = "RUNNING"
        if self.end_asked:
            self._ask_for_end()
        for part in list(self.parts.values()):
            part.play(self._opener, trial_id, self._backstage.host, self._nursery.start_soon, self._part_is_over)

    def _part_is_over(self) -> None:
        self._playing -= 1
        if not self._playing:
            self._in_play = False
            if self._asking is not None:
                self._asking.cancel()  # nobody has to be asked for the end any more
            if not self._abandoned:
                self._on_over()

    def abandon(self) -> None:
        """Leave the trial, or break its start off; nobody is told."""
        self._abandoned = True
        if self._starting is not None:
            self._starting.cancel()
        for part in self.parts.values():
            part.leave()

    @property
    def is_ending(self) -> bool:
        """Whether nobody can begin to play: the end was asked for, or the trial is over, if only for some."""
        return self.end_asked or any(part.over for part in self.parts.values())

    def begin(self) -> None:
        """Let those clients play who wait for it; nobody plays for the others."""
        self.begun = True
        for part in list(self.parts.values()):
            part.begin()

    def end(self) -> None:
        """Ask for the end of the trial: an orderly one first, unless nobody has acted yet."""
        if not self.end_asked:
            self.end_asked = self.is_asking = True
            self._hard = not self.begun
            self._ask_for_end()

    def _ask_for_end(self) -> None:
        if self._in_play:
            self._nursery.start_soon(self._end_trial)

    def withdraw(self, part: Part, *, out: bool = False, vacate: bool = False) -> None:
        """Let no client play for a slot; without any client the trial ends.

        Args:
            part: of the slot.
            out: its client does not come back before the next trial.
            vacate: the actor leaves the trial; otherwise its default action is played.
        """
        part.playing = False
        part.out = part.out or out
        if self.begun and not any(each.playing for each in self.parts.values()):
            self.end()
        if vacate:
            part.leave()
        elif self.begun:
            part.play_default()

    async def _end_trial(self) -> None:
        with trio.CancelScope() as self._asking:
            await self._have_it_ended()

    async def _have_it_ended(self) -> None:
        try:
            if not self._hard:
                with trio.move_on_after(self._backstage.leave_seconds):
                    await self._caller.end_trial(self._trial_id)
                    self._go_on()
                    await trio.sleep_forever()  # until it has ended
            await self._caller.end_trial(self._trial_id, hard=True)
        except CogmentError as error:
            _log.warning("trial %s: it cannot be ended: %s", self._trial_id, error)
            for part in self.parts.values():
                part.leave()

    def _go_on(self) -> None:
        """Let the trial come to its last tick, which is the next one."""
        self.is_asking = False
        for part in self.parts.values():
            if not part.playing:
                part.play_default()

    # What parts do; see `parts.Surroundings`

    def make_mapping(self, slot: Slot, first: bytes) -> SlotMapping:
        """See `parts.Surroundings`."""
        return self._backstage.make_mapping(self.template, slot, first)

    def has_arrived(self) -> None:
        """See `parts.Surroundings`."""
        self._on_arrival()

    def fail(self, error: Exception) -> None:
        """See `parts.Surroundings`."""
        self.failure = error
        self._hard = True
        if not self.end_asked:
            self.end_asked = self.is_asking = True
            self._ask_for_end()
        for part in self.parts.values():
            slot = part.slot
            if slot.record is not None:
                slot.record.last_error = str(error)
            if slot.state in BLOCKED:
                part.playing = False
                slot.feed(SlotInput.FAILURE, Reply(error=error))
            # Who is to act still plays: to the end of the trial, of which the next step tells.
        self._on_arrival()


def _not_started(error: CogmentError) -> CogmentError:
    """Return why a trial could not be started, as the client of a world is told."""
    if isinstance(error, RpcError) and error.code in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED):
        return UnavailableError(f"the trial could not be started: {error}")
    return RpcError(StatusCode.FAILED_PRECONDITION, f"the trial could not be started: {error}")
