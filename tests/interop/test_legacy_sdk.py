"""An application on the published SDK of the legacy API (cogment 0.3.0a8), in trials with and without others.

Its programs are in `legacy/`, in an environment of their own; what they saw, and what the datastore has, must agree
tick by tick. The messages are those of `app/`, whose programs are on the published SDK of today.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.interop.processes import HERE, Server
from tests.interop.scenes import Scene, actor, field
from tests.interop.test_published_sdk import layout
from tests.ports import free_port
from trio_cogment.base.host import Host
from trio_cogment.rpc import open_channel
from trio_cogment.sdk import DatastoreClient
from trio_cogment.sdk.spec import load_spec
from trio_cogment.sdk.spec._protoc import compile_protos

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

LAST_TICK = 4
DELTAS = 'deltas: {player: {type: data.PlayerObservation, apply: "old_deltas:add"}}'
#: What the published package lacks of its own API's protos, and what it has in other files.
NOT_IN_THE_WHEEL = {".cogment.GetTrialParamsRequest", ".cogment.GetTrialParamsReply", ".cogment.FinalData"}


@pytest.fixture(scope="session")
def old_python() -> str:
    python = os.environ.get("TRIO_COGMENT_LEGACY_SDK_PYTHON")
    if python is None:
        pytest.fail("TRIO_COGMENT_LEGACY_SDK_PYTHON is not set; `nox -s interop` makes the environment and sets it")
    return python


class OldScene:
    """A scene with programs of that time in it."""

    def __init__(self, scene: Scene, python: str, folder: Path) -> None:
        self.scene = scene
        self.app = folder / "legacy"
        shutil.copytree(HERE / "legacy", self.app, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(HERE / "app" / "data.proto", self.app)
        (self.app / "data.desc").write_bytes(compile_protos(self.app, ["data.proto"]).SerializeToString())
        # Its generated modules are older than the fast implementation of protobuf takes.
        self._python = ["/usr/bin/env", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python", python]

    def program(self, name: str, program: str, *options: str) -> Any:
        command = [*self._python, str(self.app / f"{program}.py"), "--records", str(self.scene.folder), *options]
        return self.scene.start(name, *command)

    def serve(self, name: str, program: str, *options: str) -> str:
        """Start a server; return its endpoint."""
        port = free_port()
        process = self.program(name, program, f"--port={port}", *options)
        self.scene.until(f"{name} serves", lambda: f"listening on port {port}" in process.output)
        return f"legacy://127.0.0.1:{port}"

    def everything(self, section: str = "", params: dict[str, Any] | None = None, *flags: str) -> Server:
        """Start everything of ours, with a profile."""
        text = (HERE / "app" / "cogment.yaml").read_text()
        text += f"\nlegacy: {{{section}}}\n"
        if params is not None:
            text += f"trial_params: {json.dumps(params)}\n"
        (self.app / "cogment.yaml").write_text(text)
        return self.scene.everything(f"--legacy={self.app / 'cogment.yaml'}", *flags).server

    def samples(self, server: Server, trial_id: str) -> list[dict[str, Any]]:
        """Return what the datastore has of a trial: for each tick, what each actor saw, did, got and was told."""
        return trio.run(self._read, int(server.endpoint.rpartition(":")[2]), trial_id)

    async def _read(self, port: int, trial_id: str) -> list[dict[str, Any]]:
        spec = load_spec(HERE / "app")
        found = []
        with trio.fail_after(60):
            async with (
                open_channel(Host(), "127.0.0.1", port) as channel,
                DatastoreClient(channel, spec=spec).samples([trial_id]) as samples,
            ):
                async for sample in samples:
                    found.append({name: _row(each, spec) for name, each in sample.actors.items()})
        return found


def _row(sample: Any, spec: Any) -> dict[str, Any]:
    action = sample.action
    note = spec.message("data.Note")
    return {
        "seen": None if sample.observation is None else sample.observation.step,
        "done": None if action is None else getattr(action, "number", getattr(action, "verdict", None)),
        "reward": sample.reward,
        "told": [note.FromString(each.payload.value).text for each in sample.received_messages],
        "said": [note.FromString(each.payload.value).text for each in sample.sent_messages],
    }


@pytest.fixture
def old(scene: Scene, old_python: str, tmp_path: Path) -> OldScene:
    return OldScene(scene, old_python, tmp_path)


def seen_by(actor_id: int, ticks: int = LAST_TICK + 1) -> list[int]:
    return [100 * actor_id + tick for tick in range(ticks)]


@pytest.mark.parametrize("deltas", [False, True], ids=["snapshots", "deltas"])
@pytest.mark.parametrize("order", [("ann", "rob", "ref"), ("ref", "rob", "ann")], ids=["in-order", "out-of-order"])
def test_an_old_environment_and_old_agents_with_an_actor_of_today(
    old: OldScene, deltas: bool, order: Sequence[str]
) -> None:
    """The trial is started by the published SDK of today."""
    scene = old.scene
    server = old.everything(DELTAS if deltas else "")
    world = old.serve("old-field", "old_environment", *(["--deltas"] if deltas else []))
    players, referees = (
        old.serve(f"old-{kind}", "old_agent", f"--actor-class={kind}") for kind in ("player", "referee")
    )
    cast = scene.participants()
    remote = scene.remote(server)
    actors = {
        "ann": actor("ann", players, bonus=5),
        "rob": actor("rob", cast, bonus=20),
        "ref": actor("ref", referees, actor_class="referee"),
    }
    parameters = {
        **field(world, last_tick=LAST_TICK),
        "actors": [actors[name] for name in order],
        "datalog_endpoint": "cogment://discover",
        "config": {"last_tick": 9},
    }
    remote.ask("start", trial="mixed", parameters=parameters)
    # By class: the players first, in the order of the parameters.
    ids = {name: number for number, name in enumerate([*[name for name in order if name != "ref"], "ref"])}
    field_saw = scene.record("mixed.old-field")
    saw = {name: scene.record(f"mixed.old-{ids[name]}") for name in ("ann", "ref")}
    today = scene.record("mixed.rob")
    scene.until("the end is stored", lambda: remote.ask("info", trials=["mixed"])[0]["state"] == "ENDED")
    stored = old.samples(server, "mixed")

    assert field_saw["counts"] == [2, 1]
    assert field_saw["trial_config"] == 9
    assert saw["ann"]["counts"] == saw["ref"]["counts"] == [2, 1]
    assert (saw["ann"]["bonus"], saw["ref"]["bonus"]) == (5, None)
    for name in order:
        assert [row[name]["seen"] for row in stored] == seen_by(ids[name]), name
    for name, record in saw.items():
        acted = stored[:-1]
        assert record["observations"] == [[tick, row[name]["seen"]] for tick, row in enumerate(acted)]
        assert record["actions"] == [row[name]["done"] for row in acted]
        # Rewards of the last tick come with the end, which this SDK does not show to agents.
        given = [row[name]["reward"] for row in stored][: len(record["rewards"])]
        assert [value for value, _ in record["rewards"]] == given
        assert len(record["rewards"]) >= LAST_TICK - 1
    assert [each["observation"]["step"] for each in today["events"] if "observation" in each] == seen_by(ids["rob"])
    names = sorted(ids, key=ids.__getitem__)
    assert field_saw["actions"] == [
        [[row[name]["done"] for name in names[:2]], [row["ref"]["done"]]] for row in stored[:-1]
    ]
    # What the environment and the agents said: everybody agrees, and so does the datastore.
    first = names[0]
    notes = [f"from the field at {tick}" for tick in range(LAST_TICK)]
    assert [text for row in stored for text in row[first]["told"]] == notes
    if first == "ann":
        assert [text for _, text in saw["ann"]["messages"]] == notes[: len(saw["ann"]["messages"])]
        assert len(saw["ann"]["messages"]) >= LAST_TICK - 1
    for name, record in saw.items():
        said = [f"from {ids[name]} at {tick}" for tick in range(LAST_TICK)]
        assert [text for row in stored for text in row[name]["said"]] == said
        assert [text for sender, text in field_saw["messages"] if sender == ids[name]] == said
        assert record["observations"]
    scene.end(server)


def of_clients(world: str, *endpoints: str, **more: Any) -> dict[str, Any]:
    """Return parameters of trials that old clients start: players at these endpoints."""
    return {
        "max_inactivity": 60,
        "datalog": {"endpoint": "cogment://discover"},
        "environment": {"endpoint": world, "config": {"last_tick": LAST_TICK}, **more},
        "actors": [{"actor_class": "player", "endpoint": endpoint} for endpoint in endpoints],
    }


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_an_old_client_in_a_world_of_today(old: OldScene, stream: bool) -> None:
    scene = old.scene
    cast = scene.participants()
    today = {"name": "field", "implementation": "scripted_field"}
    params = of_clients(cast, "cogment://client", cast, **today)
    params["actors"][1]["implementation"] = "scripted"
    params["environment"]["config"]["script"] = json.dumps(
        {
            "rewards": {"1": [{"to": ["player_0"], "value": 3, "confidence": 1}]},
            "messages": {"2": [{"to": ["player_0"], "text": "well done"}]},
        }
    )
    server = old.everything(params=params)
    options = ["--stream"] if stream else []
    client = old.program("client", "old_client", f"--endpoint={server.endpoint[7:]}", "--praises=1", *options)
    client.may_end = True
    trial = scene.record("old-client")["trial"]
    saw = scene.record(f"{trial}.old-client-0")
    friend = scene.record(f"{trial}.player_1")
    world = scene.record(f"{trial}.field")
    stored = old.samples(server, trial)

    assert saw["over"]
    assert saw["counts"] == [2, 0]
    assert saw["observations"] == [[tick, row["player_0"]["seen"]] for tick, row in enumerate(stored)]
    assert saw["actions"] == [row["player_0"]["done"] for row in stored[:-1]]
    assert [row["player_0"]["seen"] for row in stored] == list(range(LAST_TICK + 1))
    acted = [event["actions"][0] for event in world["events"] if "actions" in event]
    assert [each["action"] for each in acted] == saw["actions"]
    # An answer has the reward of the tick that the action ended.
    assert [value for value, _ in saw["rewards"]] == [row["player_0"]["reward"] or 0 for row in stored[:-1]]
    assert [value for value, _ in saw["rewards"]] == [0, 3, 0, 0]
    assert saw["messages"] == [[-1, "well done"]]
    praise = [reward["value"] for event in friend["events"] for reward in event.get("rewards", ())]
    assert praise == [7.0] * LAST_TICK
    assert [row["player_1"]["reward"] for row in stored[:-1]] == praise
    heard = [each["text"] for event in friend["events"] for each in event.get("messages", ())]
    assert heard == [text for row in stored for text in row["player_1"]["told"]]
    assert heard == [f"from 0 at {tick}" for tick in range(LAST_TICK)]
    assert client.wait(30) == 0
    scene.end(server)


def test_an_old_client_ends_a_trial(old: OldScene) -> None:
    scene = old.scene
    cast = scene.participants()
    params = of_clients(cast, "cogment://client", name="field", implementation="scripted_field")
    params["environment"]["config"]["last_tick"] = 0
    server = old.everything(params=params)
    client = old.program("client", "old_client", f"--endpoint={server.endpoint[7:]}", "--ticks=2")
    client.may_end = True
    trial = scene.record("old-client")["trial"]
    world = scene.record(f"{trial}.field")
    saw = scene.record(f"{trial}.old-client-0")
    assert not saw["over"]
    assert saw["observations"] == [[0, 0], [1, 1], [2, 2]]
    assert [event["type"] for event in world["events"] if "actions" in event] == ["ACTIVE", "ACTIVE", "ENDING"]
    assert client.wait(30) == 0
    scene.end(server)


@pytest.mark.parametrize("deltas", [False, True], ids=["snapshots", "deltas"])
def test_two_old_clients_an_old_agent_and_an_old_environment(old: OldScene, deltas: bool) -> None:
    scene = old.scene
    world = old.serve("old-field", "old_environment", *(["--deltas"] if deltas else []))
    players = old.serve("old-player", "old_agent")
    server = old.everything(
        DELTAS if deltas else "", of_clients(world, "cogment://client", players, "cogment://client")
    )
    client = old.program("client", "old_client", f"--endpoint={server.endpoint[7:]}", "--second=2", "--praises=1")
    client.may_end = True
    trial = scene.record("old-client")["trial"]
    first, agent, second = (scene.record(f"{trial}.old-{name}") for name in ("client-0", "1", "client-2"))
    world_saw = scene.record(f"{trial}.old-field")
    stored = old.samples(server, trial)
    for actor_id, saw in ((0, first), (2, second)):
        name = f"player_{actor_id}"
        assert [row[name]["seen"] for row in stored] == seen_by(actor_id)
        assert saw["observations"] == [[tick, row[name]["seen"]] for tick, row in enumerate(stored)]
        assert saw["actions"] == [row[name]["done"] for row in stored[:-1]]
        assert saw["over"]
        assert [value for value, _ in saw["rewards"]] == [row[name]["reward"] for row in stored[:-1]]
    assert agent["observations"] == [[tick, row["player_1"]["seen"]] for tick, row in enumerate(stored[:-1])]
    rewards = [row["player_1"]["reward"] for row in stored]
    assert [value for value, _ in agent["rewards"]] == rewards[: len(agent["rewards"])]
    assert len(agent["rewards"]) >= LAST_TICK - 1
    assert world_saw["actions"] == [
        [[row[f"player_{number}"]["done"] for number in range(3)], []] for row in stored[:-1]
    ]
    # What both clients said, as far as it came before the end, which this SDK does not show to agents.
    for sender in (0, 2):
        told = [text for number, text in agent["messages"] if number == sender]
        said = [text for row in stored for text in row["player_1"]["told"] if f"from {sender} " in text]
        assert said == [f"from {sender} at {tick}" for tick in range(LAST_TICK)]
        assert told == said[: len(told)]
        assert len(told) >= LAST_TICK - 1
    assert client.wait(30) == 0
    scene.end(server)


def test_an_old_hook_and_an_old_data_log(old: OldScene) -> None:
    scene = old.scene
    hook, log = old.serve("old-hook", "old_hook"), old.serve("old-log", "old_log")
    players = old.serve("old-player", "old_agent")
    cast = scene.participants()
    environment = {"name": "field", "endpoint": cast, "implementation": "scripted_field"}
    actors = [
        {"name": "rob", "actor_class": "player", "endpoint": cast, "implementation": "scripted"},
        {"name": "ann", "actor_class": "player", "endpoint": players},
    ]
    params = {"environment": environment, "actors": actors, "datalog": {"endpoint": log}}
    file = old.app / "params.yaml"
    file.write_text(json.dumps({"trial_params": params}))
    server = old.everything("", None, f"--params={file}", f"--pre_trial_hooks={hook}")
    remote = scene.remote(server)
    trial = remote.ask("start", trial="hooked", config={"last_tick": 3})
    told = scene.record(f"{trial}.old-hook")
    logged = scene.record(f"{trial}.old-log")
    ann, rob, world = (scene.record(f"{trial}.{name}") for name in ("old-1", "rob", "field"))
    assert told == {"user": "remote", "classes": ["player"] * 2, "endpoints": [cast, cast, players[len("legacy://") :]]}
    assert world["last_tick"] == 3
    assert ann["bonus"] == 7
    assert (logged["trial"], logged["user"], logged["classes"]) == (trial, "remote", ["player"] * 2)
    ticks = range(4)
    assert [each["tick"] for each in logged["samples"]] == list(ticks)
    seen = [each["observation"]["step"] for each in rob["events"] if "observation" in each]
    assert [each["observations"][0] for each in logged["samples"]] == seen == list(ticks)
    assert [[tick, each["observations"][1]] for tick, each in enumerate(logged["samples"][:-1])] == ann["observations"]
    assert [each["actions"][1] for each in logged["samples"][:-1]] == ann["actions"]
    acted = [[each["action"] for each in event["actions"]] for event in world["events"] if "actions" in event]
    assert [each["actions"] for each in logged["samples"][:-1]] == acted
    # The agent praises actor 0 at each tick.
    praise = [reward["value"] for event in rob["events"] for reward in event.get("rewards", ())]
    assert [each["rewards"][0][0] for each in logged["samples"][:-1]] == praise == [10.0] * 3
    scene.end(server)


def test_every_message_and_service_has_the_layout_of_the_published_package(old_python: str) -> None:
    environment = ["/usr/bin/env", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python", old_python]
    theirs, ours = layout(environment, "cogment.api"), layout([sys.executable], "trio_cogment.api.legacy")
    for kind in ("messages", "enums"):
        assert {name: ours[kind].get(name) for name in theirs[kind] if name != ".cogment.AgentEndRequest"} == {
            name: found for name, found in theirs[kind].items() if name != ".cogment.AgentEndRequest"
        }, kind
    assert ours["messages"].keys() - theirs["messages"].keys() == NOT_IN_THE_WHEEL
    end = ours["messages"][".cogment.AgentEndRequest"]
    assert end["fields"].pop("final_data")["number"] == 3
    assert end == theirs["messages"][".cogment.AgentEndRequest"]
    trial = ours["services"][".cogment.Trial"]
    trial.pop("GetTrialParams")
    for name, methods in theirs["services"].items():
        assert ours["services"][name] == methods, name
