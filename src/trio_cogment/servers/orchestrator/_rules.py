"""Rules of trials: the settings of an orchestrator as their machines take them."""

from __future__ import annotations

from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.trial import MAX_HELD_BYTES, MAX_HELD_MESSAGES, TrialRules


def rules_of(config: OrchestratorConfig) -> TrialRules:
    """Return what the settings mean to the machine of a trial."""
    return TrialRules(
        soft_end_patience_seconds=config.soft_end_patience_seconds,
        environment_init_timeout_seconds=config.environment_init_timeout_seconds,
        environment_ack_timeout_seconds=config.environment_ack_timeout_seconds,
        actor_ack_timeout_seconds=config.actor_ack_timeout_seconds,
        heartbeat_seconds=config.heartbeat_seconds,
        # What waits for a participant fills its outbox at once when it comes, and must not overflow it; half of the
        # bytes are left for what it is sent besides.
        max_held_messages=min(MAX_HELD_MESSAGES, config.max_outbox_messages),
        max_held_bytes=min(MAX_HELD_BYTES, config.max_outbox_bytes // 2),
        max_said_bytes_per_tick=config.max_tick_messages_bytes,
        max_held_back_bytes=config.max_held_back_bytes,
    )
