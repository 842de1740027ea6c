"""Counts that some runs must come to: taken from the history, declared here, and missed when no run does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from tests.models.runs import FAULTY
from tests.sim.services import FILES, ORCHESTRATORS, SERVICE_SUITES
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.testing import LEAST_ACK_SECONDS, History, Misbehaviour, World

_NOT_COUNTED = FAULTY.keys() | ORCHESTRATORS.keys() | FILES.keys()
#: What must be reached, and within how many seeds: a run over this many or more in which it never is has failed.
DECLARED: Mapping[str, int] = {
    **dict.fromkeys(
        (
            "hard end in INITIALIZING", "hard end in PENDING", "hard end in RUNNING", "hard end in TERMINATING",
            "soft end with a lost actor", "LAST_ACK timeout", "watcher overflow", "fsync failure, then recovery",
            "duplicate id race lost", "GOAWAY with calls in flight", "host cancelled during a farewell",
            "END with details", "END without", "a data log complete", "a default action", "an actor lost",
            "an actor unavailable", "ended from INITIALIZING", "ended from PENDING", "ended from RUNNING",
            "ended from TERMINATING", "participants in process", "start refused",
            "fault: crash", "fault: dark", "fault: disk", "fault: drain", "fault: idle watcher", "fault: partition",
            "fault: reset", "fault: start again", "fault: terminate",
            *(f"{kind}: {what.value}" for kind in ("actor", "environment") for what in Misbehaviour),
        ),
        300,
    ),
    # That the others have their seeds follows from the numbers alone (`test_every_suite_has_its_seeds`).
    **dict.fromkeys((name for name in SERVICE_SUITES if name not in _NOT_COUNTED), 300),
    **dict.fromkeys(
        (
            *(f"registry: {what}" for what in ("crash", "interrupted", "power loss")),
            *(f"registry with a storage that fails: store error {what}" for what in ("after", "before")),
            *(f"datastore in process: store {what}" for what in ("delay", "error after", "error before")),
            *(f"datastore over a network: {what}" for what in ("crash", "partition", "reset", "store")),
            *(
                f"directory in trouble: {fault} of {name}"
                for fault in ("crash", "dark", "partition", "power", "reset")
                for name in ("directory", "one", "two", "three")
            ),
        ),
        3000,
    ),
    **dict.fromkeys((f"hook: {what}" for what in ("crash", "deaf", "silent", "slow", "vanish", "wrong tick")), 3000),
    **dict.fromkeys((f"datalog: {what}" for what in ("crash", "deaf", "never ack", "silent", "slow", "vanish")), 3000),
}  # fmt: skip


def missing(reached: Mapping[str, int], seeds: int) -> list[str]:
    """Return what was declared for this many seeds, and not reached in any."""
    return [name for name, within in DECLARED.items() if seeds >= within and not reached.get(name)]


def note_what_happened(world: World) -> None:
    """Count what the history shows."""
    history = world.history
    _count_states(world)
    for event in history:
        if event.what == "end":
            world.sometimes("END with details" if event.details["details"] else "END without")
        elif event.what == "actions" and event.details["unavailable"]:
            world.sometimes("an actor unavailable")
        elif event.what == "actions" and "default" in event.details["contents"].values():
            world.sometimes("a default action")
        elif event.what == "not stored":
            world.sometimes("fault: disk")
        elif event.what == "complete":
            world.sometimes("a data log complete")
        elif event.what == "closed" and event.who.startswith("actor"):
            world.counters["an actor lost"] += event.details["outcome"] not in ("left", "cancelled")
    _count_late_acks(world)
    _count_lost_actors(world)
    if world.counters["watcher that does not read: RESOURCE_EXHAUSTED"]:
        world.sometimes("watcher overflow")
    _count_recoveries(world, history)


def _count_states(world: World) -> None:
    newest: dict[str, tuple[int, float]] = {}
    for event in world.history:
        if event.what == "state" and event.who == "near":
            before, since = newest.get(event.trial_id, (0, 0.0))
            state = event.details["state"]
            newest[event.trial_id] = state, event.seconds
            if state == TrialState.ENDED and before:
                # A hard end of a running trial announces both in one step.
                at_once = before == TrialState.TERMINATING and event.seconds == since
                world.sometimes(f"ended from {'RUNNING' if at_once else TrialState.Name(before)}")


def _count_late_acks(world: World) -> None:
    """Count the orderly ends that had to wait for an acknowledgement that never came."""
    showed: dict[str, float] = {}
    for event in world.history:
        if event.what == "showed":
            showed[event.trial_id] = event.seconds
        elif event.what == "end" and not event.details["details"]:
            waited = event.seconds - showed.get(event.trial_id, event.seconds)
            if waited > LEAST_ACK_SECONDS:
                world.sometimes("LAST_ACK timeout")


def _count_lost_actors(world: World) -> None:
    """Count the orderly ends of environments some of whose actors had gone without an end."""
    ends: dict[str, set[str]] = defaultdict(set)
    gone: Counter[str] = Counter()
    for event in world.history:
        if event.what == "end" and event.who.startswith("actor"):
            ends[event.trial_id].add(event.who)
        elif event.what == "closed" and event.who.startswith("actor") and event.who not in ends[event.trial_id]:
            gone[event.trial_id] += 1
        elif event.what == "end" and event.who.startswith("environment") and not event.details["details"]:
            world.counters["soft end with a lost actor"] += min(gone[event.trial_id], 1)


def _count_recoveries(world: World, history: History) -> None:
    """Count the data logs that stored a sample after a sync had failed."""
    failed: set[str] = set()
    for event in history:
        if event.what == "not stored" and event.details["error"] == "Input/output error":
            failed.add(event.trial_id)
        elif event.what == "stored" and event.trial_id in failed:
            failed.remove(event.trial_id)
            world.sometimes("fsync failure, then recovery")
