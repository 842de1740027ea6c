"""Worlds: a world is a template, the players that clients can be, and the sequence, a trial, that is played in it.

In each trial of a world the gateway takes a seat for every player, and the seat's mailbox says whether the trial waits
for its action. If no client plays, default actions are sent. A `Player` keeps what lasts longer than a trial: the
client, and the request of it that waits. It is in one of these states, by its attributes:

- `record` is None: nobody has joined as this actor;
- `awaits`: a step or a reset waits, for what it says. Nothing else of this client comes before the answer;
- `playing`: the client has an observation of the running trial, and is to act upon it;
- `untold`: the sequence has ended, and for the client it is running: the next step tells of the end;
- none of them: no sequence is running, and the next step begins one.

Rule 1: a request that waits is answered by exactly one of an observation, the end, and an error; after `leave` by none.

Rule 2: an error has no effect that the client knows of. A sequence that was running for it still is, and so the next
step tells of its end.

Rule 3: the answer to the final observation comes with the end: until then there may be more rewards.

Events are handled where they arrive: in process that is the task in which the last actor has acted, so that a step
often has its answer when its action has been sent.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct
from trio_util import AsyncValue, compose_values, wait_any

from trio_cogment.api.common_pb2 import Message
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.config import DmEnvRpcConfig
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    PermissionDeniedError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.host import Host
from trio_cogment.base.outcome import EndCause
from trio_cogment.budget.made_once import MadeOnce
from trio_cogment.gateways.callers import Caller
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import SlotMapping, Verdict
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.choice import Mappings, needs_first_observation
from trio_cogment.gateways.dm_env_rpc.gateway.profile import Profile
from trio_cogment.gateways.dm_env_rpc.gateway.records import GatheredRewards, PlayerRecord, Sending
from trio_cogment.gateways.dm_env_rpc.gateway.templates import WorldTemplate
from trio_cogment.sdk import ActorSession, Event
from trio_cogment.seats.round import Round, not_begun, not_started
from trio_cogment.seats.seat import Seat

Settings = Mapping[str, pb.Tensor]

_log = logging.getLogger(__name__)

USER_ID = "dm_env_rpc"
#: Ids that are tried for a trial: an earlier world of the same name may have left trials behind.
_ATTEMPTS = 8

RUNNING, TERMINATED, INTERRUPTED = pb.RUNNING, pb.TERMINATED, pb.INTERRUPTED


class Awaits(enum.Enum):
    """The event that a request waits for."""

    FIRST = "others to join and step, and for the first observation"
    NEXT = "the next observation"
    END = "the end of the trial, in which others play"


#: Looking a member up in the enumeration takes as long as a call.
_FIRST, _NEXT, _END = Awaits.FIRST, Awaits.NEXT, Awaits.END


class Reply(NamedTuple):
    """The answer to a request that has waited.

    Attributes:
        state: of the sequence; INVALID_ENVIRONMENT_STATE for the answer to a reset.
        content: the payload of the observation.
        reward: since the last reply.
        error: why the request has failed; None if it has not.
    """

    state: pb.EnvironmentStateType = pb.INVALID_ENVIRONMENT_STATE
    content: bytes = b""
    reward: float = 0.0
    error: Exception | None = None

    @property
    def discount(self) -> float:
        """Of the rewards that would follow."""
        return 0.0 if self.state == TERMINATED else 1.0


class Player:
    """An actor of a world that a client can be, from one trial to the next; see the module.

    Args:
        name: of the actor.
        actor_class: of the actor.
        world: where it plays.

    Attributes:
        name, actor_class: see above.
        mapping: of its payloads, once it is known; it stays for the life of the world.
        record: what its client can learn by properties; None while nobody has joined as this actor.
        seat: in the world's trial, or in the last one; None before the first.
        awaits: what the request that waits is waiting for; None if none does.
        playing: the client has a running sequence, or waits for the first observation of one that has begun.
        out: the client has no part in what is left of the trial.
        untold: the end of a sequence that the client is to be told of.
    """

    def __init__(self, name: str, actor_class: str, world: World) -> None:
        self.name = name
        self.actor_class = actor_class
        self.mapping: SlotMapping | None = None
        self.record: PlayerRecord | None = None
        self.seat: Seat | None = None
        self.awaits: Awaits | None = None
        self.playing = self.out = False
        self.untold: Reply | None = None
        self._world = world
        self._max_steps = 0
        self._rewards = GatheredRewards("sum")
        #: The last observation of the trial; None before the first.
        self._content: bytes | None = None
        #: The last observation that the client was told of as RUNNING.
        self._seen = b""
        #: What the last observation itself says of the end.
        self._verdict: Verdict | None = None
        #: The environment has said in a message that the episode is cut off.
        self._truncated = False
        self._reply: Reply | None = None
        self._answered: trio.Event | None = None
        self._receiver: Callable[[Reply], None] | None = None

    # The trial's side

    def take_seat(self, template: WorldTemplate) -> Seat:
        """Return the seat for another trial, with the world's template."""
        self.playing = self.out = self._truncated = False
        self._content = self._verdict = None
        self._rewards = GatheredRewards(template.reward_mode)
        self._max_steps = template.params.max_steps
        self.seat = Seat(
            self.name, self._on_news, on_begun=self._equip, on_over=self._on_over, aside=self._on_reward_or_message
        )
        if self.mapping is not None:
            self.seat.default = self.mapping.default_action
        return self.seat

    def _equip(self, session: ActorSession[Any, Any, Any]) -> None:
        """Let the client reach the others in the trial."""
        record = self.record
        if record is not None:
            record.environment_name = session.environment_name
            record.sending = Sending(
                message=lambda receiver, payload: session.send_message_nowait(payload, receiver),
                reward=lambda receiver, value: session.add_reward_nowait(value, 1.0, receiver),
            )

    def _on_reward_or_message(self, event: Event[Any, None]) -> bool:
        record, reward, message = self.record, event.reward, event.message
        if reward is not None:
            self._rewards.add(reward)
            if record is not None:
                record.add_reward(reward)
        elif message is not None:
            session = self._taken.session
            if session is not None and message.sender_name == session.environment_name:
                self._truncated = self._truncated or is_truncation(message.payload)
            if record is not None:
                record.add_message(
                    Message(tick_id=message.tick_id, sender_name=message.sender_name, payload=message.payload)
                )
        return True

    @property
    def _taken(self) -> Seat:
        assert self.seat is not None
        return self.seat

    def _on_news(self) -> None:
        mailbox = self._taken.mailbox
        observation = mailbox.observation
        if observation is None or mailbox.has_ended:
            return  # of the end `_on_over` tells
        content: bytes = observation.payload
        first = self._content is None
        if not self._is_understood(content, first):
            return
        self._content = content
        if self.record is not None:
            self.record.tick = observation.tick_id
        if self._world.has_begun:
            self._offer(content, mailbox.final)
        if first:
            self._world.settled()

    def _is_understood(self, content: bytes, first: bool) -> bool:
        """Read what an observation says of the end; the first one has to fit the specifications, or makes them."""
        mapping = self.mapping
        try:
            if mapping is None:
                self.mapping = mapping = self._world.make_mapping(self, content)
                self._taken.default = mapping.default_action
            elif first and not mapping.describes(content):
                raise FailedPreconditionError(
                    f"actor {self.name!r}: the environment has other spaces than in the world's earlier sequences; "
                    "specifications stay as they are: create another world"
                )
            self._verdict = mapping.verdict(content)
        except CogmentError as error:
            self._world.fail(error)
            return False
        return True

    def begin(self) -> None:
        """Let the client play if it waits for a sequence, and nobody otherwise."""
        if self.awaits is _FIRST:
            self.playing = True
        if self._content is not None:
            self._offer(self._content, self._taken.mailbox.final)

    def _offer(self, content: bytes, final: bool) -> None:
        """Give an observation to the client if it plays; play the default action otherwise."""
        awaits = self.awaits
        if awaits is _FIRST and not self.playing and not (self.out or final) and not self._world.end_asked:
            self.playing = True
        if not self.playing:
            self.play_default()
        elif awaits is _FIRST:
            self._rewards.clear()  # those before belong to what nobody saw
            seat = self._taken
            if seat.session is not None:
                self._equip(seat.session)
            self._seen = content
            self._answer(Reply(RUNNING, content))
        elif final:
            pass  # see rule 3
        elif self._verdict is Verdict.TERMINATED or self._verdict is Verdict.TRUNCATED:
            self._tell_end()
            self.out = True
            self.play_default()
        elif awaits is _NEXT:
            self._seen = content
            self._answer(Reply(RUNNING, content, self._rewards.take()))

    def play_default(self) -> None:
        """Act for the client, if the trial waits for it, and is not just being asked to end."""
        if not self._world.is_asking:
            self._taken.act_default()

    def _on_over(self) -> None:
        record = self.record
        if record is not None and self._world.has_started:
            record.sending, record.state = None, "ENDED"
            record.last_error = self._world.why_ended(self._taken)
        if self.playing:
            if self.awaits is _FIRST:
                self.refuse(self._world.why_not_begun(self._taken))
            else:
                self._tell_end()
        elif self.awaits is _END:
            self._answer(Reply())

    def _tell_end(self) -> None:
        assert self._content is not None
        self.playing = False
        state = TERMINATED if self._has_terminated() else INTERRUPTED
        reply = Reply(state, self._content, self._rewards.take())
        if self.awaits is None:
            self.untold = reply
            self._world.settled()
        else:
            self._answer(reply)

    def _has_terminated(self) -> bool:
        """Whether the task has ended by its own rules: the observation says so, or the cause of the trial's end."""
        if self._verdict in (Verdict.TERMINATED, Verdict.TRUNCATED):
            return self._verdict is Verdict.TERMINATED
        seat = self._taken
        if not seat.mailbox.final or self._world.end_asked or self._truncated:
            return False
        if seat.outcome is not None:
            return seat.outcome.cause is EndCause.ENVIRONMENT
        # The orchestrator does not say.
        return not self._max_steps or seat.mailbox.tick_id < self._max_steps

    # The client's side

    @property
    def is_joined(self) -> bool:
        """Whether it has a client."""
        return self.record is not None

    @property
    def is_in_sequence(self) -> bool:
        """Whether a sequence is running for the client that has not ended, whoever acts in it."""
        return self.awaits is _END or (self.playing and self.awaits is not _FIRST)

    def leave(self) -> None:
        """Let the client go; nobody is answered any more."""
        self.record = self.awaits = self.untold = self._reply = self._receiver = None
        self._world.settled()

    def step(self, content: bytes | None) -> None:
        """Begin a step; it has its answer, sooner or later.

        Args:
            content: the action, if the client is to act.

        Raises:
            CogmentError: it cannot be sent. The client may try again.
        """
        if self.record is not None:
            self.record.begin_step()
        if content is not None:
            self.awaits = _NEXT  # before it is sent: in process this may bring the next observation
            try:
                self._taken.act(content)
            except CogmentError:
                if self.awaits is _NEXT:
                    self.awaits = None
                raise
        elif self.untold is not None:
            reply, self.untold = self.untold, None
            self._answer(reply)
        else:
            self.awaits = _FIRST
            self._world.poke()

    @property
    def is_to_act(self) -> bool:
        """Whether the next step needs an action."""
        return self.playing and self.awaits is None

    def void(self) -> None:
        """Forget a sequence that the client itself has ended."""
        self.untold = None
        self._world.settled()

    def refuse(self, error: Exception) -> None:
        """Answer the request that waits with an error; by rule 2 the end of a sequence is told later."""
        self.playing = False
        if self.awaits is not _FIRST:
            self.untold = Reply(INTERRUPTED, self._seen)
        self._answer(Reply(error=error))

    # Answers

    def _answer(self, reply: Reply) -> None:
        self.awaits = None
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver(reply)
        else:
            self._reply = reply
            if self._answered is not None:
                self._answered.set()
        if reply.state != RUNNING:
            self._world.settled()

    def take_answer(self, receiver: Callable[[Reply], None]) -> None:
        """Give the answer to the request that waits to a function: now if it is there, or when it comes."""
        reply = self._reply
        if reply is None:
            self._receiver = receiver
        else:
            self._reply = None
            receiver(reply)

    async def answered(self, seconds: float) -> Reply:
        """Wait for the answer to the request that waits.

        Args:
            seconds: how long; 0: no limit.

        Returns:
            The answer. After the time that is an error, and nothing waits any more.
        """
        if self._reply is None:
            self._answered = trio.Event()
            try:
                with trio.move_on_after(seconds or inf):
                    await self._answered.wait()
            finally:
                self._answered = None
            if self._reply is None:
                assert self.awaits is not None
                playing = self.playing
                self.refuse(_too_long(self._world, self, seconds, self.awaits.value))
                if playing:
                    self._world.withdraw(self)
        assert self._reply is not None
        reply, self._reply = self._reply, None
        return reply


