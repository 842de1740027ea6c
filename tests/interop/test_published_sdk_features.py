"""Features of the published SDK beyond a plain trial, against our orchestrator.

The programs are in `app/`: `participants.py` serves actors, environments, a hook and a data log that follow scripts
(`players.py` tells which), `remote.py` is a controller that does what it is told from here.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.interop.scenes import (
    CLIENT,
    RESPONSE_SECONDS,
    Scene,
    action_sets,
    active,
    actor,
    described,
    field,
    given,
    kinds,
    messages,
    observations,
    rewards,
    told,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that nobody listens at and nobody else can get."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


# --- timeouts and optional actors ---


def test_actors_that_do_not_come(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    with closed_port() as nobody:
        late = {"initial_connection_timeout": 0.4}
        parameters = {
            **field(cast, last_tick=2),
            "actors": [
                actor("ann", cast, bonus=10),
                actor("refused", f"grpc://127.0.0.1:{nobody}", optional=True, **late),
                actor("mute", cast, optional=True, default_action={"number": 77}, absent=True, **late),
                actor("client", CLIENT, optional=True, **late),
                actor("guest", CLIENT, optional=True, bonus=20, initial_connection_timeout=20),
            ],
        }
        assert remote.ask("start", trial="some", parameters=parameters) == "some"
        remote.ask("join", trial="some", actor_name="guest")
        # A required one that does not come ends the trial.
        required = {**field(cast), "actors": [actor("ann", cast), actor("client", CLIENT, **late)]}
        remote.ask("start", trial="none", parameters=required)
        scene.until("an end", lambda: remote.ask("info", trials=["none"])[0]["state"] == "ENDED")
        left_out = scene.record("none.ann")

    missing = ("UNAVAILABLE", None)
    row = [("ACTIVE", 10), missing, ("ACTIVE", 77), missing, ("ACTIVE", 20)]
    world = scene.record("some.field")
    assert [name for name, _ in world["actors"]] == ["ann", "refused", "mute", "client", "guest"]
    next_row = [("ACTIVE", 11), missing, ("ACTIVE", 77), missing, ("ACTIVE", 21)]
    assert action_sets(world) == [(0, "ACTIVE", row), (1, "ACTIVE", next_row)]
    for name in ("ann", "guest"):
        assert observations(scene.record(f"some.{name}")) == [(0, "ACTIVE"), (1, "ACTIVE"), (2, "ENDING")]
    # It saw nothing of the trial, and was told of its end all the same.
    assert scene.record("some.mute")["events"] == []
    assert left_out["events"] == []
    assert not (scene.folder / "none.field.json").exists()
    assert "did not come in time" in orchestrator.process.output
    # A slot whose time is over, and a trial that is over.
    code, text = remote.refusal("join", trial="some", actor_name="client")
    assert (code, "ENDED" in text) == ("FAILED_PRECONDITION", True)
    remote.leave()
    scene.end(orchestrator, expected_errors=["join_trial -- Unexpected aio failure"])


def test_actors_that_do_not_answer_in_time(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    timed = {"optional": True, "response_timeout": RESPONSE_SECONDS}
    # At tick 1 two are silent; at tick 2 `late` acts after its time, and only then does the required actor, who has
    # none: the late action is taken. At tick 3 everybody is there again.
    made_up = actor("default", cast, bonus=20, default_action={"number": 7}, silent=[1], **timed)
    missing = actor("missing", cast, bonus=30, silent=[1], **timed)
    late = actor(
        "late",
        cast,
        bonus=40,
        default_action={"number": 8},
        slow={"2": RESPONSE_SECONDS + 0.5},
        messages_after={"2": [{"to": ["ann"], "text": "now"}]},
        **timed,
    )
    actors = [actor("ann", cast, bonus=10, waits=[2]), made_up, missing, late]
    parameters = {**field(cast, last_tick=4), "datalog_endpoint": cast, "actors": actors}
    remote.ask("start", trial="slow", parameters=parameters)
    # A required actor is given its time too, and then the trial is over for all.
    required = actor("bob", cast, silent=[1], response_timeout=0.3)
    remote.ask("start", trial="lost", parameters={**field(cast), "actors": [actor("ann", cast), required]})
    # So is one in which nothing happens.
    idle = {**field(cast), "max_inactivity": 1, "actors": [actor("ann", cast, silent=[1])]}
    remote.ask("start", trial="idle", parameters=idle)

    assert action_sets(scene.record("slow.field")) == [
        (0, "ACTIVE", active(10, 20, 30, 40)),
        (1, "ACTIVE", [*active(11, 7), ("UNAVAILABLE", None), *active(41)]),
        (2, "ACTIVE", active(12, 22, 32, 42)),
        (3, "ACTIVE", active(13, 23, 33, 43)),
    ]
    # Who missed a tick goes on with the next.
    every = [(0, "ACTIVE"), (1, "ACTIVE"), (2, "ACTIVE"), (3, "ACTIVE"), (4, "ENDING")]
    for name in ("ann", "default", "missing", "late"):
        assert observations(scene.record(f"slow.{name}")) == every
    # The data log tells what was made up from what was not there.
    samples = scene.record("slow.datalog")["samples"]
    assert [{name: a["status"] for name, a in sample["actions"].items()} for sample in samples[:4]] == [
        {"ann": "ACTIVE", "default": "ACTIVE", "missing": "ACTIVE", "late": "ACTIVE"},
        {"ann": "ACTIVE", "default": "DEFAULT", "missing": "UNAVAILABLE", "late": "ACTIVE"},
        {"ann": "ACTIVE", "default": "ACTIVE", "missing": "ACTIVE", "late": "ACTIVE"},
        {"ann": "ACTIVE", "default": "ACTIVE", "missing": "ACTIVE", "late": "ACTIVE"},
    ]

    assert action_sets(scene.record("lost.field")) == [(0, "ACTIVE", active(0, 0))]
    for name in ("ann", "bob"):
        record = scene.record(f"lost.{name}")
        assert observations(record) == [(0, "ACTIVE"), (1, "ACTIVE")]
        assert "FINAL" not in kinds(record)
    forced = "Trial ended forcefully [no action for tick 1 from required actor 'bob']"
    assert scene.processes[1].output.count(forced) == 2
    assert observations(scene.record("idle.ann")) == [(0, "ACTIVE"), (1, "ACTIVE")]
    assert "Trial ended forcefully [nothing happened for 1 s]" in scene.processes[1].output
    remote.leave()
    scene.end(orchestrator)


def test_heartbeats_to_those_who_wait_and_none_to_those_who_compute(scene: Scene) -> None:
    settings = scene.folder / "settings.yaml"
    settings.write_text("orchestrator:\n  heartbeat_seconds: 0.1\n")
    orchestrator = scene.orchestrator(f"--config={settings}")
    computing, other = scene.participants("computing"), scene.participants("other")
    remote = scene.remote(orchestrator)
    # Whoever answers a heartbeat and acts at the same time loses the stream, in this SDK.
    actors = [actor("ann", computing, blocks=0.25), actor("bob", other)]
    remote.ask("start", trial="t", parameters={**field(other, last_tick=20), "actors": actors})
    for name in ("ann", "bob", "field"):
        record = scene.record(f"t.{name}")
        assert record["events"][-1]["type"] == "FINAL"


def test_participants_that_leave_or_fail(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    leaver = actor("leaver", cast, bonus=20, optional=True, leaves=1)
    failer = actor("failer", cast, bonus=30, optional=True, raises=2)
    parameters = {**field(cast, last_tick=4), "actors": [actor("ann", cast, bonus=10), leaver, failer]}
    remote.ask("start", trial="optional", parameters=parameters)
    # A required one takes the trial with it, and so does an environment: that leaves, that knows no such
    # implementation, that is not there.
    parameters = {**field(cast), "actors": [actor("ann", cast), actor("leaver", cast, leaves=1)]}
    remote.ask("start", trial="required", parameters=parameters)
    parameters["actors"] = [actor("ann", cast)]
    remote.ask("start", trial="left", parameters=parameters | field(cast, leaves=1))
    unknown = {"environment_implementation": "unknown"}
    remote.ask("start", trial="unknown", parameters=parameters | unknown)
    with closed_port() as nobody:
        remote.ask("start", trial="absent", parameters=parameters | field(f"grpc://127.0.0.1:{nobody}"))
        told_ann = {trial: scene.record(f"{trial}.ann") for trial in ("required", "left", "unknown", "absent")}

    gone = ("UNAVAILABLE", None)
    assert action_sets(scene.record("optional.field")) == [
        (0, "ACTIVE", active(10, 20, 30)),
        (1, "ACTIVE", [("ACTIVE", 11), gone, ("ACTIVE", 31)]),
        (2, "ACTIVE", [("ACTIVE", 12), gone, gone]),
        (3, "ACTIVE", [("ACTIVE", 13), gone, gone]),
    ]
    assert kinds(scene.record("optional.ann"))[-1] == "FINAL"
    assert action_sets(scene.record("required.field")) == [(0, "ACTIVE", active(0, 0))]
    for trial in ("required", "left"):
        assert observations(told_ann[trial]) == [(0, "ACTIVE"), (1, "ACTIVE")]
        assert "FINAL" not in kinds(told_ann[trial])
    for trial in ("unknown", "absent"):
        assert told_ann[trial]["events"] == []
    trials = ["optional", *told_ann]
    assert [info["state"] for info in remote.ask("info", trials=trials)] == ["ENDED"] * len(trials)
    remote.leave()
    expected = ["user implementation of [failer]", "ERROR:cogment.sdk:run_session", "ERROR:cogment.sdk:RunTrial"]
    scene.end(orchestrator, expected_errors=expected)


# --- the end ---


def test_hard_termination(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    # Nobody comes: it is there so that the watch has something to begin with.
    remote.ask("start", trial="opening", parameters={**field(cast), "actors": [actor("nobody", CLIENT)]})
    remote.ask("watch", name="all", states=[])
    remote.ask("watched", name="all", until=[["opening", "PENDING"]])

    # RUNNING: nobody acts at tick 2.
    played = {
        **field(cast),
        "datalog_endpoint": cast,
        "actors": [actor("ann", cast, bonus=10, silent=[2]), actor("cleo", CLIENT, silent=[2])],
    }
    # PENDING: the client actor has not joined.
    waiting = {**field(cast), "actors": [actor("ann", cast), actor("nobody", CLIENT)]}
    # TERMINATING: an actor does not acknowledge.
    stubborn = {**field(cast, last_tick=1), "actors": [actor("ann", cast, keeps_end=True), actor("bob", cast)]}
    # RUNNING: the environment does not answer.
    stuck = {**field(cast, silent=[1]), "actors": [actor("ann", cast)]}
    trials = {"played": played, "waiting": waiting, "stubborn": stubborn, "stuck": stuck}
    for trial, parameters in trials.items():
        remote.ask("start", trial=trial, parameters=parameters)
    joined = remote.begin("join", trial="played", actor_name="cleo")
    for trial, tick in (("played", 2), ("stubborn", 1), ("stuck", 1)):
        scene.wait_tick(remote, trial, tick)
    remote.ask("watched", name="all", until=[["stubborn", "TERMINATING"]])
    remote.ask("terminate", trials=[*trials, "unknown", "played"], hard=True)
    # It is synchronous.
    assert [info["state"] for info in remote.ask("info", trials=list(trials))] == ["ENDED"] * len(trials)
    joined.done()

    for name in ("ann", "cleo"):
        assert observations(scene.record(f"played.{name}")) == [(0, "ACTIVE"), (1, "ACTIVE"), (2, "ACTIVE")]
        assert set(kinds(scene.record(f"played.{name}"))) == {"ACTIVE"}
    assert action_sets(scene.record("played.field")) == [(0, "ACTIVE", active(10, 0)), (1, "ACTIVE", active(11, 1))]
    last = scene.record("played.datalog")["samples"][-1]
    assert (last["tick"], last["state"]) == (2, "ENDED")
    assert [action["tick"] for action in last["actions"].values()] == [-2, -2]
    assert any("terminated by an external request" in event for event in last["events"])

    assert scene.record("waiting.ann")["events"] == []
    assert observations(scene.record("stuck.ann")) == [(0, "ACTIVE"), (1, "ACTIVE")]
    assert set(kinds(scene.record("stuck.field"))) == {"ACTIVE"}
    # Who was told LAST takes any END for a good one.
    for name in ("ann", "bob", "field"):
        assert kinds(scene.record(f"stubborn.{name}"))[-1] == "FINAL"
    assert not (scene.folder / "waiting.field.json").exists()

    # ann and the environment in `played`, ann in `waiting`, both in `stuck`; cleo is in another process.
    forced = "ended forcefully [terminated by an external request]"
    assert scene.processes[1].output.count(forced) == 5
    assert scene.processes[2].output.count(forced) == 1

    until = [[trial, "ENDED"] for trial in trials]
    seen = remote.ask("watched", name="all", until=until)
    begun = ["INITIALIZING", "PENDING"]
    assert {trial: [entry["state"] for entry in seen if entry["trial"] == trial] for trial in trials} == {
        "played": [*begun, "RUNNING", "TERMINATING", "ENDED"],
        "waiting": [*begun, "ENDED"],
        "stubborn": [*begun, "RUNNING", "TERMINATING", "ENDED"],
        "stuck": [*begun, "RUNNING", "TERMINATING", "ENDED"],
    }
    remote.leave()
    scene.end(orchestrator)


def test_talk_between_last_and_end(scene: Scene) -> None:
    """Who acknowledges by hand may still talk, and is waited for."""
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    ann = actor(
        "ann",
        cast,
        keeps_end=True,
        messages_after={"1": [{"to": ["bob", "field"], "text": "farewell"}]},
        rewards_after={"1": [{"to": ["bob"], "value": 6, "confidence": 1}]},
    )
    bob = actor("bob", cast, keeps_end=True, messages_after={"1": [{"to": ["*"], "text": "done"}]})
    remote.ask("start", trial="talk", parameters={**field(cast, last_tick=1), "actors": [ann, bob]})

    told = {name: scene.record(f"talk.{name}") for name in ("ann", "bob", "field")}
    assert [kinds(record)[-1] for record in told.values()] == ["FINAL"] * 3
    to_bob = (1, "ann", "bob", "farewell", "ENDING")
    assert messages(told["ann"]) == [(1, "bob", "ann", "done", "ENDING")]
    assert sorted(messages(told["bob"])) == [to_bob, (1, "bob", "bob", "done", "ENDING")]
    assert messages(told["field"]) == [(1, "ann", "field", "farewell", "ENDING")]
    # Rewards for what was done last come just before the end.
    assert rewards(told["bob"]) == [(1, 6.0, "ENDING")]
    assert "rewards" in told["bob"]["events"][-2]
    remote.leave()
    scene.end(orchestrator)


def test_orchestrator_that_stops(scene: Scene) -> None:
    """Everybody is told, the data log has everything, and nobody who is connected holds it up."""
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    parameters = {
        **field(cast),
        "datalog_endpoint": cast,
        "actors": [actor("ann", cast), actor("cleo", CLIENT, silent=[1])],
    }
    remote.ask("start", trial="running", parameters=parameters)
    remote.ask("start", trial="pending", parameters=parameters)
    remote.ask("watch", name="all", states=[])
    joined = remote.begin("join", trial="running", actor_name="cleo")
    scene.wait_tick(remote, "running", 1)
    assert orchestrator.process.stop() == 0
    scene.processes.remove(orchestrator.process)
    joined.done()
    seen = remote.ask("watched", name="all", until=[["running", "ENDED"], ["pending", "ENDED"]])
    assert {entry["trial"] for entry in seen[-2:]} <= {"running", "pending"}
    for name in ("running.ann", "running.cleo"):
        assert observations(scene.record(name)) == [(0, "ACTIVE"), (1, "ACTIVE")]
    assert scene.record("pending.ann")["events"] == []
    assert action_sets(scene.record("running.field")) == [(0, "ACTIVE", active(0, 0))]
    samples = {trial: scene.record(f"{trial}.datalog")["samples"] for trial in ("running", "pending")}
    assert [(sample["tick"], sample["state"]) for sample in samples["running"]] == [(0, "RUNNING"), (1, "ENDED")]
    assert [(sample["tick"], sample["state"]) for sample in samples["pending"]] == [(0, "ENDED")]
    # ann twice and the environment; cleo is in another process.
    forced = "ended forcefully [the orchestrator is stopping]"
    assert [process.output.count(forced) for process in scene.processes] == [3, 1]
    remote.leave()


# --- the data log ---


def test_data_log(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    ann = actor(
        "ann",
        cast,
        bonus=10,
        rewards={
            "1": [{"to": ["bob"], "value": 3, "confidence": 1}],
            # With three ticks buffered, tick 3 is still held back, and tick 1 is gone.
            "4": [
                {"to": ["bob"], "value": 5, "confidence": 1, "tick": 3},
                {"to": ["*"], "value": 7, "confidence": 0.5, "tick": 1},
                {"to": ["bob"], "value": 9, "confidence": 1, "tick": 5},
            ],
        },
        messages={"0": [{"to": ["player.*", "field"], "text": "hello"}, {"to": ["nobody"], "text": "lost"}]},
    )
    nan = {"to": ["rob"], "value": math.nan, "confidence": 1}
    bob = actor("bob", cast, bonus=20, messages={"2": [{"to": ["ann"], "text": "two"}]}, rewards={"5": [nan]})
    rob = actor("rob", cast, actor_class="referee")
    talk = {
        "rewards": {"1": [{"to": ["player.*"], "value": 1, "confidence": 1}]},
        "messages": {"1": [{"to": ["*"], "text": "from the field"}]},
    }
    parameters = {
        **field(cast, last_tick=6, base=100, **talk),
        "datalog_endpoint": cast,
        "nb_buffered_ticks": 3,
        "properties": {"kind": "logged", "empty": ""},
        "actors": [ann, bob, rob],
    }
    remote.ask("start", trial="whole", parameters=parameters)
    excluding = {
        **field(cast, last_tick=2, **talk),
        "datalog_endpoint": cast,
        "datalog_exclude_fields": ["Messages", "REWARDS", "observations", "nonsense"],
        "actors": [actor("ann", cast), actor("bob", cast)],
    }
    remote.ask("start", trial="part", parameters=excluding)
    whole, part = scene.record("whole.datalog"), scene.record("part.datalog")

    # The parameters come first, as they were given.
    assert (whole["trial"], whole["user"]) == ("whole", "remote")
    assert whole["parameters"] == described(parameters)
    assert part["parameters"] == described(excluding)

    in_sync = [sample for sample in whole["samples"] if not sample["out_of_sync"]]
    assert [(sample["tick"], sample["state"]) for sample in in_sync] == [
        *[(tick, "RUNNING") for tick in range(6)],
        (6, "ENDED"),
    ]
    assert whole["samples"][-1]["state"] == "ENDED"
    for sample in in_sync:
        tick = sample["tick"]
        everybody = ("ann", "bob", "rob")
        assert sample["observations"] == {name: {"tick": -1, "step": 100 + tick} for name in everybody}
        if tick < 6:
            assert sample["actions"] == {
                "ann": {"tick": tick, "status": "ACTIVE", "action": 10 + tick},
                "bob": {"tick": tick, "status": "ACTIVE", "action": 20 + tick},
                "rob": {"tick": tick, "status": "ACTIVE", "action": f"fair {tick}"},
            }
        else:
            assert [action["tick"] for action in sample["actions"].values()] == [-2] * 3
    stamps = [sample["timestamp"] for sample in in_sync]
    assert stamps == sorted(stamps)
    assert [len(sample["events"]) for sample in in_sync] == [0] * 6 + [1]

    # Rewards and messages are kept as they were sent, wildcards and tick -1 included; only the sender is made true.
    assert {sample["tick"]: told(sample) for sample in in_sync if told(sample)} == {
        0: [("ann", "field", -1, "hello"), ("ann", "nobody", -1, "lost"), ("ann", "player.*", -1, "hello")],
        1: [("field", "*", -1, "from the field")],
        2: [("bob", "ann", -1, "two")],
    }
    assert {sample["tick"]: given(sample) for sample in in_sync if given(sample)} == {
        1: [("ann", "bob", -1, 3.0), ("field", "player.*", -1, 1.0)],
        3: [("ann", "bob", 3, 5.0)],
        5: [("bob", "rob", -1, pytest.approx(math.nan, nan_ok=True))],
    }
    # What came too late for its sample has one of its own, sent at once: when it came, 0 to 2 had left.
    assert [sample["tick"] for sample in whole["samples"]].index(3) == 4
    late = [sample for sample in whole["samples"] if sample["out_of_sync"]]
    assert whole["samples"].index(late[0]) == 3
    assert len(late) == 1
    assert (late[0]["tick"], late[0]["state"], given(late[0])) == (1, "UNKNOWN", [("ann", "*", 1, 7.0)])
    assert [late[0][name] for name in ("actions", "observations", "messages")] == [{}, {}, []]
    assert len(late[0]["events"]) == 1
    # Nobody was given what came for another tick than the current one.
    assert rewards(scene.record("whole.bob")) == [(1, 2.0, "ACTIVE")]
    assert rewards(scene.record("whole.ann")) == [(1, 1.0, "ACTIVE")]
    ((tick, value, _),) = rewards(scene.record("whole.rob"))
    assert tick == 5
    assert math.isnan(value)

    assert [(sample["tick"], sample["state"]) for sample in part["samples"]] == [
        (0, "RUNNING"),
        (1, "RUNNING"),
        (2, "ENDED"),
    ]
    for sample in part["samples"]:
        assert (sample["observations"], sample["rewards"], sample["messages"]) == ({}, [], [])
        assert sample["actions"].keys() == {"ann", "bob"}
    assert len(messages(scene.record("part.ann"))) == 1
    assert "a sample has no field 'nonsense'" in orchestrator.process.output
    remote.leave()
    scene.end(orchestrator)


# --- watching and asking ---


def test_watching_and_asking(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    properties = {"study": "pilot", "group": ""}
    actors = [actor("ann", cast), actor("rob", cast, actor_class="referee"), actor("cleo", CLIENT, silent=[2])]
    parameters = {**field(cast, last_tick=0), "properties": properties, "actors": actors}
    remote.ask("start", trial="first", parameters=parameters)
    # A watch begins with what is there, if it passes the filter.
    remote.ask("watch", name="full", states=[], full_info=True)
    remote.ask("watch", name="short", states=["PENDING", "RUNNING", "ENDED"])
    remote.ask("watch", name="ends", states=["ENDED"], full_info=True)
    for name in ("full", "short"):
        remote.ask("watched", name=name, until=[["first", "PENDING"]])

    joined = remote.begin("join", trial="first", actor_class="player")
    scene.wait_tick(remote, "first", 2)
    running = remote.ask("info", trials=["first"])[0]
    assert running.pop("duration") > 0
    assert running == {
        "trial": "first",
        "state": "RUNNING",
        "env_name": "field",
        "tick": 2,
        "properties": properties,
    }
    everybody = [["ann", "player"], ["rob", "referee"], ["cleo", "player"]]
    assert remote.ask("actors", trial="first") == everybody
    parameters["actors"] = [actor("ann", cast), actor("nobody", CLIENT)]
    remote.ask("start", trial="second", parameters=parameters)
    remote.ask("terminate", trials=["first"], hard=True)
    remote.ask("terminate", trials=["second"], hard=True)
    joined.done()

    # As asked for: in this order, as often, and without those that nobody knows; or all that are remembered.
    asked = remote.ask("info", trials=["second", "unknown", "first", "second"])
    assert [info["trial"] for info in asked] == ["second", "first", "second"]
    assert sorted(info["trial"] for info in remote.ask("info", trials=[])) == ["first", "second"]
    assert asked[1]["env_name"] == "field"
    assert asked[1]["tick"] == 2
    assert asked[1]["properties"] == properties
    # Time stands still after the end.
    assert asked[1]["duration"] == remote.ask("info", trials=["first"])[0]["duration"] > 0
    assert remote.ask("actors", trial="first") == everybody
    assert remote.refusal("actors", trial="unknown") == ("CogmentError", "Unknown trial [unknown]")
    assert {"cogment-api", "grpc"} <= remote.ask("versions").keys()

    until = [["first", "ENDED"], ["second", "ENDED"]]
    seen = {name: remote.ask("watched", name=name, until=until) for name in ("full", "short", "ends")}
    states = {name: [(entry["trial"], entry["state"]) for entry in entries] for name, entries in seen.items()}
    assert states["full"] == [
        ("first", "PENDING"),
        ("first", "RUNNING"),
        ("second", "INITIALIZING"),
        ("second", "PENDING"),
        ("first", "TERMINATING"),
        ("first", "ENDED"),
        ("second", "ENDED"),
    ]
    assert states["short"] == [one for one in states["full"] if one[1] in ("PENDING", "RUNNING", "ENDED")]
    assert states["ends"] == [("first", "ENDED"), ("second", "ENDED")]
    for entry in seen["short"]:
        assert (entry["env_name"], entry["tick"], entry["properties"], entry["duration"]) == (None,) * 4
    for entry in (*seen["full"], *seen["ends"]):
        # Nothing is known of a trial that is being prepared.
        known = entry["state"] != "INITIALIZING"
        assert entry["env_name"] == ("field" if known else "")
        assert entry["properties"] == (properties if known else {})
        assert entry["tick"] == (2 if (entry["trial"], entry["state"]) in states["ends"][:1] else entry["tick"])
        assert entry["duration"] > 0 or not known
    remote.leave()
    scene.end(orchestrator)


def test_refusals_say_what_was_wrong(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    actors = [actor("ann", cast), actor("cleo", CLIENT, silent=[0]), actor("carl", CLIENT)]
    parameters = {**field(cast), "actors": actors}
    assert remote.ask("start", trial="trial", parameters=parameters) == "trial"
    # An id that is taken is not an error, but an empty answer.
    assert remote.ask("start", trial="trial", parameters=parameters) == ""
    # Who asks for none gets a new one each time.
    ids = [remote.ask("start", parameters=parameters) for _ in range(2)]
    assert len({*ids, ""}) == 3

    joined = remote.begin("join", trial="trial", actor_class="player")
    scene.record("trial.cleo.begun")
    for order, code, text in (
        ({"do": "join", "trial": "unknown", "actor_name": "cleo"}, "NOT_FOUND", "unknown"),
        ({"do": "join", "trial": "trial", "actor_name": "nobody"}, "NOT_FOUND", "nobody"),
        ({"do": "join", "trial": "trial", "actor_class": "referee"}, "NOT_FOUND", "referee"),
        ({"do": "join", "trial": "trial", "actor_name": "ann"}, "FAILED_PRECONDITION", "not a client"),
        ({"do": "join", "trial": "trial", "actor_name": "cleo"}, "FAILED_PRECONDITION", "not free"),
        ({"do": "terminate", "trials": []}, "INVALID_ARGUMENT", "trial-id"),
        ({"do": "start", "trial": "café", "parameters": parameters}, "INVALID_ARGUMENT", "printable ASCII"),
    ):
        found = remote.refusal(**order)
        assert found[0] == code, (order, found)
        assert text in found[1], (order, found)
    remote.ask("terminate", trials=["trial", *ids], hard=True)
    joined.done()
    remote.leave()
    scene.end(orchestrator, expected_errors=["join_trial -- Unexpected aio failure"])


# --- many at once ---


def test_ten_trials_at_once(scene: Scene) -> None:
    orchestrator = scene.orchestrator()
    cast, others = scene.participants("cast"), scene.participants("others")
    remote = scene.remote(orchestrator)
    trials = [f"trial-{number}" for number in range(10)]
    starts = []
    last_ticks = {}
    for number, trial in enumerate(trials):
        # Half of them end by the environment, half by their steps: after step M come the set with LAST and one more.
        by_steps = number % 2 == 1
        last_ticks[trial] = 5 + number + by_steps
        ann = actor(
            "ann",
            cast,
            bonus=1000 * number,
            messages={"2": [{"to": ["bob", "field"], "text": trial}]},
            rewards={"3": [{"to": ["bob"], "value": number, "confidence": 1}]},
        )
        parameters = {
            **field(others if number % 3 else cast, last_tick=0 if by_steps else 5 + number, base=100 * number),
            "max_steps": 5 + number if by_steps else 0,
            "datalog_endpoint": cast if number % 4 else others,
            "properties": {"number": str(number)},
            "actors": [ann, actor("bob", others, bonus=1000 * number + 500), actor("cleo", CLIENT)],
        }
        starts.append(remote.begin("start", trial=trial, parameters=parameters))
    assert [start.done() for start in starts] == trials
    joins = [remote.begin("join", trial=trial, actor_name="cleo") for trial in trials]
    for join in joins:
        join.done()

    for number, trial in enumerate(trials):
        last_tick = last_ticks[trial]
        every = [(tick, "ACTIVE") for tick in range(last_tick)] + [(last_tick, "ENDING")]
        told_ann, told_bob, told_cleo = (scene.record(f"{trial}.{name}") for name in ("ann", "bob", "cleo"))
        for record in (told_ann, told_bob, told_cleo):
            assert observations(record) == every
            assert kinds(record)[-1] == "FINAL"
            steps = [event["observation"]["step"] for event in record["events"] if "observation" in event]
            assert steps == [100 * number + tick for tick in range(last_tick + 1)]
        world = scene.record(f"{trial}.field")
        expected = [active(1000 * number + tick, 1000 * number + 500 + tick, tick) for tick in range(last_tick)]
        assert [row for _, _, row in action_sets(world)] == expected
        assert [tick for tick, _, _ in action_sets(world)] == list(range(last_tick))
        assert kinds(world)[-1] == "FINAL"
        assert messages(world) == [(2, "ann", "field", trial, "ACTIVE")]
        assert messages(told_bob) == [(2, "ann", "bob", trial, "ACTIVE")]
        assert rewards(told_bob) == [(3, float(number), "ACTIVE")]
        assert messages(told_ann) == messages(told_cleo) == []
        assert rewards(told_ann) == rewards(told_cleo) == []

        log = scene.record(f"{trial}.datalog")
        assert log["parameters"]["properties"] == {"number": str(number)}
        samples = log["samples"]
        assert [sample["tick"] for sample in samples] == list(range(last_tick + 1))
        ending = "TERMINATING" if number % 2 else "RUNNING"
        assert [sample["state"] for sample in samples] == ["RUNNING"] * (last_tick - 1) + [ending, "ENDED"]
        for sample in samples:
            assert {seen["step"] for seen in sample["observations"].values()} == {100 * number + sample["tick"]}
        logged = [[action.get("action") for action in sample["actions"].values()] for sample in samples[:-1]]
        assert logged == [[value for _, value in row] for row in expected]
        assert [told(sample) for sample in samples if sample["messages"]] == [
            [("ann", "bob", -1, trial), ("ann", "field", -1, trial)]
        ]
    assert [(info["state"], info["tick"]) for info in remote.ask("info", trials=trials)] == [
        ("ENDED", last_ticks[trial]) for trial in trials
    ]
    remote.leave()
    scene.end(orchestrator)


# --- parameters ---


def test_parameters_from_the_file_the_hooks_and_the_caller(scene: Scene) -> None:
    first, second = scene.participants("first"), scene.participants("second")
    # A whole cogment.yaml may be there; blank values count as absent.
    file = scene.folder / "cogment.yaml"
    file.write_text(
        f"""
