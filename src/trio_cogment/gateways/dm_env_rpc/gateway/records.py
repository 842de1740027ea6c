"""Records of a player's trial for its client, besides observations: rewards, messages, and how to send some."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.common_pb2 import Message, RewardSource
from trio_cogment.base.rewards import RewardMean
from trio_cogment.gateways.dm_env_rpc.gateway.templates import RewardMode
from trio_cogment.sdk import RecvReward


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """How a client reaches the others in its trial.

    Attributes:
        message: sends a message to a participant.
        reward: sends a reward to an actor, for the current tick.
    """

    message: Callable[[str, AnyMessage], None]
    reward: Callable[[str, float], None]


class Reward(Protocol):
    """A reward, as the API or the SDK has it."""

    @property
    def tick_id(self) -> int:
        """The tick that it is for."""

    @property
    def sources(self) -> Iterable[RewardSource]:
        """Who has given it."""


@dataclass(slots=True, kw_only=True)
class PlayerRecord:
    """The trial of one player, as its client can see it; the properties are read from here.

    The gateway keeps it from JoinWorld to LeaveWorld, and writes the attributes when they change.

    Attributes:
        actor_name: of the player.
        actors: names and classes of everybody in the trial.
        environment_name: of the environment.
        trial_id: of the last trial; empty before the first.
        state: of the trial, by the name that it has in the API; empty before the first.
        tick: of the last observation.
        last_error: why the last trial could not start, or has ended early; empty if neither.
        sending: None while there is no trial.
        max_messages: the largest number of messages from others that are kept.
    """

    actor_name: str
    actors: Sequence[tuple[str, str]]
    environment_name: str
    trial_id: str = ""
    state: str = ""
    tick: int = 0
    last_error: str = ""
    sending: Sending | None = None
    max_messages: int = 256
    _sources: list[RewardSource] = field(default_factory=list)
    _late: int = 0
    _messages: deque[Message] = field(default_factory=deque)

    def begin(self, trial_id: str) -> None:
        """Take note of a new trial; messages of the one before are kept until they are read."""
        self.trial_id, self.state, self.tick, self.last_error = trial_id, "RUNNING", 0, ""
        self._late = 0
        self._sources.clear()

    def begin_step(self) -> None:
        """Forget the sources of rewards that the last reply was about."""
        self._sources.clear()

    def add_reward(self, reward: Reward) -> None:
        """Take note of a reward that has come."""
        self._late += reward.tick_id < self.tick
        self._sources += list(reward.sources)[: self.max_messages - len(self._sources)]

    def add_message(self, message: Message) -> None:
        """Take note of a message that has come; the oldest one is dropped if there are too many."""
        if len(self._messages) >= self.max_messages:
            self._messages.popleft()
        self._messages.append(message)

    @property
    def late_rewards(self) -> int:
        """How many of the trial's rewards have come for an earlier tick than that of the last observation."""
        return self._late

    @property
    def reward_sources(self) -> Sequence[RewardSource]:
        """The sources of the rewards since the last step."""
        return self._sources

    def drain_messages(self) -> Iterable[Message]:
        """Return the messages that have come, and keep them no longer."""
        found = list(self._messages)
        self._messages.clear()
        return found


class GatheredRewards:
    """The rewards of one player since its last reply as one number; however many come, only sums of them are kept.

    Args:
        mode: see `templates.WorldTemplate.reward_mode`.
    """

    def __init__(self, mode: RewardMode) -> None:
        self._mode = mode
        self.clear()

    def clear(self) -> None:
        """Forget them."""
        self._sum = self._last = 0.0
        self._mean = RewardMean()

    def add(self, reward: RecvReward) -> None:
        """Take note of one."""
        self._sum += reward.value
        self._last = reward.value
        for source in reward.sources:
            self._mean.add(source.value, source.confidence)

    def take(self) -> float:
        """Return the number, and forget them."""
        numbers: Mapping[RewardMode, float] = {"sum": self._sum, "last": self._last, "weighted": self._mean.value}
        self.clear()
        return numbers[self._mode]
