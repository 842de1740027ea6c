"""The settings of the application, as the generator of that time made them from a project file."""

from types import SimpleNamespace
from typing import Any

import cogment as _cog
import data_pb2
import old_deltas
from cogment.actor_class import ActorClassList
from cogment.delta_encoding import _apply_delta_replace
from cogment.env_service import ObservationProxy

protolib = "data_pb2"

_player_class = _cog.ActorClass(
    id="player",
    config_type=data_pb2.PlayerConfig,
    action_space=data_pb2.PlayerAction,
    observation_space=data_pb2.PlayerObservation,
    observation_delta=data_pb2.PlayerObservation,
    observation_delta_apply_fn=old_deltas.add,
    feedback_space=None,
    message_space=None,
)
_referee_class = _cog.ActorClass(
    id="referee",
    config_type=None,
    action_space=data_pb2.RefereeAction,
    observation_space=data_pb2.RefereeObservation,
    observation_delta=data_pb2.RefereeObservation,
    observation_delta_apply_fn=_apply_delta_replace,
    feedback_space=None,
    message_space=None,
)
actor_classes = ActorClassList(_player_class, _referee_class)
env_class = _cog.EnvClass(id="env", config_type=None, message_space=None)
trial = SimpleNamespace(config_type=data_pb2.TrialConfig)
environment = SimpleNamespace(config_type=data_pb2.FieldConfig)


class ActionsTable:
    """The actions of a tick, by class."""

    def __init__(self, trial: Any) -> None:
        self.player = [data_pb2.PlayerAction() for _ in range(trial.actor_counts[0])]
        self.referee = [data_pb2.RefereeAction() for _ in range(trial.actor_counts[1])]

    def all_actions(self) -> Any:
        return self.player + self.referee


class _Observation(ObservationProxy):
    def __init__(self, space: Any, delta: Any) -> None:
        self._types = space, delta

    @property
    def snapshot(self) -> Any:
        return self._get_snapshot(self._types[0])

    @property
    def delta(self) -> Any:
        return self._get_delta(self._types[1])


class ObservationsTable:
    """The observations of a tick, by class."""

    def __init__(self, actor_counts: Any) -> None:
        self.player, self.referee = (
            [_Observation(found.observation_space, found.observation_delta) for _ in range(count)]
            for found, count in zip(actor_classes, actor_counts, strict=True)
        )

    def all_observations(self) -> Any:
        return self.player + self.referee
