"""A world: a template, the slots that clients take, and the sequence that is played in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import trio
from trio_util import AsyncValue, compose_values, wait_any

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, PermissionDeniedError, UnavailableError
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.dm_env_rpc.gateway.makers import Maker
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.choice import needs_first_observation
from trio_cogment.gateways.dm_env_rpc.gateway.parts import Part, not_begun
from trio_cogment.gateways.dm_env_rpc.gateway.records import SlotRecord
from trio_cogment.gateways.dm_env_rpc.gateway.sequences import Backstage, Sequence
from trio_cogment.gateways.dm_env_rpc.gateway.slot_states import BLOCKED, SlotInput, SlotState
from trio_cogment.gateways.dm_env_rpc.gateway.slots import Reply, Slot, too_long
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate

Settings = Mapping[str, pb.Tensor]

_log = logging.getLogger(__name__)


class World:
    """See the module. Its methods are called by the tasks of connections, which wait in them.

    Args:
        backstage: the gateway.
        name: of the world.
        template: of its trials.
        caller: who has created it.
        maker: the account of that one.
        config: limits.

    Attributes:
        name: of the world.
        template: of its next trial.
        owner: the account of whoever has created it; empty: nobody's.
        slots: by the names of the actors.
        destroyed: why nobody can do anything here any more; None if they can.
    """

    def __init__(
        self,
        backstage: Backstage,
        name: str,
        template: WorldTemplate,
        caller: Caller,
        maker: Maker,
        config: DmEnvRpcConfig,
    ) -> None:
        self.name = name
        self.template = template
        self.destroyed: CogmentError | None = None
        self.owner = caller.owner
        self._caller = caller
        self._backstage = backstage
        self._maker = maker
        self._config = config
        self._changes = AsyncValue(0)
        self._joined = AsyncValue(0)
        self._sequence: Sequence | None = None
        self._number = 0
        self._leaving = False
        self.slots = {
            actor.name: Slot(actor.name, actor.actor_class, self._settled) for actor in template.slots.values()
        }

    def __str__(self) -> str:
        return f"world {self.name!r}"

    # Its life

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Play its sequences, until it is destroyed, or nobody has joined it for too long.

        It does not outlive its maker for long either, unless somebody has joined it.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                while self.destroyed is None:
                    with trio.CancelScope() as self._patience:
                        idle_seconds = self.template.world_idle_seconds or float("inf")
                        why = await _unused(self._joined, idle_seconds, self._maker, self._config.abandoned_seconds)
                        self.close(FailedPreconditionError(f"{self} is gone: {why}"))
                await self.wait_unplayed()
        except* Exception:  # noqa: BLE001  the boundary of a world: what fails here harms no other
            _log.exception("%s failed", self)
            if self._sequence is not None:
                self._sequence.abandon()
                self._sequence = None
            self.close(UnavailableError(f"{self} failed; the gateway's log has the details"))
        finally:
            if self._sequence is not None:
                self._sequence.abandon()

    def close(self, why: CogmentError) -> None:
        """End what is played here; requests that wait are refused, and so are later ones.

        Args:
            why: the reason.
        """
        self.destroyed = why
        if self._sequence is not None:
            self._sequence.end()
        for slot in self.slots.values():
            if slot.state in BLOCKED:
                slot.feed(SlotInput.FAILURE, Reply(error=why))
            self._withdraw(slot)
        self._patience.cancel()

    def stop(self) -> None:
        """End what is played here in good order: steps that wait for an observation get the last one."""
        self._leaving = True
        for slot in self.slots.values():
            if slot.state is SlotState.WAITING:
                slot.feed(SlotInput.FAILURE, Reply(error=UnavailableError("the gateway is stopping")))
        if self._sequence is not None:
            self._sequence.end()
        for slot in self.slots.values():
            if slot.state is not SlotState.STEPPING:
                self._withdraw(slot)

    def _settled(self) -> None:
        self._changes.value += 1

    async def wait_unplayed(self) -> None:
        """Wait until there is no trial."""
        await self._changes.wait_value(lambda _: self._sequence is None)

    def free_for(self, caller: Caller) -> list[str]:
        """Return the names of the free actors that a client may join as: by a token, the world is the trial's name."""
        plays = caller.identity.plays
        return [
            slot.name
            for slot in self.slots.values()
            if not slot.is_joined and plays(self.name, self.owner, slot.actor_class, slot.name)
        ]

    # Joining and leaving

    async def join(self, settings: Settings, caller: Caller) -> Slot:
        """Join as an actor.

        Where specifications come with the first observation, a trial is started for them.

        Raises:
            CogmentError: there is no such actor, no free one, or no specifications.
        """
        self._check_open()
        free = self.free_for(caller)
        if not free and not all(slot.is_joined for slot in self.slots.values()):
            raise PermissionDeniedError(f"{self}: not for this caller")
        name = self._backstage.profile.join(self.template, settings, free)
        slot = self.slots[name]
        slot.feed(SlotInput.JOIN)
        params = self.template.params
        slot.record = SlotRecord(
            actor_name=name,
            actors=[(actor.name, actor.actor_class) for actor in params.actors],
            environment_name=params.environment.name or "env",
            max_messages=self._config.max_kept_messages,
        )
        self._joined.value += 1
        joined = False
        try:
            if slot.mapping is None:
                await self._find_mapping(slot)
            joined = True
        finally:
            if not joined:
                self.leave(slot)
        return slot

    async def _find_mapping(self, slot: Slot) -> None:
        backstage = self._backstage
        if not needs_first_observation(backstage.profile.spec, self.template, slot.actor_class):
            slot.mapping = backstage.make_mapping(self.template, slot, None)
            return
        seconds = self.template.step_timeout_seconds
        with trio.move_on_after(seconds or float("inf")):
            while not slot.is_described:
                sequence = self._sequence or self._launch()
                of_others = sequence.is_ending
                await self._changes.wait_transition()
                self._check_open()
                if of_others:
                    continue
                if sequence.failure is not None:
                    raise sequence.failure
                # One that this world itself has ended is followed by another one.
                if self._sequence is not sequence and not (sequence.end_asked or slot.is_described):
                    why = sequence.parts[slot.name].details
                    raise not_begun(f"{self}: the trial ended before its first observation", why)
        if not slot.is_described:
            raise too_long(f"{self}, actor {slot.name!r}", seconds, "the first observation")

    def leave(self, slot: Slot) -> None:
        """Let an actor's client go; what becomes of the trial is the template's policy."""
        was_playing = slot.state in (SlotState.ACTING, SlotState.STEPPING, SlotState.RESETTING)
        slot.forget_request()
        slot.record = None
        slot.feed(SlotInput.LEAVE)
        self._joined.value -= 1
        sequence, part = self._sequence, self._part(slot)
        if sequence is not None and part is not None and not part.over:
            if was_playing and self.template.on_leave == "end":
                sequence.end()
            sequence.withdraw(part, vacate=was_playing and self.template.on_leave == "vacate")
            if not sequence.begun and not self._joined.value:
                sequence.end()
        self.poke()

    # Requests

    def step(self, slot: Slot, content: bytes | None) -> None:
        """Begin a step; the slot has its answer, sooner or later.

        Args:
            slot: of the client.
            content: the action, in the middle of a sequence.

        Raises:
            CogmentError: it cannot be made.
        """
        self._check_open()
        part = self._part(slot)
        before = slot.state
        slot.feed(SlotInput.STEP)
        if before is SlotState.ACTING:
            assert part is not None
            assert content is not None
            try:
                part.act(content)
            except CogmentError:
                if slot.state is SlotState.STEPPING:
                    slot.state = before
                raise
        elif before is SlotState.READY:
            self.poke()

    def give_up(self, slot: Slot) -> None:
        """Let nobody play for a client whose step was answered with an error."""
        part = self._part(slot)
        if part is not None and part.playing:
            self._withdraw(slot)

    def _withdraw(self, slot: Slot) -> None:
        if self._sequence is not None:
            self._sequence.withdraw(self._sequence.parts[slot.name], out=True)

    async def reset(self, slot: Slot, settings: Settings) -> None:
        """End the client's sequence, if one runs, and keep settings for the next one.

        Raises:
            CogmentError: a setting makes no sense, or the trial does not end.
        """
        self._check_open()
        self._take(settings)
        if slot.state is not SlotState.ACTING:
            slot.feed(SlotInput.RESET_NOW)
            self._drop_stale()
        else:
            assert self._sequence is not None
            slot.feed(SlotInput.RESET)
            if self.template.reset == "world":
                self._sequence.end()
            self._withdraw(slot)
        reply = await slot.answered(self.template.step_timeout_seconds, str(self))
        if reply.error is not None:
            raise reply.error

    async def reset_world(self, caller: Slot | None, settings: Settings) -> None:
        """End the sequence for everybody; wait until each other client has been told.

        Args:
            caller: the slot of the client that asks, if it has joined this world.
            settings: kept for the next sequence.

        Raises:
            CogmentError: a setting makes no sense, or the world is gone.
        """
        self._check_open()
        self._take(settings)
        sequence = self._sequence
        if sequence is not None:
            sequence.end()
        if caller is not None:
            caller.feed(SlotInput.VOID)
            self._withdraw(caller)
        with trio.move_on_after(self.template.reset_world_timeout_seconds):
            await self._changes.wait_value(lambda _: self._is_reset(sequence))
        self._check_open()

    def _is_reset(self, sequence: Sequence | None) -> bool:
        if sequence is not None and self._sequence is sequence:
            return False
        return not any(slot.state is SlotState.OVER for slot in self.slots.values())

    def _take(self, settings: Settings) -> None:
        if settings:  # a trial that waits stays good without any
            self.template = self._backstage.profile.reset(self.template, settings)

    def _check_open(self) -> None:
        if self.destroyed is not None:
            raise self.destroyed
        if self._leaving:
            raise UnavailableError("the gateway is stopping")

    # Sequences

    def _part(self, slot: Slot) -> Part | None:
        """Return a slot's part in the trial, if there is one."""
        return None if self._sequence is None else self._sequence.parts[slot.name]

    def poke(self) -> None:
        """Begin a sequence if enough clients wait for it."""
        if self.destroyed is not None or self._leaving or not self._is_quorate():
            return
        sequence = self._sequence or self._launch()
        if not (sequence.begun or sequence.is_ending or self._drop_stale()):
            self.template = self._backstage.profile.after_trial(self.template)
            sequence.begin()

    def _is_quorate(self) -> bool:
        waiting = sum(slot.state is SlotState.WAITING for slot in self.slots.values())
        wanted = self.template.start_when
        if wanted == "all":
            return waiting == len(self.slots)
        return waiting >= (1 if wanted == "first" else int(wanted))

    def _launch(self) -> Sequence:
        """Start a trial."""
        self._number += 1
        sequence = Sequence(
            self._backstage,
            self.name,
            self._number,
            self._caller,
            self.template,
            self.slots.values(),
            self._nursery,
            on_arrival=self._settled,
            on_over=self._played,
        )
        self._sequence = sequence
        sequence.start()
        return sequence

    def _drop_stale(self) -> bool:
        """End a trial that waits to be a sequence, if settings have changed since it was started."""
        sequence = self._sequence
        if sequence is None or sequence.begun or sequence.template is self.template:
            return False
        sequence.end()
        return True

    def _played(self) -> None:
        self._sequence = None
        self._settled()
        self.poke()


async def _unused(joined: AsyncValue[int], idle_seconds: float, maker: Maker, abandoned_seconds: float) -> str:
    """Wait until a world is of no use to anybody; return why."""
    reasons: list[str] = []

    async def idle() -> None:
        await joined.wait_value(0, held_for=idle_seconds)
        reasons.append(f"nobody had joined it for {idle_seconds:g} s")

    async def abandoned() -> None:
        with compose_values(joined=joined, present=maker.connections) as there:
            await there.wait_value(lambda there: not (there.joined or there.present), held_for=abandoned_seconds)
        reasons.append("whoever had created it has left, and nobody had joined it")

    await wait_any(idle, abandoned)
    return reasons[0]
