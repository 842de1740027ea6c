"""Workers as processes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio

from tests.access.keys import KEYS, Clock, control, grant, token_text
from tests.trainer.bench import STATUS, Client, serving
from tests.trainer.configs import a_config
from tests.trainer.dispatch.programs import SLEEPS, STUBBORN, WRITES, dispatching, marked_by, program, until
from trio_cogment.access import Revoked, Role, Rules
from trio_cogment.api.trainer.trainer_pb2 import RunStep
from trio_cogment.base.errors import FailedPreconditionError, UnauthenticatedError
from trio_cogment.base.host import run_inline
from trio_cogment.base.host.files import LOCK, SystemFiles
from trio_cogment.base.host.processes import processes
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.dispatch.admission import Capacity
from trio_cogment.trainer.dispatch.command import TOKEN_VARIABLE, Surroundings
from trio_cogment.trainer.dispatch.folders import RunFolders
from trio_cogment.trainer.dispatch.groups import end_marked, marked, signal_marked
from trio_cogment.trainer.dispatch.workers import Workers
from trio_cogment.trainer.dispatching import RunOrder
from trio_cogment.trainer.storage import Kind

pytestmark = pytest.mark.skipif(processes() is None, reason="the system does not tell its processes")


async def steps_of(client: Client, run_id: str) -> list[RunStep]:
    async with client.stream(run_id) as call:
        return [step async for step in call]


async def reason_of(client: Client, run_id: str) -> tuple[str, str]:
    await until(client, run_id, "TERM")
    record = await client.record(run_id)
    return STATUS[record.status], record.failure_reason


async def test_what_a_worker_writes_is_stored_and_its_end_is_that_of_the_run(tmp_path: Path) -> None:
    async with dispatching(tmp_path) as (client, trainer, _):
        await client.submit("a", **program(WRITES))
        async with client.watch(1) as call:
            seen = []
            while "TERM" not in seen:
                seen.append(STATUS[(await call.receive()).status])
        assert seen == ["HSHK", "RDY", "EXEC", "TERM"]
        assert [(step.step_index, step.reward, step.action_json) for step in await steps_of(client, "a")] == [
            (0, 1.0, "[0]"),
            (1, 1.0, "[1]"),
        ]
        assert await client.all_of("a", kind="Episodes") == [1]
        outcome = trainer.board.entry("a").latest.outcome
        assert outcome is not None
        assert outcome.value == "succeeded"
    log = tmp_path / "a" / "logs" / "worker.stdout.log"
    assert log.read_text().splitlines()[2] == "hello"


async def test_checkpoints_are_stored_and_shown_with_the_run(tmp_path: Path) -> None:
    text = """
import json
for version in (1, 2, 2):
    print(json.dumps({"event": "checkpoint_saved", "payload": {"model": "walker", "version": version}}))
