"""The published SDK's reader of trials against our trial datastore.

The reader is `app/reader.py`, which does what it is told from here. Two things are as the SDK has them: of what comes
from the environment it says that the last actor has sent it, and a message's payload is out of its reach; `reader.py`
tells how it gets there.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.interop.processes import Remote, our_command
from tests.interop.scenes import CLIENT, Scene, Spec, actor, described, field

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

FIELDS = {
    "OBSERVATION": "observation",
    "ACTION": "action",
    "REWARD": "reward",
    "RECEIVED_REWARDS": "received_rewards",
    "SENT_REWARDS": "sent_rewards",
    "RECEIVED_MESSAGES": "received_messages",
    "SENT_MESSAGES": "sent_messages",
}


def our_client(scene: Scene, command: str, endpoint: str, *arguments: str) -> None:
    done = subprocess.run(
        [*our_command(), "client", "trial_datastore", command, f"--endpoint={endpoint}", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        scene.fail(done.stdout + done.stderr)


def wait_ended(scene: Scene, reader: Remote, *trials: str) -> list[Spec]:
    """Wait until trials have been stored to their ends, and return what is said of them."""

    def there() -> list[Spec] | None:
        found: list[Spec] = reader.ask("get", ids=trials)
        return found if [trial["state"] for trial in found] == ["ENDED"] * len(trials) else None

    stored: list[Spec] = scene.until(f"the ends of {trials} are stored", there)
    return stored


# --- what was said in a trial ---


def talk() -> tuple[list[Spec], Spec]:
    """Actors without endpoints, and a script of the environment."""
    ann = {
        "bonus": 10,
        "rewards": {
            "1": [{"to": ["bob"], "value": 3, "confidence": 0.5, "note": "well done"}],
            # With three ticks buffered, tick 2 is still held back, and tick 0 is gone.
            "3": [
                {"to": ["player.*"], "value": 5, "confidence": 1, "tick": 2, "note": "late"},
                {"to": ["bob"], "value": 7, "confidence": 1, "tick": 0},
            ],
        },
        "messages": {"0": [{"to": ["player.*", "field"], "text": "hello"}]},
    }
    bob = {"bonus": 20, "implementation": "understudy", "messages": {"2": [{"to": ["ann"], "text": "two"}]}}
    rob = {"actor_class": "referee"}
    world = {
        "rewards": {"1": [{"to": ["player.*"], "value": 1, "confidence": 1, "note": "from the field"}]},
        "messages": {"1": [{"to": ["*"], "text": "to all"}]},
    }
    return [{"name": "ann", **ann}, {"name": "bob", **bob}, {"name": "rob", **rob}], world


def reward(sender: str, receiver: str, value: float, confidence: float = 1.0, note: str | None = None) -> Spec:
    return {"sender": sender, "receiver": receiver, "value": value, "confidence": confidence, "note": note}


def message(sender: str, receiver: str, text: str) -> Spec:
    return {"sender": sender, "receiver": receiver, "text": text}


def number(value: int, key: str) -> Spec:
    return {key: value} if value else {}  # JSON of a message leaves out what is zero


def whole_trial() -> list[Spec]:
    """What each sample has of each actor; see `talk`."""
    samples: list[Spec] = []
    for tick in range(5):
        seen = {"observation": number(tick, "step")}
        acts = tick < 4
        samples.append(
            {
                "ann": seen | ({"action": number(10 + tick, "number")} if acts else {}),
                "bob": seen | ({"action": number(20 + tick, "number")} if acts else {}),
                "rob": {"observation": {**seen["observation"], "strict": True}}
                | ({"action": {"verdict": f"fair {tick}"}} if acts else {}),
            }
        )
    # Wildcards stand for those whom they meant. What ann has sent to the environment is hers alone to tell of.
    hello = [message("ann", name, "hello") for name in ("ann", "bob")]
    # An index of -1 is the environment; the SDK takes the last actor for it.
    to_field = message("ann", "rob", "hello")
    samples[0]["ann"] |= {"sent_messages": [*hello, to_field], "received_messages": hello[:1]}
    samples[0]["bob"] |= {"received_messages": hello[1:]}
    for name in ("ann", "bob", "rob"):
        samples[1][name] |= {"received_messages": [message("rob", name, "to all")]}
    by_field = [reward("rob", name, 1.0, note="from the field") for name in ("ann", "bob")]
    by_ann = reward("ann", "bob", 3.0, 0.5, "well done")
    samples[1]["ann"] |= {"reward": 1.0, "received_rewards": by_field[:1], "sent_rewards": [by_ann]}
    samples[1]["bob"] |= {"reward": pytest.approx(2.5 / 1.5), "received_rewards": [by_ann, by_field[1]]}
    two = message("bob", "ann", "two")
    samples[2]["ann"] |= {"received_messages": [two]}
    samples[2]["bob"] |= {"sent_messages": [two]}
    late = [reward("ann", name, 5.0, note="late") for name in ("ann", "bob")]
    samples[2]["ann"] |= {"reward": 5.0, "received_rewards": late[:1], "sent_rewards": late}
    samples[2]["bob"] |= {"reward": 5.0, "received_rewards": late[1:]}
    # What came when its sample had left is in it all the same.
    lost = reward("ann", "bob", 7.0)
    samples[0]["ann"] |= {"sent_rewards": [lost]}
    samples[0]["bob"] |= {"reward": 7.0, "received_rewards": [lost]}
    return samples


def in_any_order(samples: list[Spec]) -> list[Spec]:
    """Order what the participants have sent at the same time."""

    def ordered(value: Any) -> Any:
        return sorted(value, key=json.dumps) if isinstance(value, list) else value

    return [
        {name: {key: ordered(value) for key, value in data.items()} for name, data in sample.items()}
        for sample in samples
    ]


def check_whole(samples: list[Spec]) -> None:
    assert [(sample["tick"], sample["trial"]) for sample in samples] == [(tick, "whole") for tick in range(5)]
    assert [sample["state"] for sample in samples] == ["RUNNING"] * 4 + ["ENDED"]
    stamps = [sample["timestamp"] for sample in samples]
    assert stamps == sorted(stamps)
    assert stamps[0] > 0
    assert in_any_order([sample["actors"] for sample in samples]) == in_any_order(whole_trial())


def check_selections(reader: Remote, samples: list[Spec]) -> None:
    """Each choice leaves of every sample what was chosen; several kinds of choices must all agree."""

    def chosen(names: list[str], fields: list[str] | None = None) -> list[Spec]:
        return [
            sample
            | {
                "actors": {
                    name: {key: value for key, value in data.items() if fields is None or key in fields}
                    for name, data in sample["actors"].items()
                    if name in names
                }
            }
            for sample in samples
        ]

    for selection, names in (
        ({"actor_names": ["bob"]}, ["bob"]),
        ({"actor_names": ["rob", "ann", "nobody"]}, ["ann", "rob"]),
        ({"actor_classes": ["player"]}, ["ann", "bob"]),
        ({"actor_implementations": ["understudy"]}, ["bob"]),
        ({"actor_classes": ["player"], "actor_implementations": ["scripted"]}, ["ann"]),
        ({"actor_names": ["rob"], "actor_classes": ["player"]}, []),
    ):
        assert reader.ask("samples", trials=["whole"], **selection) == chosen(names), selection
    everybody = ["ann", "bob", "rob"]
    for name, key in FIELDS.items():
        assert reader.ask("samples", trials=["whole"], fields=[name]) == chosen(everybody, [key]), name
    some = reader.ask("samples", trials=["whole"], fields=["ACTION", "REWARD"], actor_names=["bob"])
    assert some == chosen(["bob"], ["action", "reward"])


def test_what_was_said_in_a_trial(scene: Scene) -> None:
    """In memory; and through a sample file in a database."""
    datastore = scene.datastore()
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    reader = scene.told("reader", f"--datastore={datastore.endpoint}")
    actors, world = talk()
    parameters = {
        **field(cast, last_tick=4, **world),
        "datalog_endpoint": datastore.endpoint,
        "nb_buffered_ticks": 3,
        "properties": {"kind": "whole", "empty": ""},
        "actors": [actor(endpoint=cast, **one) for one in actors],
    }
    remote.ask("start", trial="whole", parameters=parameters)
    (info,) = wait_ended(scene, reader, "whole")
    assert info == {
        "trial": "whole",
        "state": "ENDED",
        "user": "remote",
        "samples": 5,
        "parameters": described(parameters),
    }
    samples = reader.ask("samples", trials=["whole"])
    check_whole(samples)
    check_selections(reader, samples)

    database = scene.datastore(f"--file_storage={scene.folder / 'trials.db'}", name="database")
    file = scene.folder / "samples"
    our_client(scene, "export", datastore.endpoint, "whole", f"--file={file}")
    our_client(scene, "import", database.endpoint, f"--file={file}", "--user_id=remote")
    again = scene.told("reader", f"--datastore={database.endpoint}", name="again")
    assert again.ask("get") == [info]
    assert again.ask("samples", trials=["whole"]) == samples
    check_selections(again, samples)
    for program in (remote, reader, again):
        program.leave()
    scene.end(orchestrator, datastore, database)


# --- live ---


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_following_a_trial(scene: Scene, storage: str) -> None:
    flags = [f"--file_storage={scene.folder / 'trials.db'}"] if storage == "file" else []
    datastore = scene.datastore(*flags)
    orchestrator = scene.orchestrator()
    cast = scene.participants()
    remote = scene.remote(orchestrator)
    reader = scene.told("reader", f"--datastore={datastore.endpoint}")
    # It goes on when cleo joins, and stops when bob waits for a message that nobody sends.
    parameters = {
        **field(cast, last_tick=4),
        "datalog_endpoint": datastore.endpoint,
        "actors": [actor("bob", cast, waits=[2]), actor("cleo", CLIENT)],
    }
    remote.ask("start", trial="live", parameters=parameters)
    # Whoever asks right after the start is told of it when the datastore is.
    assert [trial["trial"] for trial in reader.ask("trials", ids=["live"], wait_for_trials=20)] == ["live"]
    reader.ask("follow", trial="live")
    joined = remote.begin("join", trial="live", actor_name="cleo")
    early = reader.ask("followed", name="live", least=2)
    assert not early["over"]
    assert [(sample["tick"], sample["state"]) for sample in early["seen"]] == [(0, "RUNNING"), (1, "RUNNING")]
    (info,) = reader.ask("get", ids=["live"])
    assert (info["state"], info["samples"]) == ("RUNNING", 2)

    # One that is deleted while it is followed.
    remote.ask("start", trial="gone", parameters=parameters)
    assert reader.ask("trials", ids=["gone"], wait_for_trials=20) != []
    reader.ask("follow", trial="gone")
    going = remote.begin("join", trial="gone", actor_name="cleo")
    assert len(reader.ask("followed", name="gone", least=2)["seen"]) == 2
    reader.ask("delete", trials=["gone"])
    gone = reader.ask("followed", name="gone")
    assert gone["error"]["error"] == "NOT_FOUND"
    assert "gone" in gone["error"]["text"]
    assert reader.ask("get", ids=["gone"]) == []

    remote.ask("terminate", trials=["live", "gone"], hard=True)
    joined.done()
    going.done()
    late = reader.ask("followed", name="live")
    assert (late["over"], late["error"]) == (True, None)
    assert late["seen"][:2] == early["seen"]
    assert [(sample["tick"], sample["state"]) for sample in late["seen"][2:]] == [(2, "ENDED")]
    assert reader.ask("samples", trials=["live"]) == late["seen"]
    for program in (remote, reader):
        program.leave()
    scene.end(orchestrator, datastore, expected_errors=["all_samples -- Unexpected aio failure"])


# --- lists ---


def test_lists_of_trials(scene: Scene) -> None:
    """Beside an orchestrator in the same process, which finds the datastore by itself."""
    platform = scene.ours("platform", "serve", "--host=127.0.0.1", "--port=0", "--storage=memory:")
    cast = scene.participants()
    remote = scene.remote(platform)
    reader = scene.told("reader", f"--datastore={platform.endpoint}")
    assert reader.ask("get") == []
    assert reader.ask("trials", bundle_size=5, wait_for_trials=0.1) == []
    coming = reader.begin("trials", bundle_size=1, ids=["trial-3"], wait_for_trials=60)
    trials = [f"trial-{number}" for number in range(5)]
    for number, trial in enumerate(trials):
        parameters = {
            **field(cast, last_tick=1),
            "datalog_endpoint": "cogment://discover",
            "properties": {"kind": "even" if number % 2 == 0 else "odd", "number": str(number)},
            "actors": [actor("ann", cast)],
        }
        remote.ask("start", trial=trial, parameters=parameters)
    assert [trial["trial"] for trial in coming.done()] == ["trial-3"]
    stored = wait_ended(scene, reader, *trials)
    assert [trial["samples"] for trial in stored] == [2] * 5

    def ids(**arguments: Any) -> list[str]:
        return [trial["trial"] for trial in reader.ask("trials", **arguments)]

    for size in (1, 2, 4, 5, 6):
        assert reader.ask("trials", bundle_size=size) == stored
    assert reader.ask("get") == stored
    assert ids(properties={"kind": "odd"}) == ["trial-1", "trial-3"]
    assert ids(properties={"kind": "odd", "number": "2"}) == []
    assert ids(ids=["trial-4", "nobody", "trial-0"], bundle_size=2) == ["trial-0", "trial-4"]
    assert ids(ids=["trial-4", "trial-1"], properties={"kind": "even"}) == ["trial-4"]
    assert [trial["trial"] for trial in reader.ask("get", properties={"number": "2"})] == ["trial-2"]
    # Several at once; each trial's samples are in order.
    samples = reader.ask("samples", trials=["trial-4", "trial-2"])
    assert sorted((sample["trial"], sample["tick"]) for sample in samples) == [
        ("trial-2", 0),
        ("trial-2", 1),
        ("trial-4", 0),
        ("trial-4", 1),
    ]
    reader.ask("delete", trials=["trial-2", "nobody", "trial-0"])
    assert ids(bundle_size=3) == ["trial-1", "trial-3", "trial-4"]
    assert ids(ids=["trial-2"]) == []
    for program in (remote, reader):
        program.leave()
    scene.end(platform)
