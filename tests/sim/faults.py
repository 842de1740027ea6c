"""The faults of the suites, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial

from trio_cogment.testing import Fault, FaultPlan, Misbehaviour
from trio_cogment.testing.fakes.datalog import DATALOGS_CANNOT
from trio_cogment.testing.fakes.participants import HOOKS_CANNOT

TRIALS = 4
MOST_TICKS = 12
#: Of the trial that has such a limit.
MOST_STEPS = 6
HOOKED = "trial-3"
STATES = ("INITIALIZING", "PENDING", "RUNNING", "TERMINATING")

Details = dict[str, str | int | float | bool | None]
Maker = Callable[[random.Random], Fault]


def draw_plan(seed: int, suite: str = "liveness") -> FaultPlan:
    """Draw what goes wrong in one run of a suite: for liveness in its first seconds, for safety more, until its end."""
    rng = random.Random(f"{seed}/{suite}/plan")
    until, count = (12.0, (0, 6)) if suite == "liveness" else (20.0, (2, 9))
    faults = list(FaultPlan.draw(rng, makers(until), count))
    if rng.random() < 0.05:  # one is enough, and it takes many steps
        faults.append(Fault("idle watcher", at=_when(rng, until)))
    if rng.random() < 0.05:
        faults.extend(_crowd(rng))
    return FaultPlan(tuple(_one_each(faults)))


def makers(until: float) -> list[Maker]:
    """Return what draws the faults of a plan, some of them at a time before `until`."""
    timed = (_reset, _dark, _partition, _crash, _terminate, _terminate, _again, _drain, _disk)
    return [*[_participant] * 5, _service_fault, *(partial(maker, until) for maker in timed)]


def _one_each(faults: list[Fault]) -> Iterable[Fault]:
    """Leave out whatever else somebody would do wrong: a participant misbehaves in one way, the last that was drawn."""
    return {
        fault.target if fault.name == "misbehaves" else number: fault for number, fault in enumerate(faults)
    }.values()


def _crowd(rng: random.Random) -> list[Fault]:
    """One who does not read, and one who has much to tell."""
    trial_id = _trial(rng)
    deaf, flood = Misbehaviour.DEAF.value, Misbehaviour.FLOOD.value
    return [
        Fault("misbehaves", target=f"{trial_id}/cat", details={"misbehaviour": deaf, "from_tick": rng.randint(0, 2)}),
        Fault("misbehaves", target=f"{trial_id}/bob", details={"misbehaviour": flood, "from_tick": 0, "count": 50}),
    ]


def has_deaf_log(plan: FaultPlan, trial_id: str) -> bool:
    """Tell whether the trial's data log reads nothing."""
    deaf = Misbehaviour.DEAF.value
    return any(one.target == f"{trial_id}/datalog" and one.details.get("misbehaviour") == deaf for one in plan)


def is_crowded(plan: FaultPlan) -> bool:
    """Tell whether somebody who is deaf has somebody who floods in its trial."""
    who = {
        kind: {fault.target.partition("/")[0] for fault in plan if fault.details.get("misbehaviour") == kind.value}
        for kind in (Misbehaviour.DEAF, Misbehaviour.FLOOD)
    }
    return bool(who[Misbehaviour.DEAF] & who[Misbehaviour.FLOOD])


def _when(rng: random.Random, until: float) -> float:
    return round(rng.uniform(0, until), 3)


def _trial(rng: random.Random) -> str:
    return f"trial-{rng.randrange(TRIALS)}"


def _participant(rng: random.Random) -> Fault:
    who = rng.choice(["ann", "bob", "cat", "env"])
    return _misbehaviour(rng, f"{_trial(rng)}/{who}")


def _service_fault(rng: random.Random) -> Fault:
    return _misbehaviour(rng, rng.choice([f"{_trial(rng)}/datalog", f"{HOOKED}/hook"]))


def _misbehaviour(rng: random.Random, target: str) -> Fault:
    cannot = {"datalog": DATALOGS_CANNOT, "hook": HOOKS_CANNOT}.get(target.partition("/")[2], frozenset())
    kind = rng.choice([kind for kind in Misbehaviour if kind not in cannot])
    details: Details = {
        "misbehaviour": kind.value,
        "from_tick": -1 if target.endswith("/hook") else rng.choice([-1, rng.randint(0, 6)]),
    }
    if kind is Misbehaviour.SLOW:
        details["seconds"] = rng.choice([0.5, 4.9, 5.1, 8.0, 40.0])
    if kind in (Misbehaviour.FLOOD, Misbehaviour.DUPLICATE):
        details["count"] = rng.choice([2, 5, 50])  # fewer than an outbox of the suites takes
    return Fault("misbehaves", target=target, details=details)


def _hit(name: str, until: float, rng: random.Random, **details: str | float | bool) -> Fault:
    """Let something happen to a host: to one that starts a trial, while it does so, which does not take long."""
    kind = rng.choice(["env", "actors", "client", "log", "control"])
    target = f"{kind}-{rng.randrange(TRIALS)}"
    if kind == "control":
        return Fault(name, target=target, details={**details, "after": rng.choice([0.003, 0.005, 0.01, 0.03])})
    return Fault(name, at=_when(rng, until), target=target, details={**details})


def _reset(until: float, rng: random.Random) -> Fault:
    return _hit("reset", until, rng)


def _dark(until: float, rng: random.Random) -> Fault:
    return _hit("dark", until, rng)


def _partition(until: float, rng: random.Random) -> Fault:
    return _hit("partition", until, rng, seconds=rng.choice([0.5, 4.0, 10.0, 30.0]))


def _crash(until: float, rng: random.Random) -> Fault:
    return _hit("crash", until, rng, power=rng.random() < 0.3)


def _terminate(until: float, rng: random.Random) -> Fault:
    """End a trial from outside: at a time, or hard as soon as it is in a state then."""
    details: Details = {"hard": rng.random() < 0.5}
    if rng.random() < 0.7:
        details = {"hard": True, "state": rng.choice(STATES), "after": rng.choice([0.0, 0.001, 0.01, 0.1])}
    at = 0.0 if details.get("state") in STATES[:2] else _when(rng, until)
    return Fault("terminate", at=at, target=_trial(rng), details=details)


def _again(until: float, rng: random.Random) -> Fault:
    at = rng.choice([0.0, _when(rng, until)])
    return Fault("start again", at=at, target=_trial(rng))


def _drain(until: float, rng: random.Random) -> Fault:
    """Stop a server of participants in order, and start it again."""
    kind = rng.choice(["env", "actors", "log"])
    grace = rng.choice([0.1, 2.0, 10.0])
    target = f"{kind}-{rng.randrange(TRIALS)}"
    return Fault("drain", at=_when(rng, until), target=target, details={"grace": grace})


def _disk(until: float, rng: random.Random) -> Fault:
    """Let the disk of a data log fail: some syncs, or for some seconds there is no room."""
    details: Details = {"syncs": rng.randint(1, 4)} if rng.random() < 0.6 else {"full": rng.choice([0.5, 4.0, 15.0])}
    return Fault("disk", at=_when(rng, until), target=f"log-{rng.randrange(TRIALS)}", details=details)
