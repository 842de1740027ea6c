"""Metrics of participants and of the model registry's client, with the names and labels of the published SDK."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary

from trio_cogment.base.metrics import SessionMetrics


class PrometheusParticipantMetrics:
    """Metrics for `Participants(metrics=...)` and `ModelRegistryClient(metrics=...)`; see `ParticipantMetrics`.

    Args:
        registry: the registry to register with; one of its own by default, so that two of these do not clash.

    Attributes:
        registry: the registry, for `metrics.endpoint.serve_metrics`.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = found = CollectorRegistry() if registry is None else registry
        by_name, by_implementation = ("name", "impl_name"), ("impl_name",)
        self._actor_seconds = Summary(
            "actor_decide_processing_seconds", "From an actor's start in a trial to its return", by_name, registry=found
        )
        self._actor_counts = (
            Counter("actor_started", "Actors that started in a trial", by_implementation, registry=found),
            Counter("actor_ended", "Actors that ended in a trial", by_implementation, registry=found),
        )
        self._actor_messages = Counter("actor_received_messages", "Messages received", by_name, registry=found)
        self._actor_reward_sum = Gauge("actor_reward_summation", "Sum of the rewards received", by_name, registry=found)
        self._actor_reward_count = Counter("actor_rewards_count", "Rewards received", by_name, registry=found)
        self._ticks = Summary(
            "environment_update_count_per_trial", "Ticks of a trial", by_implementation, registry=found
        )
        # The label's name is the published SDK's; its value is the implementation.
        self._trial_seconds = Summary(
            "environment_trial_duration_in_second",
            "From an environment's start in a trial to its return",
            ("trial_actor",),
            registry=found,
        )
        self._trial_counts = (
            Counter("environment_trials_started", "Trials that started", by_implementation, registry=found),
            Counter("environment_trials_ended", "Trials that ended", by_implementation, registry=found),
        )
        self._environment_messages = (
            Counter("environment_received_messages", "Messages received", by_implementation, registry=found),
            Counter("environment_sent_messages", "Messages sent", by_implementation, registry=found),
        )
        self._published = Summary(
            "model_registry_publish_version_seconds", "Sending a version of a model", ("model_id",), registry=found
        )
        self._retrieved = Summary(
            "model_registry_retrieve_version_seconds",
            "Retrieving a version of a model",
            ("model_id", "cached"),
            registry=found,
        )

    def actor_started(self, name: str, implementation: str) -> SessionMetrics:
        """See `ParticipantMetrics.actor_started`."""
        return _Actor(self, name, implementation)

    def environment_started(self, implementation: str) -> SessionMetrics:
        """See `ParticipantMetrics.environment_started`."""
        return _Environment(self, implementation)

    def model_published(self, name: str, seconds: float) -> None:
        """See `ModelMetrics.model_published`."""
        self._published.labels(name).observe(seconds)

    def model_retrieved(self, name: str, seconds: float) -> None:
        """See `ModelMetrics.model_retrieved`."""
        self._retrieved.labels(name, False).observe(seconds)


class _Actor:
    def __init__(self, metrics: PrometheusParticipantMetrics, name: str, implementation: str) -> None:
        started, ended = metrics._actor_counts
        started.labels(implementation).inc()
        self._ended = ended.labels(implementation)
        self._seconds = metrics._actor_seconds.labels(name, implementation)
        self._messages = metrics._actor_messages.labels(name, implementation)
        self._rewards = metrics._actor_reward_count.labels(name, implementation)
        self._sum = metrics._actor_reward_sum.labels(name, implementation)

    def message_received(self) -> None:
        self._messages.inc()

    def message_sent(self) -> None:
        pass  # the published SDK does not count them

    def reward_received(self, value: float) -> None:
        self._rewards.inc()
        self._sum.inc(value)

    def ended(self, seconds: float, tick_id: int) -> None:
        self._seconds.observe(seconds)
        self._ended.inc()


class _Environment:
    def __init__(self, metrics: PrometheusParticipantMetrics, implementation: str) -> None:
        started, ended = metrics._trial_counts
        received, sent = metrics._environment_messages
        started.labels(implementation).inc()
        self._ended = ended.labels(implementation)
        self._seconds = metrics._trial_seconds.labels(implementation)
        self._ticks = metrics._ticks.labels(implementation)
        self._received = received.labels(implementation)
        self._sent = sent.labels(implementation)

    def message_received(self) -> None:
        self._received.inc()

    def message_sent(self) -> None:
        self._sent.inc()

    def reward_received(self, value: float) -> None:
        pass  # environments get no rewards

    def ended(self, seconds: float, tick_id: int) -> None:
        self._seconds.observe(seconds)
        self._ticks.observe(tick_id)
        self._ended.inc()