print(json.dumps({"event": "checkpoint_saved", "payload": {"path": "a.npz"}}))
"""
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with dispatching(tmp_path, storage=storage) as (client, _, _):
        await client.submit("a", **program(text))
        shown: list[tuple[str, list[str]]] = []
        async with client.watch(1) as call:
            while not shown or shown[-1] != ("TERM", ["walker@1", "walker@2"]):
                record = await call.receive()
                shown.append((STATUS[record.status], list(record.checkpoints)))
        assert shown[:4] == [("HSHK", []), ("RDY", []), ("RDY", ["walker@1"]), ("RDY", ["walker@1", "walker@2"])]
    async with serving(storage) as (client, _):
        assert (await client.record("a")).checkpoints == ["walker@1", "walker@2"]


def below(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.glob("*/**/*")]


SAVES = "import os; open(os.environ['MOSAIC_RUN_DIR'] + '/weights', 'w').close(); print('{}')"


@pytest.mark.parametrize("kept", [True, False])
async def test_the_folder_of_a_run_is_removed_but_not_its_checkpoints(tmp_path: Path, kept: bool) -> None:
    async with dispatching(tmp_path) as (client, _, dispatcher):
        artifacts = {"output_prefix": "o", "keep_checkpoints": kept}
        await client.submit("a", **program(SAVES, run_name="a", artifacts=artifacts))
        await client.submit("b", **program(WRITES, metadata={}))
        assert [await until(client, run_id, "TERM") for run_id in "ab"] == ["TERM", "TERM"]
        for run_id in "abc":
            await dispatcher.forget(run_id)
    assert below(tmp_path) == (["a/weights"] if kept else [])
    assert not (tmp_path / "b").exists()


async def test_the_folder_of_a_run_stays_while_its_processes_are_there(tmp_path: Path) -> None:
    async with dispatching(tmp_path) as (client, _, dispatcher):
        await client.submit("a", **program(SLEEPS))
        await until(client, "a", "RDY")
        await dispatcher.forget("a")
        assert (tmp_path / "a" / "config.json").exists()


async def test_a_worker_that_writes_nothing_may_succeed(tmp_path: Path) -> None:
    async with dispatching(tmp_path) as (client, _, _):
        await client.submit("a", **program("pass", artifacts={"output_prefix": "o", "persist_logs": False}))
        assert await reason_of(client, "a") == ("TERM", "")
    assert os.listdir(tmp_path / "a" / "logs") == []


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("import sys; sys.exit('no data')", "exit_code_1", "no data"),
        ("import os; os.kill(os.getpid(), 9)", "exit_code_-9", ""),
        ('print(\'{"event": "run_failed", "payload": {"error": "NaN"}}\')', "NaN", ""),
    ],
)
async def test_a_worker_that_fails(tmp_path: Path, text: str, reason: str, detail: str) -> None:
    async with dispatching(tmp_path) as (client, trainer, _):
        await client.submit("a", **program(text))
        assert await reason_of(client, "a") == ("TERM", reason)
        run = trainer.board.entry("a").latest
        assert (run.outcome and run.outcome.value, run.detail) == ("failed", detail)


@pytest.mark.parametrize(
    ("entry_point", "reason"), [("/not/there", "No such file"), ("/", "Permission denied"), ("a\0b", "null byte")]
)
async def test_a_program_that_cannot_be_started(tmp_path: Path, entry_point: str, reason: str) -> None:
    async with dispatching(tmp_path) as (client, _, _):
        await client.submit("a", entry_point=entry_point, arguments=[])
        status, found = await reason_of(client, "a")
        assert (status, found.startswith("dispatch_error: "), reason in found) == ("TERM", True, True)


async def test_a_script_that_is_no_program_fails_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('never')")
    async with dispatching(tmp_path) as (client, _, _):
        for name, mode in (("a", 0o644), ("b", 0o755)):  # not executable, and without an interpreter
            script.chmod(mode)
            worker = {"worker": {"script": str(script)}}
            await client.submit(name, run_name=name, entry_point="python", arguments=[], metadata=worker)
            found = (await reason_of(client, name))[1]
            assert str(script) in found
            assert found.endswith("; expected a program, or an executable script that begins with #!")


async def test_a_folder_that_cannot_be_made_fails_the_run_only(tmp_path: Path) -> None:
    async with dispatching(tmp_path) as (client, _, _):
        (tmp_path / "a").write_text("in the way")
        await client.submit("a", **program("pass"))
        assert "Not a directory" in (await reason_of(client, "a"))[1]
        await client.submit("b", **program("pass", run_name="b"))
        assert await reason_of(client, "b") == ("TERM", "")


async def test_the_files_and_the_environment_of_a_worker(tmp_path: Path) -> None:
    module = tmp_path / "own_worker.py"
    module.write_text(
        "import json, os, sys\n"
        "config = json.load(open(os.environ['TRAINER_WORKER_CONFIG_PATH']))\n"
        "print(json.dumps({'type': 'episode', 'metadata': {'config': config, 'arguments': sys.argv[1:],"
        " 'gpus': os.environ['CUDA_VISIBLE_DEVICES'], 'seed': os.environ['SEED']}}))\n"
    )
    runs = tmp_path / "runs"
    async with dispatching(runs) as (client, _, _):
        worker = {"script": "python", "arguments": [str(module)], "worker_id": "w1", "config": {"algo": "ppo"}}
        resources = {"cpus": 1, "memory_mb": 256, "gpus": {"requested": 1}}
        await client.submit("a", metadata={"worker": worker}, entry_point="python", resources=resources)
        await until(client, "a", "TERM")
        async with client.stream("a", kind="Episodes") as call:
            episode = await call.receive()
        found = json.loads(episode.metadata_json)
        assert found["config"] == {"algo": "ppo", "run_id": "a"}
        assert found["arguments"] == ["--config", str(runs / "a" / "worker-config.json"), "--worker-id", "w1"]
        assert (found["gpus"], found["seed"], episode.worker_id) == ("0", "1", "w1")
        assert list((await client.record("a")).gpu_slots) == [0]
    assert stat.S_IMODE(os.stat(runs / "a" / "config.json").st_mode) == 0o600
    assert not (runs / "a" / "token").exists()


# Ends


async def test_cancel_leaves_no_process_of_a_worker_that_ignores_sigterm(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    async with dispatching(tmp_path) as (client, _, _):
        await client.submit("a", **program(STUBBORN, mark))
        await until(client, "a", "RDY")
        assert len(marked_by(mark)) == 4
        with trio.fail_after(6):
            await client.cancel("a")
        assert marked_by(mark) == []
        assert (await client.record("a")).failure_reason == "user_cancel"


async def test_what_a_worker_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    text = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}])"
    async with dispatching(tmp_path) as (client, _, _):
        await client.submit("a", **program(text))
        assert await reason_of(client, "a") == ("TERM", "")
        assert marked_by(mark) == []


async def test_the_end_of_a_trainer_ends_its_workers_and_decides_nothing(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    storage = f"sqlite:{tmp_path / 'runs.db'}"
    async with dispatching(tmp_path / "runs", storage=storage) as (client, _, _):
        await client.submit("ready", **program(SLEEPS, mark))
        await client.submit("executing", **program(f'print(\'{{"type": "step"}}\'); {SLEEPS}', mark))
        await until(client, "ready", "RDY")
        await until(client, "executing", "EXEC")
    assert marked_by(mark) == []
    async with dispatching(tmp_path / "runs", storage=storage) as (client, _, _):
        assert await reason_of(client, "executing") == ("TERM", "daemon restarted")
        await until(client, "ready", "RDY")
        assert len(marked_by(mark)) == 1
    assert marked_by(mark) == []


async def test_a_run_ends_by_its_schedule(tmp_path: Path) -> None:
    mark = str(uuid.uuid4())
    async with dispatching(tmp_path) as (client, trainer, _):
        text = f'for i in range(3): print(\'{{"type": "step"}}\')\n{SLEEPS}'
        await client.submit("steps", **program(text, mark, schedule={"max_steps": 2}))
        await client.submit("time", **program(SLEEPS, mark, schedule={"max_duration_seconds": 1}))
        for run_id in ("steps", "time"):
            await until(client, run_id, "TERM")
            with trio.fail_after(10):
                await trainer.board.entry(run_id).stopped.wait()
            run = trainer.board.entry(run_id).latest
            assert (run.outcome and run.outcome.value, run.failure_reason) == ("succeeded", "schedule limit")
        assert marked_by(mark) == []
        assert await client.all_of("steps") == [1, 2]


async def test_a_custom_script_as_the_forms_of_the_published_trainer_have_it(tmp_path: Path) -> None:
    script = tmp_path / "curriculum.sh"
    script.write_text("""
        set -e
        read -r config < "$MOSAIC_CONFIG_FILE"
        echo "{\\"type\\": \\"step\\", \\"reward\\": 1, \\"action\\": $config, \\"observation\\": \\"$*\\"}"
    """)
    (tmp_path / "base_config.json").write_text('{"lr": 0.5}\n')
    meta = {
        "worker_id": "xuance_worker",
        "script": "/bin/bash",
        "arguments": [str(script)],
        "use_grpc": True,
        "grpc_target": "127.0.0.1:50055",
        "config": {"run_id": "a", "env_id": "soccer", "extras": {"custom_script": True}},
    }
    form = {
        "entry_point": "/bin/bash",
        "arguments": [str(script)],
        "environment": {"MOSAIC_CONFIG_FILE": str(tmp_path / "base_config.json"), "WANDB_MODE": "offline"},
        "resources": {"cpus": 4, "memory_mb": 4096, "gpus": {"requested": 1, "mandatory": False}},
        "metadata": {"ui": {"custom_script": str(script)}, "worker": meta, "artifacts": {"wandb": {"enabled": False}}},
        "artifacts": {"output_prefix": "custom_scripts/a", "persist_logs": True, "keep_checkpoints": False},
    }
    async with dispatching(tmp_path / "runs", capacity=Capacity(cpus=2, memory_mb=8192)) as (client, _, _):
        await client.submit("a", **form)
        await until(client, "a", "TERM")
        assert (await client.record("a")).failure_reason == ""
        (step,) = await steps_of(client, "a")
    assert (step.action_json, step.worker_id) == ('{"lr":0.5}', "xuance_worker")
    file = tmp_path / "runs" / "a" / "worker-config.json"
    assert step.observation_json == f"--config {file} --worker-id xuance_worker"


async def test_a_silent_script_is_not_waited_for(tmp_path: Path) -> None:
    worker = {"script": "/bin/sh", "arguments": ["-c", "read -r _ < $0", str(tmp_path / "told")]}
    os.mkfifo(tmp_path / "told")
    async with dispatching(tmp_path / "runs", registration_timeout_seconds=0.001) as (client, _, _):
        await client.submit("a", metadata={"worker": worker}, entry_point="/bin/sh")
        await until(client, "a", "HSHK")
        told = os.open(tmp_path / "told", os.O_RDWR)  # does not wait for the script to open it
        os.write(told, b"\n")
        try:
            assert await reason_of(client, "a") == ("TERM", "")
        finally:
            os.close(told)


async def test_a_worker_that_should_register_and_does_not(tmp_path: Path) -> None:
    (tmp_path / "silent_worker.py").write_text("import time; time.sleep(600)")
    mark = f"--mark={tmp_path}"
    worker = {"module": "silent_worker", "arguments": [mark]}
    async with dispatching(tmp_path / "runs", registration_timeout_seconds=0.2) as (client, _, _):
        changes = {"entry_point": "python", "environment": {"PYTHONPATH": str(tmp_path)}}
        await client.submit("a", metadata={"worker": worker}, **changes)
        assert await reason_of(client, "a") == ("TERM", "registration_timeout")
        assert marked_by(mark) == []


HEARTBEATS = 'import time; print(\'{"event": "heartbeat"}\'); time.sleep(600)'


async def test_a_worker_that_stops_sending_heartbeats(tmp_path: Path) -> None:
    async with dispatching(tmp_path, heartbeat_timeout_seconds=0.5, heartbeat_seconds=0.05) as (client, _, _):
        await client.submit("silent", **program(SLEEPS))
        await client.submit("sends", **program(HEARTBEATS))
        assert await reason_of(client, "sends") == ("TERM", "worker_timeout")
        assert await client.status("silent") == "RDY"


async def test_lines_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    text = 'print(\'{"type": "step", "action": "\' + \'x\' * 5000 + \'"}\'); print(\'{"type": "step"}\')'
    async with dispatching(tmp_path, max_line_bytes=1000) as (client, _, _):
        await client.submit("a", **program(text))
        await until(client, "a", "TERM")
        assert [step.action_json for step in await steps_of(client, "a")] == [""]


FOR_EVER = 'import time\nwhile True: print(\'{"type": "step"}\'); time.sleep(0.001)'


async def test_a_pause_holds_back_what_a_worker_writes(tmp_path: Path) -> None:
    async with dispatching(tmp_path) as (client, trainer, _):
        await client.submit("a", **program(FOR_EVER))
        await until(client, "a", "EXEC")
        await client.command("a", pause=True)
        log = trainer.board.entry("a").logs[Kind.STEPS]
        before = log.accepted
        await trio.sleep(0.3)
        assert log.accepted == before
        await client.command("a", resume=True)
        with trio.fail_after(5):
            async with client.stream("a", since=before + 100) as call:
                await call.receive()
        await client.cancel("a")


async def test_a_rate_slows_a_worker_down(tmp_path: Path) -> None:
    async with dispatching(tmp_path) as (client, trainer, _):
        await client.submit("a", **program(FOR_EVER))
        await until(client, "a", "EXEC")
        await client.command("a", max_rate_hz=20)
        log = trainer.board.entry("a").logs[Kind.STEPS]
        before, since = log.accepted, trio.current_time()
        await trio.sleep(1)
        assert log.accepted - before <= 20 * (trio.current_time() - since) + 2
        await client.command("a", max_rate_hz=0)
        with trio.fail_after(5):
            async with client.stream("a", since=before + 200) as call:
                await call.receive()
        await client.cancel("a")


# What an earlier server has left behind


def sleeper(mark: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start a process that ignores SIGTERM if its mark says so; return it when it is ready."""
    text = (
        "import signal, sys, time\n"
        "if sys.argv[1] == 'stubborn': signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", text, mark], env={**os.environ, **variables}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def bury(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def test_processes_of_a_server_that_was_killed_are_ended_and_no_others(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for run_id in "ab":
        (runs / run_id).mkdir(parents=True)
        (runs / run_id / "token").write_text(f"token of {run_id}")
    (runs / "done").mkdir()
    ours = [sleeper("", **{TOKEN_VARIABLE: f"token of {run_id}"}) for run_id in "ab"]
    others = [sleeper("", **{TOKEN_VARIABLE: "token of c"}), sleeper("", TOKEN="token of a")]
    try:
        with trio.fail_after(30):
            async with Workers(str(runs), Surroundings()).opened():
                assert [process.wait() for process in ours] == [-signal.SIGTERM] * 2
                assert [process.poll() for process in others] == [None, None]
                assert not (runs / "a" / "token").exists()
    finally:
        bury((*ours, *others))


async def test_what_could_not_be_ended_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "a" / "token"
    token.parent.mkdir()
    token.write_text("its token")

    async def in_vain(tokens: list[str], *_others: object) -> int:
        await trio.lowlevel.checkpoint()
        assert tokens == ["its token"]
        return 1

    with monkeypatch.context() as patched:
        patched.setattr("trio_cogment.trainer.dispatch.workers.end_marked", in_vain)
        async with Workers(str(tmp_path), Surroundings()).opened():
            assert token.exists()
    async with Workers(str(tmp_path), Surroundings()).opened():
        assert not token.exists()


async def test_a_process_left_behind_that_ignores_sigterm_is_killed() -> None:
    process = sleeper("stubborn", **{TOKEN_VARIABLE: "its token"})
    try:
        assert marked(["its token"]) == [process.pid]
        with trio.fail_after(10):
            assert await end_marked(["its token"], run_inline, 0.1, 5) == 0
        assert process.wait() == -signal.SIGKILL
    finally:
        bury([process])


def test_a_number_that_was_given_to_somebody_else_meanwhile_gets_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    process = sleeper("")
    try:
        groups = "trio_cogment.trainer.dispatch.groups"
        monkeypatch.setattr(f"{groups}.marked", lambda tokens: [process.pid])
        assert signal_marked(["its token"], signal.SIGKILL) == 0
        assert process.poll() is None
    finally:
        bury([process])


def test_an_empty_token_marks_nobody() -> None:
    assert marked([""]) == []


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = RunFolders(str(tmp_path), SystemFiles()), RunFolders(str(tmp_path), SystemFiles())
    assert first.open() == {}
    with pytest.raises(FailedPreconditionError, match="is in use by another trainer"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_a_folder_that_cannot_be_made_is_refused_by_its_name(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    root.write_text("a file")
    with pytest.raises(FailedPreconditionError, match=f"{root} cannot be used for the files of runs"):
        RunFolders(str(root), SystemFiles()).open()


def test_two_servers_do_not_share_a_folder_whose_lock_was_removed(tmp_path: Path) -> None:
    first, second = RunFolders(str(tmp_path), SystemFiles()), RunFolders(str(tmp_path), SystemFiles())
    first.open()
    (tmp_path / LOCK).unlink()
    with pytest.raises(FailedPreconditionError, match="is in use by another trainer"):
        second.open()
    first.close()


def test_a_workers_token_ends_with_the_token_that_submitted_its_run(tmp_path: Path) -> None:
    access = control()
    ann = access.verified(token_text(grant(Role.ADMIN)), local=False)
    workers = Workers(str(tmp_path), Surroundings(), access=access)
    order = RunOrder("a", parse_config(a_config(), max_characters=10_000), sources=ann.derives)
    with workers._access_token(order) as token:
        worker = access.verified(token, local=False)
        assert worker.works_for("a")
        access.adopt(Rules(keys=KEYS, revoked=Revoked.parse("t1")))
        assert not access.valid(worker)
        access.adopt(Rules(keys=KEYS))
        assert access.valid(worker)
    assert not access.valid(worker)


async def test_a_workers_token_does_not_come_back_with_the_next_server(tmp_path: Path) -> None:
    """Whoever keeps it cannot use it when its run is over, nor at a server that was started since."""
    kept, clock = tmp_path / "kept", Clock()
    text = "import os, sys; open(sys.argv[1], 'w').write(os.environ['COGMENT_TOKEN'])"
    first, second, third = (control(clock=clock) for _ in range(3))
    async with dispatching(tmp_path / "runs", access=first) as (client, _, _):
        await client.submit("a", **program(text, str(kept)))
        await until(client, "a", "TERM")
    notes = tmp_path / "runs" / ".access_tokens"
    assert stat.S_IMODE(notes.stat().st_mode) == 0o600
    worker = kept.read_text()
    with pytest.raises(UnauthenticatedError, match="revoked"):
        first.verified(worker, local=False)
    assert second.verified(worker, local=False).works_for("a"), "a server of another trainer"
    # A server that was killed had no time to take the token back; and what it wrote last may be half of a line.
    notes.write_text(notes.read_text() + "id2")
    async with dispatching(tmp_path / "runs", access=second):
        with pytest.raises(UnauthenticatedError, match="revoked"):
            second.verified(worker, local=False)
    assert worker not in notes.read_text()
    clock.seconds += 31 * 86400
    async with dispatching(tmp_path / "runs", access=third):
        pass
    assert notes.read_text() == "", "it has expired"


async def test_a_run_whose_token_cannot_be_noted_does_not_start(tmp_path: Path) -> None:
    async with dispatching(tmp_path, access=control()) as (client, _, _):
        (tmp_path / ".access_tokens").mkdir()
        await client.submit("a", **program("print('{}')"))
        assert "Is a directory" in (await reason_of(client, "a"))[1]
    with pytest.raises(FailedPreconditionError, match="cannot be used for the tokens of runs"):
        async with Workers(str(tmp_path), Surroundings(), access=control()).opened():
            pass


REMOVED = """
import os, signal, sys
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.trainer.dispatch.folders import RunFolders
taken = 0
def look(event, arguments):
    global taken
    if event in ("os.remove", "os.rmdir"):
        if taken == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        taken += 1
sys.addaudithook(look)
RunFolders(sys.argv[1], SystemFiles()).remove("a")
"""


def test_a_server_that_is_killed_while_it_removes_a_folder_does_the_rest_at_its_next_start(tmp_path: Path) -> None:
    for step in range(20):
        (tmp_path / "a" / "logs").mkdir(parents=True)
        (tmp_path / "a" / "checkpoints" / "deep").mkdir(parents=True)
        # Folders are read in no certain order.
        results = [f"result-{number}" for number in range(6)]
        for name in (*results[:3], "config.json", "logs/worker.stdout.log", "checkpoints/deep/one", *results[3:]):
            (tmp_path / "a" / name).write_text('{"artifacts": {"keep_checkpoints": false}}')
        done = subprocess.run(
            [sys.executable, "-c", REMOVED, str(tmp_path), str(step)], stderr=subprocess.PIPE, check=False
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        # The run is forgotten behind its folder, so it is removed once more.
        RunFolders(str(tmp_path), SystemFiles()).remove("a")
        assert list(tmp_path.iterdir()) == []
        if not done.returncode:
            break
    assert step > 5
