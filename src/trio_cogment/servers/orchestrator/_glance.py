"""A glance at a trial: so cheap that it can be taken several times a second."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

from trio_cogment.api.common_pb2 import ActorParams, EnvironmentParams, TrialState
from trio_cogment.servers.orchestrator._participant_stream import ParticipantStream
from trio_cogment.trial import ENVIRONMENT, TrialMachine

_PENDING = TrialState.PENDING
_RUNNING = TrialState.RUNNING


class ParticipantGlance(NamedTuple):
    """A participant of a trial at a moment.

    Attributes:
        name: in the trial.
        actor_class: of an actor; empty for the environment.
        endpoint, implementation: from the parameters.
        present: it takes part: it came, and was not lost.
        gone: it is out for good.
        stream: where its stream is.
        silent_seconds: since it has sent something; 0 before it came.
        unanswered_heartbeats: how many there are.
        queued_messages: how many messages it has not taken.
        awaited: the trial waits for it now.
    """

    name: str
    actor_class: str
    endpoint: str
    implementation: str
    present: bool
    gone: bool
    stream: str
    silent_seconds: float
    unanswered_heartbeats: int
    queued_messages: int
    awaited: bool


class Glance(NamedTuple):
    """A trial at a moment.

    Attributes:
        trial_id, owner, user_id: whose it is.
        state: a `TrialState`.
        tick: that it is at.
        seconds: how long it lasts, or lasted.
        environment: its name.
        actors: how many.
        awaited: the names of those whom it waits for; see `awaited_of`. Nobody, while it waits for its data log.
        queued_messages, queued_samples: what waits in it.
        lost_samples: how many did not reach its data log, so far.
        datalog_trouble: why its data log takes no samples now; empty: it does.
        waits_for_datalog: it waits for that now.
        participants: each of them, the environment first, if that was asked for and they are known.
    """

    trial_id: str
    owner: str
    user_id: str
    state: int
    tick: int
    seconds: float
    environment: str
    actors: int
    awaited: tuple[str, ...]
    queued_messages: int
    queued_samples: int
    lost_samples: int
    datalog_trouble: str
    waits_for_datalog: bool
    participants: tuple[ParticipantGlance, ...]


def glance(
    machine: TrialMachine,
    *,
    owner: str,
    user_id: str,
    seconds: float,
    now: float,
    queued_messages: int,
    queued_samples: int,
    lost_samples: int,
    datalog_trouble: str,
    waits_for_datalog: bool,
    streams: Mapping[int, ParticipantStream] | None,
) -> Glance:
    """Look at a trial.

    Args:
        machine: of the trial.
        owner: see `Glance`.
        user_id: likewise.
        seconds: likewise.
        queued_messages: likewise.
        queued_samples: likewise.
        lost_samples: likewise.
        datalog_trouble: likewise.
        waits_for_datalog: likewise.
        now: the trial's time.
        streams: of the participants; None: these are not looked at.
    """
    awaited = () if waits_for_datalog else awaited_of(machine)
    return Glance(
        machine.trial_id,
        owner,
        user_id,
        machine.state,
        max(0, machine.tick_id),
        seconds,
        machine.environment_name,
        len(machine.actors),
        awaited,
        queued_messages,
        queued_samples,
        lost_samples,
        datalog_trouble,
        waits_for_datalog,
        () if streams is None else _participants(machine, streams, awaited, now),
    )


def awaited_of(machine: TrialMachine) -> tuple[str, ...]:
    """Return the names of those whom a trial waits for now: to come, while it is PENDING; to act, while it runs."""
    if machine.state == _PENDING:
        missing = machine.unsettled
    elif machine.state == _RUNNING:
        missing = machine.awaited
    else:
        return ()
    # When all actors have come, or acted, it is the environment's turn.
    names = tuple(machine.actors[index].name for index in sorted(missing))
    return names or (machine.environment_name,)


def _participants(
    machine: TrialMachine, streams: Mapping[int, ParticipantStream], awaited: tuple[str, ...], now: float
) -> tuple[ParticipantGlance, ...]:
    if machine.params is None:
        return ()
    found = []
    given: list[EnvironmentParams | ActorParams] = [machine.params.environment, *machine.params.actors]
    # Of an ended trial less is remembered.
    for one, params in zip_longest([machine.environment, *machine.actors], given):
        is_actor = one.index != ENVIRONMENT
        stream = streams.get(one.index)
        found.append(
            ParticipantGlance(
                one.name,
                machine.actors[one.index].actor_class if is_actor else "",
                "" if params is None else params.endpoint,
                "" if params is None else params.implementation,
                one.present,
                is_actor and machine.actors[one.index].gone,
                one.state.name,
                max(0.0, now - one.heard_at) if one.present and not machine.is_over else 0.0,
                one.unanswered_heartbeats,
                0 if stream is None else stream.queued_messages,
                one.name in awaited,
            )
        )
    return tuple(found)
