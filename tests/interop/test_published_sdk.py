"""An application on the published SDK, in processes and an environment of its own, against our orchestrator.

The application is in `app/`; each of its participants writes what it saw as JSON, and everything is asserted here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.interop.conftest import BUSY_SLOWNESS
from tests.interop.processes import HERE, Stage, check_errors
from tests.ports import free_port

ROUNDS = 20

# What the wheel has beyond the API in use: the datalog's old format, and three messages that no field refers to.
OLD_MESSAGES = {"TrialConfig", "ActorConfig", "EnvironmentConfig"}
OLD_SUFFIX = "_v1"
# What we serve beyond the wheel: the data log under its documented name.
OUR_SERVICES = {".cogmentAPI.LogExporterSP"}
#: Fields that only we have, beside theirs; whoever does not know them passes over them.
OUR_FIELDS_ABOVE = 1000
OUR_MESSAGES = {
    *(".cogmentAPI.LogExporterSampleRequest", ".cogmentAPI.LogExporterSampleReply"),
    *(".cogmentAPI.EndOfTrial", ".cogmentAPI.ParticipantLoss"),
    *(".cogmentAPI.TakenUp", ".cogmentAPI.TakeUp", ".cogmentAPI.PastTick"),
    *(".cogmentAPI.Checkpoint", ".cogmentAPI.CheckpointInterval", ".cogmentAPI.TickRate"),
}
OUR_ENUMS = {".cogmentAPI.EndCause"}
#: A protobuf package of our own, which the wheel has nothing in, and its files.
OUR_PACKAGE = ".trio_cogment."
OUR_FILES = "trio_cogment/"

TRIALS = ("by-environment", "soft", "hard")
LAST_TICK = 4  # of a trial that ends in order
HELD_TICK = 3  # when the controller terminates


# --- the run ---


def run_application(python: str, project: Path, folder: Path, slowness: float = 1) -> dict[str, Any]:
    """Run the application once and return its records by file name, without the suffix."""
    folder.mkdir(parents=True)
    wanted = {f"{trial}.{name}" for trial in TRIALS for name in ("hook", "field", "ann", "rob", "cleo")} | {"client"}

    def program(name: str) -> list[str]:
        return [python, str(project / f"{name}.py"), "--records", str(folder)]

    def records() -> bool:
        return all((folder / f"{name}.json").exists() for name in wanted)

    with Stage(folder, slowness) as stage:
        stage.start("actors", *program("actors"), "--port-file", str(folder / "actors.port"))
        actors = f"grpc://127.0.0.1:{stage.port('actors')}"
        stage.start(
            "environment", *program("environment"), "--port-file", str(folder / "environment.port"), "--actors", actors
        )
        hook = f"grpc://127.0.0.1:{stage.port('environment')}"
        # Two servers, each with a service of its own.
        orchestrator = stage.orchestrator(f"--pre_trial_hooks={hook}", lifecycle_port=free_port())
        client = stage.start(
            "client",
            *program("client"),
            f"--lifecycle={orchestrator.lifecycle}",
            f"--actors={orchestrator.actors}",
            f"--timeout={40 * slowness}",
        )
        try:
            code = client.wait(60 * slowness)
        except subprocess.TimeoutExpired:
            stage.fail("the client does not end")
        if code:
            stage.fail(f"the client ended with {code}")
        stage.processes.remove(client)
        stage.until("every participant's record", records)
        check_errors(stage, client)
        stage.end(orchestrator)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in wanted}


# --- what each participant must have seen ---

Groups = list[list[dict[str, Any]]]  # groups in order, the events inside a group in any order


def observation(tick: int, event_type: str = "ACTIVE") -> list[dict[str, Any]]:
    return [{"type": event_type, "observation": {"tick": tick, "step": tick}}]


def message(sender: str, receiver: str, tick: int, text: str) -> dict[str, Any]:
    return {
        "type": "ACTIVE",
        "messages": [{"tick": tick, "receiver": receiver, "sender": sender, "text": text}],
    }


def reward(receiver: str, tick: int) -> list[dict[str, Any]]:
    """The one reward of a tick: the mean of what everybody sent, weighted by their confidence."""
    sources = [{"sender": "field", "value": 2.0, "confidence": 1.0, "note": f"step {tick}"}]
    if receiver == "ann":
        sources.append({"sender": "cleo", "value": -3.0, "confidence": 0.0, "note": None})
        sources.append({"sender": "rob", "value": float(tick), "confidence": 0.25, "note": None})
    elif receiver == "cleo":
        sources.append({"sender": "ann", "value": 8.0, "confidence": 0.5, "note": None})
        sources.append({"sender": "rob", "value": float(tick), "confidence": 0.25, "note": None})
    means = {
        "ann": (2.0 + 0.25 * tick) / 1.25,
        "rob": 2.0,
        "cleo": (2.0 + 8.0 * 0.5 + 0.25 * tick) / 1.75,
    }
    return [
        {
            "type": "ACTIVE",
            "rewards": [{"tick": tick, "receiver": receiver, "value": means[receiver], "sources": sources}],
        }
    ]


def messages_to(receiver: str, tick: int) -> list[dict[str, Any]]:
    """What the actors write to one of them during a tick; `*` reaches its sender too."""
    found = [message("rob", receiver, tick, f"to all {tick}")]
    if receiver == "cleo":
        found.append(message("ann", "cleo", tick, f"to cleo {tick}"))
    if receiver == "rob":
        found.append(message("cleo", "rob", tick, f"to referees {tick}"))
    return found


def whole_tick(receiver: str, tick: int) -> Groups:
    """Everything an actor sees from an observation to the next one."""
    return [
        observation(tick),
        messages_to(receiver, tick),
        [message("field", receiver, tick, f"step {tick} is over")],
        reward(receiver, tick),
    ]


def actions(tick: int, event_type: str = "ACTIVE") -> Groups:
    """What the environment sees of a tick: what an actor wrote to it, then the actions; never a message to `*`."""
    sent: list[Any] = [tick + 100, f"fair {tick}", tick]
    return [
        [message("ann", "field", tick, f"to field {tick}")],
        [
            {
                "type": event_type,
                "actions": [
                    {"actor": index, "tick": tick, "status": "ACTIVE", "action": action}
                    for index, action in enumerate(sent)
                ],
            }
        ],
    ]


def expected_of(trial: str, name: str) -> tuple[Groups, list[dict[str, Any]]]:
    """The groups of events a participant must have seen, and those that may follow."""
    final = [[{"type": "FINAL"}]]
    groups: Groups = []
    if trial == "hard":
        if name == "field":
            for tick in range(HELD_TICK):
                groups += actions(tick)
            return groups, actions(HELD_TICK)[0]
        for tick in range(HELD_TICK):
            groups += whole_tick(name, tick)
        return [*groups, observation(HELD_TICK)], messages_to(name, HELD_TICK)
    if name == "field":
        for tick in range(LAST_TICK - 1):
            groups += actions(tick)
        # Told by LAST before the last actions, unless it ends the trial itself.
        groups += actions(LAST_TICK - 1, "ENDING" if trial == "soft" else "ACTIVE")
        return [*groups, *final], []
    for tick in range(LAST_TICK):
        groups += whole_tick(name, tick)
    return [*groups, observation(LAST_TICK, "ENDING"), *final], []


def comparable(events: Sequence[dict[str, Any]]) -> list[str]:
    """Events, and the sources of their rewards, without order; a float on the wire has 24 bits."""

    def plain(event: dict[str, Any]) -> dict[str, Any]:
        rewards = [
            one | {"value": round(one["value"], 5), "sources": sorted(one["sources"], key=json.dumps)}
            for one in event.get("rewards", [])
        ]
        return event | ({"rewards": rewards} if rewards else {})

    return sorted(json.dumps(plain(event), sort_keys=True) for event in events)


def check_events(trial: str, name: str, events: list[dict[str, Any]]) -> None:
    groups, may_follow = expected_of(trial, name)
    rest = events
    for group in groups:
        seen, rest = rest[: len(group)], rest[len(group) :]
        assert comparable(seen) == comparable(group), f"{name} in {trial}, before {rest[:2]}; all: {events}"
    assert set(comparable(rest)) <= set(comparable(may_follow)), f"{name} in {trial} also saw {rest}"
    assert len(rest) == len(set(comparable(rest))), f"{name} in {trial} saw one twice: {rest}"


def check(records: dict[str, Any]) -> None:
    """Assert all that the application saw."""
    client = records["client"]
    assert client["versions"]
    actors = [["ann", "player"], ["rob", "referee"], ["cleo", "player"]]
    for trial in TRIALS:
        last_tick = LAST_TICK if trial == "by-environment" else 0
        assert records[f"{trial}.hook"] == {"trial": trial, "user": "tester", "last_tick": last_tick}
        # An id in use is refused by an empty one.
        expected: dict[str, Any] = {"trial": trial, "again": "", "actors": actors}
        if trial != "by-environment":
            expected["info"] = [{"trial": trial, "state": "RUNNING", "tick": HELD_TICK, "env_name": "field"}]
        assert client["trials"][trial] == expected

        facts = {name: dict(records[f"{trial}.{name}"]) for name in ("field", "ann", "rob", "cleo")}
        for name, fact in facts.items():
            check_events(trial, name, fact.pop("events"))
            assert fact.pop("trial") == trial
            assert fact.pop("name") == name
        # A config that is there but empty stays there, one that is not stays away.
        assert facts == {
            "field": {"actors": actors, "last_tick": last_tick},
            "ann": {"bonus": 100},
            "rob": {"without_config": True},
            "cleo": {"empty_config": True},
        }

        assert [entry["state"] for entry in client["watch"] if entry["trial"] == trial] == [
            "INITIALIZING",
            "PENDING",
            "RUNNING",
            "TERMINATING",
            "ENDED",
        ]
    # Ended hard before anybody played.
    opening = [entry["state"] for entry in client["watch"] if entry["trial"] == "opening"]
    assert opening in (["INITIALIZING", "PENDING", "ENDED"], ["PENDING", "ENDED"])
    ends = {entry["trial"]: entry for entry in client["ends"]}
    assert ends.keys() == {"opening", *TRIALS}
    assert len(client["ends"]) == len(ends)
    for trial in TRIALS:
        assert ends[trial] == {
            "trial": trial,
            "state": "ENDED",
            "env_name": "field",
            "tick": HELD_TICK if trial == "hard" else LAST_TICK,
            "properties": {"made_by": "hook"},
        }


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_application(foreign_python: str, project: Path, tmp_path: Path) -> None:
    check(run_application(foreign_python, project, tmp_path / "run"))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("busy_loops")
class TestOnABusyMachine:
    @pytest.mark.parametrize("number", range(1, ROUNDS + 1))
    def test_application_many_times(self, foreign_python: str, project: Path, tmp_path: Path, number: int) -> None:
        check(run_application(foreign_python, project, tmp_path / f"run-{number}", slowness=BUSY_SLOWNESS))


# --- the messages themselves ---


def layout(python: Sequence[str], package: str) -> dict[str, Any]:
    dumped = subprocess.run(
        [*python, str(HERE / "dump_descriptors.py"), package],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert dumped.returncode == 0, dumped.stderr
    found: dict[str, Any] = json.loads(dumped.stdout)
    return found


@pytest.mark.interop
def test_every_message_and_service_has_the_wheels_layout(foreign_python: str) -> None:
    theirs, ours = layout([foreign_python], "cogment.api"), layout([sys.executable], "trio_cogment.api")
    old = {name for name in theirs["messages"] if name.endswith(OLD_SUFFIX) or name.rpartition(".")[2] in OLD_MESSAGES}
    theirs["messages"] = {name: message for name, message in theirs["messages"].items() if name not in old}
    assert not any(name.startswith((OUR_PACKAGE, OUR_FILES)) for kind in theirs.values() for name in kind)
    for kind, found in ours.items():
        ours[kind] = {name: part for name, part in found.items() if not name.startswith((OUR_PACKAGE, OUR_FILES))}
    # Nothing in use refers to what was left out.
    used = {field["type_name"] for message in theirs["messages"].values() for field in message["fields"].values()} | {
        name for service in theirs["services"].values() for method in service.values() for name in method.values()
    }
    assert not used & old

    for name, message in ours["messages"].items():
        numbers = {
            part["number"]: field for field, part in message["fields"].items() if part["number"] > OUR_FIELDS_ABOVE
        }
        assert not numbers or name in theirs["messages"], name
        for field in numbers.values():
            del message["fields"][field]

    for kind, extra in (("services", OUR_SERVICES), ("messages", OUR_MESSAGES), ("enums", OUR_ENUMS), ("files", set())):
        assert ours[kind].keys() - theirs[kind].keys() == extra, kind
        assert {name: ours[kind].get(name) for name in theirs[kind]} == theirs[kind], kind
