"""The machine's rules, from the orchestrator's settings."""

from __future__ import annotations

from trio_cogment.config import OrchestratorConfig
from trio_cogment.trial import TrialRules


def rules_of(config: OrchestratorConfig) -> TrialRules:
    """Return what the settings mean to the machine of a trial."""
    return TrialRules(
        soft_end_patience_seconds=config.soft_end_patience_seconds,
        environment_init_timeout_seconds=config.environment_init_timeout_seconds,
        environment_ack_timeout_seconds=config.environment_ack_timeout_seconds,
        actor_ack_timeout_seconds=config.actor_ack_timeout_seconds,
        heartbeat_seconds=config.heartbeat_seconds,
    )
