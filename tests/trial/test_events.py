from __future__ import annotations

import dataclasses

import pytest

from trio_cogment.base.config import OrchestratorConfig
from trio_cogment.trial import MAX_HELD_BYTES, MAX_HELD_MESSAGES, NO_PARTICIPANT, Timer, TimerKind, TrialRules


def test_the_rules_defaults() -> None:
    assert dataclasses.asdict(TrialRules()) == {
        "soft_end_patience_seconds": 120,
        "environment_init_timeout_seconds": 60,
        "environment_ack_timeout_seconds": 60,
        "actor_ack_timeout_seconds": 30,
        "heartbeat_seconds": 20,
        "max_held_messages": 256,
        "max_held_bytes": 8 * 2**20,
        "max_said_per_tick": 10_000,
        "max_said_bytes_per_tick": 64 * 2**20,
        "max_held_back_bytes": 16 * 2**20,
        "checkpoint_ticks": 0,
        "checkpoint_seconds": 0,
    }


def test_what_is_held_can_be_sent_at_once() -> None:
    config = OrchestratorConfig()
    assert config.max_outbox_messages >= MAX_HELD_MESSAGES
    assert config.max_outbox_bytes // 2 >= MAX_HELD_BYTES


def test_the_rules_are_shared_and_so_cannot_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrialRules().max_held_messages = 1  # type: ignore[misc]  # which is what is tested


def test_a_timer_is_its_name() -> None:
    assert Timer(TimerKind.ACK, 1) == Timer(TimerKind.ACK, 1)
    assert len({Timer(kind, index) for kind in TimerKind for index in (NO_PARTICIPANT, 0)}) == 2 * len(TimerKind)
