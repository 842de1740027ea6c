"""The trainer's service with stubs made of field numbers, and a worker behind a proxy of JSON lines."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.cli.process import LISTENING
from tests.interop.processes import HERE
from trio_cogment.api.trainer import trainer_pb2

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

PROGRAMS = HERE / "trainer"
SECONDS = 30
RESOURCES = {"cpus": 1, "memory_mb": 256, "gpus": {"requested": 0}}


@pytest.fixture(scope="module")
def stubs() -> Iterator[Any]:
    sys.path.insert(0, str(PROGRAMS))
    try:
        yield importlib.import_module("stubs")
    finally:
        sys.path.remove(str(PROGRAMS))


@contextmanager
def server(folder: Path) -> Iterator[str]:
    arguments = ["services", "trainer", "--port=0", f"--folder={folder}", "--log_level=error"]
    with subprocess.Popen(
        [sys.executable, "-m", "trio_cogment", *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = LISTENING.search(process.stdout.readline())
            assert found is not None
            yield f"127.0.0.1:{found[2]}"
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    with server(tmp_path / "trainer") as found:
        yield found


@pytest.fixture
def stub(stubs: Any, target: str) -> Iterator[Any]:
    channel, found = stubs.connect(target)
    yield found
    channel.close()


def config(target: str, *worker: object, **changes: Any) -> str:
    proxy = ["--target", target, "--run-id", "r", "--agent-id", "ann", "--worker-id", "w1"]
    arguments = [str(PROGRAMS / "proxy.py"), *proxy, "--", sys.executable, str(PROGRAMS / "counting.py")]
    document = {
        "run_name": "interop",
        "entry_point": "python",
        "arguments": [*arguments, *map(str, worker)],
        "environment": {},
        "resources": RESOURCES,
        "artifacts": {"output_prefix": "out"},
        **changes,
    }
    return json.dumps(document)


class Watch:
    """What a watcher has seen, from another thread."""

    def __init__(self, stub: Any, stubs: Any, since: int = 0) -> None:
        self.seen: list[tuple[str, int]] = []
        self._stubs = stubs
        self._call = stub.WatchRuns(stubs.pb.WatchRunsRequest(since_seq=since), timeout=SECONDS)
        self._changed = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            for record in self._call:
                with self._changed:
                    self.seen.append((self._stubs.STATUSES[record.status], record.seq_id))
                    self._changed.notify_all()
        except grpc.RpcError:
            pass  # it was cancelled

    def until(self, status: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: status in [one for one, _ in self.seen], SECONDS), self.seen

    def close(self) -> None:
        self._call.cancel()


#: From this number on there are fields of this project, which published programs skip.
OWN = 1001


def test_the_messages_are_those_of_this_package(stubs: Any) -> None:
    ours = trainer_pb2.DESCRIPTOR.message_types_by_name
    assert set(ours) == set(stubs.MESSAGES)
    for name, message in ours.items():
        theirs = getattr(stubs.pb, name).DESCRIPTOR
        fields = [
            (field.number, field.name, field.type, field.has_presence) for field in message.fields if field.number < OWN
        ]
        assert sorted((f.number, f.name, f.type, f.has_presence) for f in theirs.fields) == sorted(fields), name
    service = trainer_pb2.DESCRIPTOR.services_by_name["TrainerService"]
    assert {method.name for method in service.methods} == set(stubs.METHODS)


def test_a_run_through_all_methods(stub: Any, stubs: Any, target: str) -> None:
    pb = stubs.pb
    health = stub.GetHealth(pb.HealthCheckRequest(), timeout=SECONDS)
    assert (health.healthy, health.listen_address) == (True, target)
    submitted = stub.SubmitRun(pb.SubmitRunRequest(run_id="r", config_json=config(target, 4, 300, 0)), timeout=SECONDS)
    assert (submitted.run_id, len(submitted.digest)) == ("r", 64)
    watch = Watch(stub, stubs, since=1)
    # Streams that begin before there is anything follow the run to its end. More than 500 steps take more than the
    # first grant.
    steps = list(stub.StreamRunSteps(pb.StreamStepsRequest(run_id="r"), timeout=SECONDS))
    episodes = list(stub.StreamRunEpisodes(pb.StreamEpisodesRequest(run_id="r"), timeout=SECONDS))
    watch.until("TERM")
    watch.close()
    assert [status for status, _ in watch.seen] == ["HSHK", "RDY", "EXEC", "TERM"]
    assert [seq for _, seq in watch.seen] == [2, 3, 4, 5]
    assert [step.seq_id for step in steps] == list(range(1, 1201))
    places = [(step.episode_index, step.step_index) for step in steps]
    assert places == [(episode, index) for episode in range(4) for index in range(300)]
    assert {(s.worker_id, s.agent_id, s.reward, s.action_json) for s in steps[:2]} == {
        ("w1", "ann", 0.5, "0"),
        ("w1", "ann", 0.5, "1"),
    }
    assert [(e.episode_index, e.total_reward, e.steps) for e in episodes] == [(n, 150.0, 300) for n in range(4)]
    middle = stub.StreamRunSteps(pb.StreamStepsRequest(run_id="r", since_seq=1190), timeout=SECONDS)
    assert [step.seq_id for step in middle] == list(range(1191, 1201))
    last = stub.StreamRunEpisodes(pb.StreamEpisodesRequest(run_id="r", since_seq=3), timeout=SECONDS)
    assert [episode.seq_id for episode in last] == [4]
    (record,) = stub.ListRuns(pb.ListRunsRequest(status_filter=[7]), timeout=SECONDS).runs
    assert (record.run_id, record.digest, record.seq_id) == ("r", submitted.digest, 0)
    assert record.last_heartbeat.seconds
    again = Watch(stub, stubs, since=3)
    again.until("TERM")
    again.close()
    assert again.seen == watch.seen[2:]


def test_a_run_is_paused_throttled_and_cancelled(stub: Any, stubs: Any, target: str) -> None:
    pb = stubs.pb
    stub.SubmitRun(pb.SubmitRunRequest(run_id="r", config_json=config(target, 100_000, 10, 0)), timeout=SECONDS)
    watch = Watch(stub, stubs)
    watch.until("EXEC")

    def command(**event: Any) -> list[Any]:
        events = [pb.ControlEvent(run_id="r", **event)]
        return list(stub.ControlStream(iter(events), timeout=SECONDS))

    assert "pause" in [event.WhichOneof("event") for event in command(pause=True)]
    watch.until("PAUSE")
    before = len(watch.seen)
    assert "resume" in [event.WhichOneof("event") for event in command(resume=True)]
    assert [event.max_rate_hz for event in command(max_rate_hz=7) if event.WhichOneof("event") == "max_rate_hz"] == [7]
    stub.CancelRun(pb.CancelRunRequest(run_id="r"), timeout=SECONDS)
    watch.until("TERM")
    watch.close()
    assert [status for status, _ in watch.seen[before:]] == ["EXEC", "TERM"]
    (record,) = stub.ListRuns(pb.ListRunsRequest(), timeout=SECONDS).runs
    assert (record.status, record.failure_reason) == (7, "user_cancel")


def test_a_worker_that_fails(stub: Any, stubs: Any, target: str) -> None:
    pb = stubs.pb
    stub.SubmitRun(pb.SubmitRunRequest(run_id="r", config_json=config(target, 1, 1, 3)), timeout=SECONDS)
    watch = Watch(stub, stubs)
    watch.until("TERM")
    watch.close()
    assert [status for status, _ in watch.seen][-2:] == ["FAULT", "TERM"]
    (record,) = stub.ListRuns(pb.ListRunsRequest(), timeout=SECONDS).runs
    assert record.failure_reason == "exit_code_3"
    assert len(list(stub.StreamRunSteps(pb.StreamStepsRequest(run_id="r"), timeout=SECONDS))) == 1


def refused(call: Any, request: Any, **metadata: str) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=SECONDS, metadata=tuple(metadata.items()))
    error: Any = caught.value
    return error.code().name, error.details()


def test_refusals_have_the_statuses_of_the_protocol(stub: Any, stubs: Any, target: str) -> None:
    pb = stubs.pb
    assert refused(stub.SubmitRun, pb.SubmitRunRequest(config_json="{"))[0] == "INVALID_ARGUMENT"
    assert refused(stub.CancelRun, pb.CancelRunRequest(run_id="nobody"))[0] == "NOT_FOUND"
    assert refused(stub.Heartbeat, pb.HeartbeatRequest(run_id="nobody"))[0] == "NOT_FOUND"
    assert refused(stub.RegisterWorker, pb.RegisterWorkerRequest())[0] == "INVALID_ARGUMENT"
    assert refused(stub.RegisterWorker, pb.RegisterWorkerRequest(run_id="nobody"))[0] == "NOT_FOUND"
    assert refused(stub.PublishRunSteps, iter([pb.RunStep()]))[0] == "INVALID_ARGUMENT"
    assert refused(stub.PublishRunEpisodes, iter([pb.RunEpisode(run_id="nobody")]))[0] == "NOT_FOUND"
    more = {**RESOURCES, "gpus": {"requested": 8, "mandatory": True}}
    too_much = config(target, 1, 1, 0, resources=more)
    assert refused(stub.SubmitRun, pb.SubmitRunRequest(run_id="r", config_json=too_much))[0] == "RESOURCE_EXHAUSTED"
    assert refused(stub.RegisterWorker, pb.RegisterWorkerRequest(run_id="r"))[0] == "FAILED_PRECONDITION"
    (record,) = stub.ListRuns(pb.ListRunsRequest(), timeout=SECONDS).runs
    assert stubs.STATUSES[record.status] == "TERM"
    events = iter([pb.ControlEvent(run_id="r", pause=True)])
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.ControlStream(events, metadata=[("session-token", "0" * 32)], timeout=SECONDS))
    assert caught.value.code().name == "UNAUTHENTICATED"
