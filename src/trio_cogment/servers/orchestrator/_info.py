"""The information that a trial gives about itself."""

from __future__ import annotations

from trio_cogment.api.common_pb2 import EndOfTrial, TrialActor, TrialParams, TrialState
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.base.errors import CogmentError, InvalidArgumentError, RpcError
from trio_cogment.base.shared_message import SharedObservationSet
from trio_cogment.servers.orchestrator._glance import awaited_of
from trio_cogment.trial import TrialMachine

_NANOSECONDS = 1_000_000_000


def check_describable(params: TrialParams, max_properties_bytes: int) -> None:
    """Raise InvalidArgumentError for properties that are too large to be in every description of their trial."""
    if not params.properties:
        return
    size = sum(len(name.encode()) + len(value.encode()) for name, value in params.properties.items())
    if size > max_properties_bytes:
        raise InvalidArgumentError(
            f"properties: {size} bytes, at most {max_properties_bytes} were expected; a config may be larger"
        )


def describe(
    machine: TrialMachine,
    seconds: float,
    *,
    latest_observation: bool,
    actors: bool,
    end: EndOfTrial | None,
) -> TrialInfo:
    """Describe a trial that has run for some seconds, and how it ended."""
    info = TrialInfo(
        trial_id=machine.trial_id,
        state=machine.state,
        env_name=machine.environment_name,
        tick_id=max(0, machine.tick_id),
        trial_duration=max(0, round(seconds * _NANOSECONDS)),
        properties=machine.params.properties if machine.params is not None else None,
    )
    if machine.tick_hz:
        info.tick_rate.hz = machine.tick_hz
        info.tick_rate.missed_ticks = machine.missed_ticks
        info.tick_rate.late_actions = machine.late_actions
        info.tick_rate.absent_actions = machine.absent_actions
    if end is not None:
        info.end.CopyFrom(end)
    latest = machine.latest_observation if latest_observation else None
    if isinstance(latest, SharedObservationSet):
        latest.fill(info.latest_observation)
    elif latest is not None:
        info.latest_observation.CopyFrom(latest)
    if actors and machine.state >= TrialState.PENDING:
        info.actors_in_trial.extend(
            TrialActor(name=actor.name, actor_class=actor.actor_class) for actor in machine.actors
        )
        info.awaited.extend(awaited_of(machine))
    return info


def error_of_trial(trial_id: str, error: CogmentError) -> CogmentError:
    """Return an error of the same kind whose text begins with the trial; the one given may be shared by several."""
    prefix = f"trial {trial_id!r}: "
    if isinstance(error, RpcError):
        return RpcError(error.code, prefix + error.message, error.trailing_metadata)
    return type(error)(f"{prefix}{error}")