class _Sequence:
    """The trial of a world: its round, and what the world notes of it.

    Attributes:
        round: see above.
        template: with which the trial was started.
        begun: clients play; before that the trial waits with its first observations.
        failure: why nobody can go on with it; None if they can.
    """

    def __init__(self, round_: Round, template: WorldTemplate) -> None:
        self.round = round_
        self.template = template
        self.begun = False
        self.failure: Exception | None = None

    @property
    def is_ending(self) -> bool:
        """Whether nobody can begin to play: the end was asked for, or the trial is over, if only for some."""
        return self.round.end_asked or any(seat.is_over for seat in self.round.seats)


class World:
    """See the module. Its methods are called by the tasks of connections, which wait in them.

    Args:
        name: of the world.
        template: of its trials.
        caller: who has created it.
        connections: how many the account of that one has.
        profile: makes the parameters of trials.
        config: limits.
        host: makes ids of trials.

    Attributes:
        name: of the world.
        template: of its next trial.
        owner: the account of whoever has created it; empty: nobody's.
        players: by the names of the actors.
        sequence: the trial that is played; None if there is none.
        large: the answers of many clients that see the same large observation.
        destroyed: why nobody can do anything here any more; None if they can.
    """

    def __init__(
        self,
        name: str,
        template: WorldTemplate,
        caller: Caller,
        connections: AsyncValue[int],
        profile: Profile,
        config: DmEnvRpcConfig,
        host: Host,
    ) -> None:
        self.name = name
        self.template = template
        self.destroyed: CogmentError | None = None
        self.owner = caller.owner
        self.sequence: _Sequence | None = None
        self.large = MadeOnce()
        self._caller = caller
        self._connections = connections
        self._profile = profile
        self._mappings = Mappings(profile.spec, template)
        self._config = config
        self._host = host
        self._changes = AsyncValue(0)
        self._joined = AsyncValue(0)
        self._number = 0
        self._leaving = False
        self.players = {actor.name: Player(actor.name, actor.actor_class, self) for actor in template.slots.values()}

    def __str__(self) -> str:
        return f"world {self.name!r}"

    # Its life

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Play its sequences, until it is destroyed, or nobody has joined it for too long.

        It does not outlive the connections of whoever has created it for long either, unless somebody has joined it.
        """
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                while self.destroyed is None:
                    with trio.CancelScope() as self._patience:
                        idle_seconds = self.template.world_idle_seconds or inf
                        why = await _unused(
                            self._joined, idle_seconds, self._connections, self._config.abandoned_seconds
                        )
                        self.close(FailedPreconditionError(f"{self} is gone: {why}"))
                await self.wait_unplayed()
        except* Exception:  # noqa: BLE001  the boundary of a world: what fails here harms no other
            _log.exception("%s failed", self)
            if self.sequence is not None:
                self.sequence.round.abandon()
                self.sequence = None
            self.close(UnavailableError(f"{self} failed; the gateway's log has the details"))
        finally:
            if self.sequence is not None:
                self.sequence.round.abandon()

    def close(self, why: CogmentError) -> None:
        """End what is played here; requests that wait are refused, and so are later ones.

        Args:
            why: the reason.
        """
        self.destroyed = why
        self._end()
        for player in self.players.values():
            if player.awaits is not None:
                player.refuse(why)
            self.withdraw(player)
        self._patience.cancel()

    def stop(self) -> None:
        """End what is played here in good order: steps that wait for an observation get the last one."""
        self._leaving = True
        for player in self.players.values():
            if player.awaits is Awaits.FIRST:
                player.refuse(UnavailableError("the gateway is stopping"))
        self._end()
        for player in self.players.values():
            if player.awaits is not Awaits.NEXT:
                self.withdraw(player)

    def settled(self) -> None:
        """Take note that a client has come, gone or been told, or that a first observation has come."""
        self._changes.value += 1

    async def wait_unplayed(self) -> None:
        """Wait until there is no trial."""
        await self._changes.wait_value(lambda _: self.sequence is None)

    def free_for(self, caller: Caller) -> list[str]:
        """Return the names of the free actors that a client may join as: by a token, the world is the trial's name."""
        plays = caller.identity.plays
        return [
            player.name
            for player in self.players.values()
            if not player.is_joined and plays(self.name, self.owner, player.actor_class, player.name)
        ]

    def check_open(self) -> None:
        """See that something can be done here.

        Raises:
            CogmentError: the world is gone, or the gateway is stopping.
        """
        if self.destroyed is not None:
            raise self.destroyed
        if self._leaving:
            raise UnavailableError("the gateway is stopping")

    # Joining and leaving

    async def join(self, settings: Settings, caller: Caller) -> Player:
        """Join as an actor.

        Where specifications come with the first observation, a trial is started for them.

        Raises:
            CogmentError: there is no such actor, no free one, or no specifications.
        """
        self.check_open()
        free = self.free_for(caller)
        if not free and not all(player.is_joined for player in self.players.values()):
            raise PermissionDeniedError(f"{self}: not for this caller")
        player = self.players[self._profile.join(self.template, settings, free)]
        params = self.template.params
        player.record = PlayerRecord(
            actor_name=player.name,
            actors=[(actor.name, actor.actor_class) for actor in params.actors],
            environment_name=params.environment.name or "env",
            max_messages=self._config.max_kept_messages,
        )
        self.settled()
        self._joined.value += 1
        joined = False
        try:
            if player.mapping is None:
                await self._find_mapping(player)
            joined = True
        finally:
            if not joined:
                self.leave(player)
        return player

    async def _find_mapping(self, player: Player) -> None:
        if not needs_first_observation(self._profile.spec, self.template, player.actor_class):
            player.mapping = self.make_mapping(player, None)
            return
        seconds = self.template.step_timeout_seconds
        with trio.move_on_after(seconds or inf):
            while player.mapping is None:
                sequence = self.sequence or self._launch()
                seat = player.seat
                assert seat is not None
                of_others = sequence.is_ending
                await self._changes.wait_transition()
                self.check_open()
                if of_others:
                    continue
                if sequence.failure is not None:
                    raise sequence.failure
                # One that this world itself has ended is followed by another one.
                if self.sequence is not sequence and not sequence.round.end_asked and player.mapping is None:
                    raise not_begun(f"{self}: the trial ended before its first observation", seat.details)
        if player.mapping is None:
            raise _too_long(self, player, seconds, "the first observation")

    def make_mapping(self, player: Player, first: bytes | None) -> SlotMapping:
        """Return the mapping of a player.

        Raises:
            CogmentError: there is none.
        """
        return self._mappings.of(player.actor_class, first)

    def leave(self, player: Player) -> None:
        """Let an actor's client go; what becomes of the trial is the template's policy."""
        was_in_sequence = player.is_in_sequence
        player.leave()
        self._joined.value -= 1
        sequence, seat = self.sequence, player.seat
        if sequence is not None and seat is not None and not seat.is_over:
            if was_in_sequence and self.template.on_leave == "end":
                self._end()
            vacate = was_in_sequence and self.template.on_leave == "vacate"
            self.withdraw(player, out=False, vacate=vacate)
            if not sequence.begun and not self._joined.value:
                self._end()
        self.poke()

    # Resets

    async def reset(self, player: Player, settings: Settings) -> None:
        """End the client's sequence, if one runs, and keep settings for the next one.

        Raises:
            CogmentError: a setting makes no sense, or the trial does not end.
        """
        self.check_open()
        self._take(settings)
        if not player.is_to_act:
            player.void()
            self._drop_stale()
            return
        player.awaits = Awaits.END
        if self.template.reset == "world":
            self._end()
        self.withdraw(player)
        reply = await player.answered(self.template.step_timeout_seconds)
        if reply.error is not None:
            raise reply.error

    async def reset_world(self, caller: Player | None, settings: Settings) -> None:
        """End the sequence for everybody; wait until each other client has been told.

        Args:
            caller: the player of the client that asks, if it has joined this world.
            settings: kept for the next sequence.

        Raises:
            CogmentError: a setting makes no sense, or the world is gone.
        """
        self.check_open()
        self._take(settings)
        sequence = self.sequence
        self._end()
        if caller is not None:
            caller.void()
            self.withdraw(caller)
        with trio.move_on_after(self.template.reset_world_timeout_seconds):
            await self._changes.wait_value(lambda _: self._is_reset(sequence))
        self.check_open()

    def _is_reset(self, sequence: _Sequence | None) -> bool:
        if sequence is not None and self.sequence is sequence:
            return False
        return all(player.untold is None for player in self.players.values())

    def _take(self, settings: Settings) -> None:
        if settings:  # a trial that waits stays good without any
            self.template = self._profile.reset(self.template, settings)

    # Sequences

    def poke(self) -> None:
        """Begin a sequence if enough clients wait for it."""
        if self.destroyed is not None or self._leaving or not self._is_quorate():
            return
        sequence = self.sequence or self._launch()
        if not (sequence.begun or sequence.is_ending or self._drop_stale()):
            self.template = self._profile.after_trial(self.template)
            sequence.begun = True
            for player in self.players.values():
                player.begin()

    def _is_quorate(self) -> bool:
        waiting = sum(player.awaits is Awaits.FIRST for player in self.players.values())
        wanted = self.template.start_when
        if wanted == "all":
            return waiting == len(self.players)
        return waiting >= (1 if wanted == "first" else int(wanted))

    def _launch(self) -> _Sequence:
        """Start a trial. Nothing is told of it before the next checkpoint."""
        self._number += 1
        template = self.template
        params = self._profile.trial(template, self.name)
        sequence_round = Round(
            self._caller.opener(),
            self._nursery.start_soon,
            [player.take_seat(template) for player in self.players.values()],
            user_id=USER_ID,
            host=self._host,
            end_trial=self._caller.end_trial,
            on_started=self._on_started,
            on_ending=self._on_ending,
            on_over=self._on_over,
        )
        self.sequence = sequence = _Sequence(sequence_round, template)
        sequence_round.start_nowait(params, self._trial_ids())
        return sequence

    def _trial_ids(self) -> Iterator[str]:
        name = f"{self.name}.{self._number}"
        yield name
        for _ in range(_ATTEMPTS - 1):
            yield f"{name}-{self._host.new_id()[:8]}"

    def _on_started(self) -> None:
        assert self.sequence is not None
        for player in self.players.values():
            if player.record is not None:
                player.record.begin(self.sequence.round.trial_id)

    def _on_ending(self) -> None:
        """Let the trial come to its last tick, which is the next one."""
        for player in self.players.values():
            if not player.playing:
                player.play_default()

    def _on_over(self) -> None:
        assert self.sequence is not None
        failure = self.sequence.round.failure
        if failure is not None:
            self.fail(not_started(failure))
        self.sequence = None
        self.settled()
        self.poke()

    def _drop_stale(self) -> bool:
        """End a trial that waits to be a sequence, if settings have changed since it was started."""
        sequence = self.sequence
        if sequence is None or sequence.begun or sequence.template is self.template:
            return False
        self._end()
        return True

    def withdraw(self, player: Player, *, out: bool = True, vacate: bool = False) -> None:
        """Let no client play for an actor; without any client the trial ends.

        Args:
            player: the actor.
            out: its client does not come back before the next trial.
            vacate: the actor leaves the trial; otherwise its default action is played.
        """
        player.playing = False
        sequence, seat = self.sequence, player.seat
        if sequence is None or seat is None:
            return
        player.out = player.out or out
        if sequence.begun and not any(each.playing for each in self.players.values()):
            self._end()
        if vacate:
            seat.leave()
        elif sequence.begun:
            player.play_default()

    def _end(self) -> None:
        """Ask for the end of the trial: an orderly one first, unless nobody has acted yet."""
        sequence = self.sequence
        if sequence is not None and not sequence.round.end_asked:
            sequence.round.end(hard=not sequence.begun, patience=self._config.leave_seconds)

    def fail(self, error: Exception) -> None:
        """End the trial: nobody can go on with it, for this reason."""
        sequence = self.sequence
        assert sequence is not None
        sequence.failure = error
        sequence.round.end(hard=True)
        for player in self.players.values():
            if player.record is not None:
                player.record.last_error = str(error)
            if player.awaits is not None:
                player.refuse(error)
            # Whoever is to act still plays: to the end of the trial, of which the next step tells.
        self.settled()

    # Of the trial, for players

    @property
    def has_begun(self) -> bool:
        """Whether clients play in the trial; before that it waits with its first observations."""
        return self.sequence is not None and self.sequence.begun

    @property
    def end_asked(self) -> bool:
        """Whether the gateway itself has asked for the end of the trial."""
        return self.sequence is not None and self.sequence.round.end_asked

    @property
    def is_asking(self) -> bool:
        """Whether it has, and the orchestrator has not confirmed it."""
        return self.sequence is not None and self.sequence.round.is_asking

    @property
    def has_started(self) -> bool:
        """Whether the trial could be started."""
        return self.sequence is not None and bool(self.sequence.round.trial_id)

    def why_ended(self, seat: Seat) -> str:
        """Return why the trial is over for a seat, as far as somebody has said so."""
        failure = None if self.sequence is None else self.sequence.failure
        return seat.details if failure is None else str(failure)

    def why_not_begun(self, seat: Seat) -> Exception:
        """Return the error for a client that waits for a trial which has ended before it began."""
        if seat.error is not None and not isinstance(seat.error, CogmentError):
            return seat.error
        assert self.sequence is not None
        return self.sequence.round.why_not_begun(seat)


