"""The streams of all the participants of one trial."""

from __future__ import annotations

from collections.abc import Sequence

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.config import OrchestratorConfig
from trio_cogment.orchestrator._connections import Connections, Target
from trio_cogment.orchestrator._participant import OUTBOX_MESSAGES_PER_PARTICIPANT, Feed, Link, OutboxLimits, Spawn
from trio_cogment.rpc import methods_of
from trio_cogment.services import SERVICES, ServiceKind
from trio_cogment.trial import ENVIRONMENT

RUN_ACTOR = methods_of(SERVICES[ServiceKind.ACTOR].descriptor())["RunTrial"]
RUN_ENVIRONMENT = methods_of(SERVICES[ServiceKind.ENVIRONMENT].descriptor())["RunTrial"]


class Links(dict[int, Link]):
    """A trial's links by participant.

    Args:
        trial_id: goes out as metadata, and into logs.
        config: limits and timeouts.
        feed: takes the machine's inputs.
        spawn: starts a task of the trial.
    """

    def __init__(self, trial_id: str, config: OrchestratorConfig, feed: Feed, spawn: Spawn) -> None:
        super().__init__()
        self._trial_id = trial_id
        self._config = config
        self._feed = feed
        self._spawn = spawn
        self._targets: dict[int, Target | None] = {}
        self._paused = False

    def prepare(self, params: TrialParams, targets: Sequence[Target | None], environment: Target) -> None:
        """Make a link to everybody: actors in order (None for client actors), and the environment."""
        self._targets = {**dict(enumerate(targets)), ENVIRONMENT: environment}
        names = {**{i: actor.name for i, actor in enumerate(params.actors)}, ENVIRONMENT: params.environment.name}
        limits = OutboxLimits(
            max(self._config.max_outbox_messages, OUTBOX_MESSAGES_PER_PARTICIPANT * len(names)),
            self._config.max_outbox_bytes,
        )
        for index, name in names.items():
            self[index] = Link(index, name, self._feed, self._spawn, limits)

    def connect(self, index: int, connections: Connections) -> None:
        """Begin to open the stream to a service actor or the environment."""
        link, target = self[index], self._targets[index]
        assert target is not None
        method = RUN_ENVIRONMENT if index == ENVIRONMENT else RUN_ACTOR
        farewell = self._config.farewell_seconds
        self._spawn(link.hold, link.name, connections, target, method, self._trial_id, farewell)

    @property
    def queued_messages(self) -> int:
        """How many messages wait for participants that do not read fast enough."""
        return sum(link.queued_messages for link in self.values())

    @property
    def longest_queue(self) -> int:
        """How many of them wait for one participant, the one with the most."""
        return max((link.queued_messages for link in self.values()), default=0)

    @property
    def max_queued_messages(self) -> int:
        """How many may wait for one participant."""
        return max((link.max_queued_messages for link in self.values()), default=0)

    def pause(self) -> None:
        """Take no messages from anybody."""
        self._paused = True
        for link in self.values():
            link.pause()

    def resume(self) -> None:
        """Take messages again."""
        self._paused = False
        for link in self.values():
            link.resume()
            if self._paused:
                return  # what waited on this link was enough for another pause

    def release(self) -> None:
        """Forget everybody; the trial is over."""
        self.clear()
        self._targets.clear()
