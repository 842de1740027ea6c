from __future__ import annotations

from trio_cogment.trial import ArmTimer, DisarmTimer, Note, Timer, TimerKind

from .harness import Play

TIMER = Timer(TimerKind.ACK, 0)


def test_something_ignored_is_told_once_per_participant_and_kind() -> None:
    machine = Play().start().machine
    machine.out = []
    for _ in range(3):
        for actor in machine.actors:
            machine.ignore(actor, "this", "it did this")
            machine.ignore(actor, "that", "it did that", "info")
    assert [(note.level, note.text.partition(":")[0]) for note in machine.out if isinstance(note, Note)] == [
        ("warning", "actor 'a'"),
        ("info", "actor 'a'"),
        ("warning", "actor 'b'"),
        ("info", "actor 'b'"),
    ]
    assert machine.counters == {"this": 6, "that": 6}


def test_timers() -> None:
    machine = Play().start().machine
    machine.out = []
    machine.now = 7.0
    machine.arm(TIMER, 0)
    machine.disarm(TIMER)
    assert machine.out == []
    machine.arm(TIMER, 1)
    # Armed again, its deadline moves.
    machine.arm(TIMER, 2)
    machine.disarm(TIMER)
    machine.disarm(TIMER)
    assert machine.out == [ArmTimer(TIMER, 8.0), ArmTimer(TIMER, 9.0), DisarmTimer(TIMER)]