async def _unused(
    joined: AsyncValue[int], idle_seconds: float, connections: AsyncValue[int], abandoned_seconds: float
) -> str:
    """Wait until a world is of no use to anybody; return why."""
    reasons: list[str] = []

    async def idle() -> None:
        await joined.wait_value(0, held_for=idle_seconds)
        reasons.append(f"nobody had joined it for {idle_seconds:g} s")

    async def abandoned() -> None:
        with compose_values(joined=joined, present=connections) as there:
            await there.wait_value(lambda there: not (there.joined or there.present), held_for=abandoned_seconds)
        reasons.append("whoever had created it has left, and nobody had joined it")

    await wait_any(idle, abandoned)
    return reasons[0]


def _too_long(world: World, player: Player, seconds: float, awaited: str) -> RpcError:
    """Return the error for a request that has waited too long."""
    text = f"{world}, actor {player.name!r}: waited {seconds:g} s for {awaited}"
    return RpcError(StatusCode.DEADLINE_EXCEEDED, text)


def is_truncation(payload: AnyMessage) -> bool:
    """Whether a message of an environment says that the episode is cut off: a Struct with `"truncated": true`."""
    found = Struct()
    try:
        return payload.Unpack(found) and found.fields["truncated"].bool_value
    except DecodeError:
        return False
