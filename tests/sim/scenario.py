"""The suites over the play: safety (faults until the end, invariants) and liveness (then calm, and all must end)."""

from __future__ import annotations

from typing import Any

import trio

from tests.sim.counting import note_what_happened
from tests.sim.faults import MOST_STEPS, MOST_TICKS, TRIALS, has_deaf_log
from tests.sim.faults import draw_plan as draw_plan
from tests.sim.play import NEIGHBOURS, Play
from tests.sim.rare import hits_everybody
from tests.sim.recounting import check_counts, count_now_and_then
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.sdk import Controller
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.testing import Counts, Misbehaviour, World, check_history
from trio_cogment.testing.fakes.contents import GREET_ONCE_IN, greeted

#: Liveness: when the last fault is over, and everybody is asked to end.
CALM_SECONDS = 60.0
#: Patience, both kinds of acknowledgements, and some for the network.
END_SECONDS = CALM_SECONDS + 120 + 60 + 30 + 10
#: What a host that is cancelled may take beyond the farewells of its trials and of its connections.
LEAVING_SLACK_SECONDS = 0.1


async def safety(world: World) -> None:
    """Whatever happens, and whenever the orchestrator stops or is cancelled, the checkers find nothing."""
    play, counts = Play(world), Counts()
    rng = world.stream("stop")
    async with trio.open_nursery() as nursery:
        hosting = trio.CancelScope()
        nursery.start_soon(play.run_hosts)
        orchestrator = await nursery.start(play.host_orchestrator, hosting)
        await nursery.start(play.watch, orchestrator)
        nursery.start_soon(count_now_and_then, counts)
        for number in range(TRIALS):
            nursery.start_soon(play.trial, f"trial-{number}", name=f"trial-{number} at its starter's")
        for fault in world.plan:
            nursery.start_soon(play.happen, fault, orchestrator, name=f"fault {fault.name}")
        await trio.sleep(rng.uniform(2, 18))
        await stop(play, orchestrator, hosting, rng.choice(["stop", "cancel", "both"]), rng.choice([0.0, 0.003, 0.5]))
        await trio.sleep(3)  # who is left learns of it
        check_leftovers(play, orchestrator)
        nursery.cancel_scope.cancel()
    play.datalog.close()
    check_counts(counts, at_rest=True)
    play.accounts.check(world.history)
    judge(play)


async def stop(play: Play, orchestrator: Orchestrator, hosting: trio.CancelScope, how: str, after: float) -> None:
    """Let the orchestrator stop in order, be cancelled, or be cancelled while it stops."""
    play.world.history.record("orchestrator", "stopping")
    async with trio.open_nursery() as nursery:
        if how == "stop":
            await orchestrator.stop()
        elif how == "both":
            nursery.start_soon(orchestrator.stop)
            await trio.sleep(after)
        ended = sum(trial.over for trial in orchestrator.trials)
        if orchestrator.running_trials > len(orchestrator.trials) - ended:
            play.world.sometimes("host cancelled during a farewell")
        within = orchestrator.config.farewell_seconds + 2 * play.rpc.farewell_timeout_seconds + LEAVING_SLACK_SECONDS
        play.world.history.record("orchestrator", "cancelled", within=within)
        hosting.cancel()


async def liveness(world: World) -> None:
    """Faults, then calm: every trial comes to its end in time, and nothing is left of it."""
    play, counts = Play(world), Counts()
    async with trio.open_nursery() as nursery:
        hosting = trio.CancelScope()
        nursery.start_soon(play.run_hosts)
        orchestrator = await nursery.start(play.host_orchestrator, hosting)
        controller = await nursery.start(play.watch, orchestrator)
        nursery.start_soon(count_now_and_then, counts)
        async with trio.open_nursery() as acting:
            for number in range(TRIALS):
                acting.start_soon(play.trial, f"trial-{number}", name=f"trial-{number} at its starter's")
            for fault in world.plan:
                acting.start_soon(play.happen, fault, orchestrator, name=f"fault {fault.name}")
            acting.start_soon(calm_down, play, orchestrator)
            await all_over(play, controller, orchestrator)
            acting.cancel_scope.cancel()
        check_leftovers(play, orchestrator)
        world.history.record("orchestrator", "stopping")
        await orchestrator.stop()  # which ends the watches
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    play.datalog.close()
    check_counts(counts, at_rest=True)
    play.accounts.check(world.history)
    check_optional_actors(world)
    check_untouched_trials(play)
    judge(play)


def judge(play: Play) -> None:
    """Say what has been found, and count what was reached."""
    if play.inside:
        play.world.sometimes("participants in process")
    play.descriptions.check()
    play.check_disks()
    note_what_happened(play.world)
    check_history(play.world.history)


async def calm_down(play: Play, orchestrator: Orchestrator) -> None:
    await trio.sleep_until(CALM_SECONDS)
    play.network.heal()
    for trial in orchestrator.trials:
        play.world.history.record("desk", "asked to end", trial.trial_id, hard=False)
        trial.soft_end()
    # A log that reads nothing holds its trial up for as long as it is there, and with it every limit on time.
    await trio.sleep_until(CALM_SECONDS + 150)
    for trial in orchestrator.trials:
        if not trial.over and has_deaf_log(play.world.plan, trial.trial_id):
            play.world.history.record("desk", "asked to end", trial.trial_id, hard=True)
            trial.hard_end("its data log does not read")


