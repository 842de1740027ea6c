"""The types of trials whose environment is one of the field's: all actors are of one class and share two messages."""

from __future__ import annotations

from trio_cogment.api import rl_pb2, spaces_pb2
from trio_cogment.sdk.spec import ActorClass, Spec

#: The class of all actors; cogment-lab's has this name too.
PLAYER = "player"
#: The implementation of an actor whose seat is a person's, which may go on with `:` and a name.
HUMAN = "human"
#: The property of a trial that names the policy of an actor: `policy.player_1` may be `rps@3`.
POLICY_PROPERTY = "policy."

RL_SPEC = Spec.of(
    ActorClass(PLAYER, observation=spaces_pb2.Observation, action=spaces_pb2.Action),
    environment_config=rl_pb2.EnvironmentConfig,
)