actor_classes:
  - name: player
trial_params:
  max_steps: 3
  maxInactivity: 20
  properties: {{made_by: file, version: 1.10}}
  trial_config:
  datalog: {{endpoint: "{first}", exclude_fields: [messages]}}
  environment:
    name: field
    endpoint: {first}
    implementation:
  actors:
    - name: ann
      actor_class: player
      endpoint: {first}
      implementation: scripted
      optional: yes
      response_timeout: 9.5
      default_action: {{content: "CAc="}}
    - {{name: cleo, actorClass: player, endpoint: "cogment://client", implementation: ~}}
"""
    )
    orchestrator = scene.orchestrator(f"--params={file}", f"--pre_trial_hooks={first},{second}")
    remote = scene.remote(orchestrator)
    ann = {"name": "ann", "actor_class": "player", "endpoint": first, "implementation": "scripted"}
    cleo = {"name": "cleo", "actor_class": "player", "endpoint": CLIENT, "implementation": ""}
    environment = {"environment_name": "field", "environment_endpoint": first, "environment_implementation": ""}
    from_file = described(
        {
            **environment,
            "max_steps": 3,
            "max_inactivity": 20,
            "properties": {"made_by": "file", "version": "1.10"},
            "datalog_endpoint": first,
            "datalog_exclude_fields": ["messages"],
            "actors": [{**ann, "optional": True, "response_timeout": 9.5, "default_action": {"number": 7}}, cleo],
        }
    )

    # Nothing given: the file, as the hooks left it.
    remote.ask("start", trial="file")
    remote.ask("join", trial="file", actor_name="cleo")
    # A config: it replaces the file's, and the hooks see it; each gets what the one before it made.
    by_first = {"properties": {"made_by": "first"}, "environment_config": {"last_tick": 2}}
    new_actors = [actor("bob", second, bonus=30), actor("rob", second, actor_class="referee")]
    by_second = {"max_steps": 0, "datalog_exclude_fields": None, "actors": new_actors, **environment}
    by_second |= {"environment_implementation": "scripted_field", "environment_name": "lawn"}
    config = {"last_tick": 5, "script": json.dumps({"first": by_first, "second": by_second})}
    remote.ask("start", trial="hooks", config=config)
    # The parameters: neither the file nor the hooks have a say.
    given = {**field(second, last_tick=1), "datalog_endpoint": second, "actors": [actor("zoe", first)]}
    remote.ask("start", trial="given", parameters=given)

    file_log = scene.record("file.datalog")
    assert file_log["parameters"] == from_file
    for name in ("first", "second"):
        assert scene.record(f"file.hook-{name}") == {"trial": "file", "user": "remote", "received": from_file}
    assert file_log["samples"][-1]["tick"] == 4
    assert scene.record("file.field")["implementation"] == "scripted_field"
    assert scene.record("file.cleo")["implementation"] == "scripted"
    # No config is not the same as an empty one.
    assert scene.record("file.ann")["bonus"] is None

    to_first = from_file | {"config": config}
    to_second = to_first | by_first
    made = to_second | described(to_second | by_second | {"datalog_exclude_fields": []})
    assert scene.record("hooks.hook-first")["received"] == to_first
    assert scene.record("hooks.hook-second")["received"] == to_second
    log = scene.record("hooks.datalog")
    assert log["parameters"] == made
    assert log["samples"][-1]["tick"] == 2
    assert scene.record("hooks.lawn") | {"events": []} == {
        "trial": "hooks",
        "name": "lawn",
        "actors": [["bob", "player"], ["rob", "referee"]],
        "implementation": "scripted_field",
        "last_tick": 2,
        "events": [],
    }
    facts = {name: scene.record(f"hooks.{name}") for name in ("bob", "rob")}
    assert {name: (fact["bonus"], fact["class"], fact["environment"]) for name, fact in facts.items()} == {
        "bob": (30, "player", "lawn"),
        "rob": (None, "referee", "lawn"),
    }
    assert remote.ask("info", trials=["hooks"])[0]["properties"] == {"made_by": "first"}

    assert scene.record("given.datalog")["parameters"] == described(given)
    assert not list(scene.folder.glob("given.hook-*"))
    assert remote.ask("info", trials=["given"])[0]["properties"] == {}

    # What cannot be started leaves nothing, and says why; its id is free.
    for parameters, text in (
        ({**given, "actors": []}, "actors"),
        ({**given, "actors": [actor("twin", first), actor("twin", first)]}, "twin"),
        ({**given, "environment_endpoint": "cogment://client"}, "environment.endpoint"),
    ):
        code, said = remote.refusal("start", trial="refused", parameters=parameters)
        assert code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION")
        assert text in said
        assert remote.ask("info", trials=["refused"]) == []
    # An exception in a hook is the caller's to know.
    bad = {"script": json.dumps({"second": {"no_such_attribute_": 1, "max_steps": "many"}})}
    code, said = remote.refusal("start", trial="refused", config=bad)
    assert code == "UNAVAILABLE"
    assert second in said
    assert remote.ask("start", trial="refused", parameters=given) == "refused"
    scene.record("refused.zoe")
    remote.leave()
    scene.end(orchestrator, expected_errors=["OnPreTrial", "user prehook"])
