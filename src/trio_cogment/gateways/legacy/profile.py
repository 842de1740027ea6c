"""Profile of a project: all that the legacy API needs to know of it, and today's API does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.legacy.deltas import ApplyDelta
from trio_cogment.sdk.spec import Spec

OnAgentError: TypeAlias = Literal["fail", "empty"]
ON_AGENT_ERROR: Sequence[str] = get_args(OnAgentError)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyProfile:
    """A project of the legacy API; `profile_file.load_profile` reads it from the project's file.

    Attributes:
        classes: the names of the actor classes, in the order in which the old programs have them: ids depend on it.
        deltas: how deltas are applied, by class. A delta of another class is an error.
        clients: the names of the actors that clients play.
        names: for classes, the names of their actors, where the parameters give none.
        reward_every_tick: old agents get a reward for each tick, 0 if there is none.
        on_agent_error: what becomes of an agent that fails to decide: "fail" takes it out of the trial, "empty" lets it
            act with an empty message and go on.
        call_timeout_seconds: how long an old server may take to answer; 0: as long as it takes.
        end_timeout_seconds: how long it may take to learn that a trial is over.
        params: of trials that are started without any.
        pre_trial_hooks: endpoints of the hooks of such trials; a platform has them in its configuration, and a gateway
            in front of another orchestrator asks them when it is asked itself.
        datalog: the endpoint of the old data log of trials whose data log is a gateway in front of another
            orchestrator; empty if there is none.
        spec: the types of the project.

    Raises:
        InvalidArgumentError: a class is there twice, a rule is for a class that there is not, or a value makes no
            sense.
    """

    classes: tuple[str, ...]
    deltas: Mapping[str, ApplyDelta] = field(default_factory=dict)
    clients: tuple[str, ...] = ()
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    reward_every_tick: bool = False
    on_agent_error: OnAgentError = "fail"
    call_timeout_seconds: float = 0.0
    end_timeout_seconds: float = 5.0
    params: TrialParams | None = None
    pre_trial_hooks: tuple[str, ...] = ()
    datalog: str = ""
    spec: Spec = field(default_factory=Spec)

    def __post_init__(self) -> None:
        if not self.classes:
            raise InvalidArgumentError("classes: expected at least one actor class, got none")
        if len(set(self.classes)) != len(self.classes):
            raise InvalidArgumentError(f"classes: expected each class once, got {', '.join(map(repr, self.classes))}")
        for what, by_class in (("deltas", self.deltas), ("names", self.names)):
            for name in by_class:
                if name not in self.classes:
                    known = ", ".join(map(repr, self.classes))
                    raise InvalidArgumentError(f"{what}: expected actor classes ({known}), got {name!r}")
        if self.on_agent_error not in ON_AGENT_ERROR:
            expected = " or ".join(map(repr, ON_AGENT_ERROR))
            raise InvalidArgumentError(f"on_agent_error: expected {expected}, got {self.on_agent_error!r}")
        for what, seconds in (
            ("call_timeout_seconds", self.call_timeout_seconds),
            ("end_timeout_seconds", self.end_timeout_seconds),
        ):
            if not 0 <= seconds < float("inf"):
                raise InvalidArgumentError(f"{what}: expected seconds, 0 or more, got {seconds}")
