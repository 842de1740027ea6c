"""Templates of worlds: what the trials of a world are, and the rules by which its clients play."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from trio_cogment.api.common_pb2 import ActorParams, TrialParams
from trio_cogment.base.endpoints import CLIENT, DISCOVER, is_client_endpoint, parse_endpoint
from trio_cogment.base.errors import EndpointError, InvalidArgumentError
from trio_cogment.base.suggestions import with_suggestion
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import ClassMapping

OnLeave: TypeAlias = Literal["end", "autopilot", "vacate"]
Reset: TypeAlias = Literal["wait", "world"]
Destroy: TypeAlias = Literal["refuse", "force"]
RewardMode: TypeAlias = Literal["sum", "last", "weighted"]

#: The policies that are one of some words, and those that are seconds.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "on_leave": get_args(OnLeave),
    "reset": get_args(Reset),
    "destroy": get_args(Destroy),
    "reward_mode": get_args(RewardMode),
}
SECONDS = ("step_timeout_seconds", "reset_world_timeout_seconds", "world_idle_seconds")
FLAGS = ("expose_discount", "require_actions", "presence")
POLICIES = ("start_when", *CHOICES, *SECONDS, *FLAGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldTemplate:
    """What the trials of a world are, and its policies.

    The parts that clients take are the slots: the actors whose endpoint is `cogment://client`, but for `other_clients`.

    Attributes:
        params: of the trials.
        classes: how the payloads of actor classes become tensors, by class; see `mappings`.
        start_when: which slots must have made their first step before a sequence starts: "all", "first" (any one), or
            how many. The others take part when they come, if they are optional in `params`.
        on_leave: what becomes of the trial when a client leaves: "end" ends it; with "autopilot" the slot's default
            action is played; with "vacate" the actor leaves the trial.
        reset: what a Reset does to a trial that has other clients: "wait" plays the default action for the slot until
            the trial ends; "world" ends the trial for everybody.
        destroy: whether DestroyWorld is carried out while others have joined: "refuse" or "force".
        step_timeout_seconds: how long a step may take, and a reset and joining that wait for the trial; 0: as
            long as it takes.
        reset_world_timeout_seconds: how long a ResetWorld waits for the others' steps.
        world_idle_seconds: how long a world is kept that nobody has joined; 0: forever.
        reward_mode: which of the rewards since the last reply is the observation `reward`: their "sum", the "last" one,
            or their mean "weighted" by their confidences.
        expose_discount: there is an observation `discount`.
        require_actions: a step without an action is refused; otherwise what it leaves out has protobuf's defaults.
        presence: fields that may be absent have an observation that says whether they are there.
        other_clients: the names of client actors that are not slots: clients of Cogment join the trials as them.
        name: of the world; empty: the gateway chooses one.
        seed: of the next sequence, as a setting gave it.

    Raises:
        InvalidArgumentError: a policy makes no sense, or the trials have no slot.
    """

    params: TrialParams
    classes: Mapping[str, ClassMapping] = field(default_factory=dict)
    start_when: int | Literal["all", "first"] = "all"
    on_leave: OnLeave = "end"
    reset: Reset = "wait"
    destroy: Destroy = "refuse"
    step_timeout_seconds: float = 0.0
    reset_world_timeout_seconds: float = 60.0
    world_idle_seconds: float = 3600.0
    reward_mode: RewardMode = "sum"
    expose_discount: bool = False
    require_actions: bool = False
    presence: bool = False
    other_clients: Collection[str] = ()
    name: str = ""
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise InvalidArgumentError(f"{name}: expected one of {', '.join(choices)}; got {value!r}")
        for name in SECONDS:
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidArgumentError(f"{name}: expected seconds, 0 or more; got {getattr(self, name)!r}")
        clients = [actor.name for actor in self.params.actors if is_client_endpoint(actor.endpoint)]
        for name in self.other_clients:
            if name not in clients:
                known = ", ".join(map(repr, clients)) or "none"
                raise InvalidArgumentError(f"other_clients: expected some of {known}; got {name!r}")
        self._check_endpoints()
        if not self.slots:
            more = " that is not among other_clients" if self.other_clients else ""
            raise InvalidArgumentError(f"params: expected an actor with the endpoint cogment://client{more}, got none")
        if self.start_when not in ("all", "first") and self.start_when not in range(1, len(self.slots) + 1):
            raise InvalidArgumentError(
                f"start_when: expected 'all', 'first' or 1 to {len(self.slots)}, got {self.start_when!r}"
            )

    def _check_endpoints(self) -> None:
        """Refuse an endpoint `cogment://` that means nothing; the orchestrator judges the others."""
        for actor in self.params.actors:
            if not actor.endpoint.strip().lower().startswith("cogment://"):
                continue
            try:
                parse_endpoint(actor.endpoint, field_name=f"params: actor {actor.name!r}: endpoint")
            except EndpointError as error:
                text = with_suggestion(str(error), actor.endpoint, (CLIENT, DISCOVER))
                raise InvalidArgumentError(text) from None

    @property
    def slots(self) -> dict[str, ActorParams]:
        """The actors that clients of the gateway may be, by their names."""
        return {
            actor.name: actor
            for actor in self.params.actors
            if is_client_endpoint(actor.endpoint) and actor.name not in self.other_clients
        }