async def all_over(play: Play, controller: Controller, orchestrator: Orchestrator) -> None:
    """Wait until every trial that ever was is over, and what is left of it gone; in time."""
    await trio.sleep_until(4)  # most starts have been asked for
    while True:
        started = play.asked == TRIALS and not play.asking
        infos = await controller.trial_infos()
        if started and all(info.state == TrialState.ENDED for info in infos) and not waiting(play.world):
            play.closing = True
            break
        late = [f"{i.trial_id} is {TrialState.Name(i.state)}" for i in infos if i.state != TrialState.ENDED]
        assert trio.current_time() < END_SECONDS, f"not over in time: {', '.join(late)}"
        await trio.sleep(1)
    # Farewells; and a data log that acknowledges each sample may take its time for each.
    with trio.move_on_after(15 + 10 * MOST_TICKS):
        while orchestrator.running_trials:  # noqa: ASYNC110  there is no event for it
            await trio.sleep(1)
    await trio.sleep(1)


def waiting(world: World) -> bool:
    """Whether a client actor still waits for its trial."""
    events = [event for event in world.history if event.who == "actor cat"]
    return sum(event.what == "opened" for event in events) > sum(event.what == "closed" for event in events) and (
        trio.current_time() < CALM_SECONDS
    )


def check_leftovers(play: Play, orchestrator: Orchestrator) -> None:
    """Nothing of a trial that has ended is left: no task, nothing in a queue. Which are known still is noted."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    tasks = [root]
    for task in tasks:
        for nursery in task.child_nurseries:
            tasks.extend(nursery.child_tasks)
    left = [task.name for task in tasks if task.name.startswith("trial trial-")]
    assert not left, f"tasks left of trials that ended: {', '.join(sorted(left))}"
    assert orchestrator.running_trials == 0
    for trial in orchestrator.trials:
        assert (trial.queues.messages, trial.queues.samples) == (0, 0), trial.trial_id
    known = [trial.trial_id for trial in orchestrator.trials]
    play.world.history.record("orchestrator", "known", trial_ids=known)


def check_optional_actors(world: World) -> None:
    """Where only optional actors were hit, the trial has come to its end in good order."""
    if hits_everybody(world.plan):
        return
    hit = set()
    flooded = set()
    for fault in world.plan:
        trial_id, _, who = fault.target.partition("/")
        host, _, number = fault.target.partition("-")
        if fault.name == "misbehaves":
            floods = fault.details["misbehaviour"] == Misbehaviour.FLOOD.value
            # Two floods are more than anyone can stand.
            if who not in ("bob", "cat") or (floods and trial_id in flooded):
                hit.add(trial_id)
            if floods:
                flooded.add(trial_id)
        elif fault.name != "start again" and host != "client":
            hit.add(f"trial-{number}")
    for event in world.history:
        if event.who == "environment env" and event.what == "end" and event.trial_id not in hit:
            why = event.details["details"]
            assert not why, f"{event.trial_id} was broken off though no more than optional actors were hit: {why}"


def check_untouched_trials(play: Play) -> None:
    """A trial that no fault has hit has gone through all its states and ticks, with everybody, and all was logged."""
    if hits_everybody(play.world.plan):
        return
    hit = {fault.target.partition("/")[0].partition("-")[2] for fault in play.world.plan}
    for trial_id in play.ticks:
        if trial_id.partition("-")[2] not in hit:
            play.accounts.check_whole(trial_id, ("env", *NEIGHBOURS, "datalog"))
            check_whole(play, trial_id)
            play.world.sometimes("a trial untouched")


def check_whole(play: Play, trial_id: str) -> None:
    events = play.world.history.of_trial(trial_id)

    def of(what: str, who: str) -> list[dict[str, Any]]:
        return [event.details for event in events if (event.what, event.who) == (what, who)]

    ticks = play.ticks[trial_id]
    if trial_id == "trial-2":
        ticks = min(ticks, MOST_STEPS + 1)
    everybody = ("environment env", *(f"actor {name}" for name in NEIGHBOURS))
    assert [one["state"] for one in of("state", "near")] == [1, 2, 3, 4, 5], f"{trial_id}: not all states"
    for who in everybody:
        assert [one["details"] for one in of("end", who)] == [""], f"{trial_id}: {who}: not its own end"
    actions = of("actions", "environment env")
    assert [one["tick"] for one in actions] == list(range(ticks)), f"{trial_id}: not the actions of {ticks} ticks"
    for one in actions:
        assert list(one["contents"].values()) == [f"{name}:{one['tick']}" for name in NEIGHBOURS], f"{trial_id}: {one}"
    logged = [one["tick"] for one in of("sample", "datalog datalog")]
    assert logged == list(range(ticks + 1)), f"{trial_id}: samples of {logged}, not of {ticks + 1} ticks"
    for name, neighbour in NEIGHBOURS.items():
        heard = of("message", f"environment {neighbour}" if neighbour == "env" else f"actor {neighbour}")
        texts = [one["text"] for one in heard if one["sender"] == name and greeted(one["text"])]
        expected = [f"{name} greets {neighbour} at {tick}" for tick in range(ticks) if tick % GREET_ONCE_IN == 1]
        assert texts == expected, f"{trial_id}: {neighbour} heard {texts}"
        texts = [one["text"] for one in of("message", f"actor {name}") if one["sender"] == "env"]
        texts = [text for text in texts if greeted(text)]
        expected = [f"env greets {name} at {tick}" for tick in range(ticks + 1) if tick % GREET_ONCE_IN == 2]
        assert texts == expected, f"{trial_id}: {name} heard {texts}"


SUITES = {"safety": safety, "liveness": liveness}
scenario = liveness
