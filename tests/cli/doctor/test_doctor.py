"""`trio-cogment doctor`: each check where all is well, and where it is not."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from obstore.store import MemoryStore

from tests.cli.process import listening, run_here, run_main, server
from tests.ports import free_port
from tests.rpc.tls_files import make_party
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.host.files import LockedError, SystemFiles
from trio_cogment.base.object_store import ObjectStore
from trio_cogment.base.postgresql import ServerFacts
from trio_cogment.cli.doctor import data, machine
from trio_cogment.cli.doctor.findings import Finding, Level, fail, lines, ok, warn, worst
from trio_cogment.platform import open_platform
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.model_registry import ObjectBlobs

FAIL, WARN, OK = Level.FAIL, Level.WARN, Level.OK


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_lines_say_what_to_do() -> None:
    found = [ok("clock", "right"), warn("disk", "full\x1b", "make room"), fail("port 1", "taken", "another one")]
    assert lines(found) == [
        "ok    clock   right",
        "warn  disk    full\\x1b",
        "              -> make room",
        "fail  port 1  taken",
        "              -> another one",
    ]
    assert [worst(found), worst(found[:2]), worst(found[:1]), worst([])] == [FAIL, WARN, OK, OK]
    assert lines([]) == []


# The machine


@pytest.mark.parametrize(
    ("version", "conditions", "expected"),
    [
        ("1.2.3", ">=1.2,<2", True),
        ("2.0", ">=1.2,<2", False),
        ("1.10", ">=1.9", True),
        ("1.2.0", "==1.2", True),
        ("1.2.1", "==1.2", False),
        ("3", "!=3.0", False),
        ("1.0rc1", ">1", False),
        ("1", "<=1", True),
        ("1", "", True),
        ("1", "~=1", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, conditions: str, expected: bool) -> None:
    assert machine.satisfies(version, conditions) == expected


REQUIRES = ["one>=1", "two[x]<3", 'three>=1; extra == "more"', "four>=1 ; extra == 'rest'"]


def versions(**installed: str) -> list[Finding]:
    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    return list(machine.versions(REQUIRES, version))


def test_what_is_needed_is_there_or_named() -> None:
    [well] = versions(one="1", two="2", four="2")
    assert (well.level, "; 2 packages that it needs; extras: rest" in well.text) == (OK, True)
    [bad] = versions(one="0.9")
    assert (bad.level, bad.text) == (FAIL, "one is 0.9, expected >=1; two is missing")
    assert "pip install" in bad.advice
    _, old = versions(one="1", two="2", three="0")
    assert (old.level, old.text) == (WARN, "extra more: three is 0, expected >=1")


def test_this_installation_is_well() -> None:
    assert [finding.level for finding in (machine.python(), *machine.versions())] == [OK, OK]


def test_the_clock_cannot_be_behind_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    now = file.stat().st_mtime
    assert machine.clock([file, tmp_path / "not there"], now).level is OK
    late = machine.clock([file], now - 100)
    assert late.level is FAIL
    assert f"{file} was written 100 s later" in late.text


def test_descriptors() -> None:
    assert [machine.descriptors(count).level for count in (64, 1024)] == [WARN, OK]
    assert machine.descriptors().level in (OK, WARN)


# Files


def levels(findings: Iterator[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_a_file_that_is_not_there_is_made_or_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(data.file("trials", Path("a/b/c.db"))) == levels(data.folder("models", Path("a"))) == [OK]
    monkeypatch.setattr(os, "access", lambda *_: False)
    [finding] = data.file("trials", Path("a/b/c.db"))
    assert (finding.level, finding.text) == (FAIL, f"{tmp_path}/a/b/c.db: cannot be made in {tmp_path}")


def test_who_may_read_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "t.db"
    file.write_bytes(b"")
    file.chmod(0o600)
    assert levels(data.file("trials", file, database=True)) == [OK]
    file.chmod(0o644)
    [finding] = data.file("trials", file)
    assert (finding.level, finding.advice) == (WARN, f"chmod 600 {file}")
    assert data.secret("keys", file).level is FAIL
    file.chmod(0o600)
    assert data.secret("keys", file).level is OK
    assert data.secret("keys", tmp_path / "none").level is FAIL
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert levels(data.file("trials", file)) == [FAIL]


def test_what_is_no_database_or_in_the_way(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    file.write_bytes(b"something else entirely")
    file.chmod(0o600)
    assert levels(data.file("trials", file, database=True)) == [OK, FAIL]
    assert levels(data.folder("models", file)) == [FAIL]
    assert levels(data.file("trials", tmp_path)) == [FAIL]


async def test_another_server_on_the_files(tmp_path: Path) -> None:
    async with open_platform(store=f"sqlite:{tmp_path}/t.db", model_registry=tmp_path / "models"):
        trials = list(data.file("trials", tmp_path / "t.db", database=True))
        models = list(data.folder("models", tmp_path / "models"))
    for findings in (trials, models):
        assert findings[0].level is WARN
        assert findings[0].text.endswith(": a server has it")
    assert levels(data.folder("models", tmp_path / "models")) == [OK]


def test_room_on_the_disk(tmp_path: Path) -> None:
    mebibytes = {10: FAIL, 100: WARN, 5000: OK}
    for count, level in mebibytes.items():
        assert levels(data.disk([tmp_path, tmp_path / "not" / "there"], 600.0, count * 2**20)) == [level]
    assert len(levels(data.disk([tmp_path], 600.0))) == 1
    [finding] = data.disk([tmp_path], 45.0, 0)
    assert finding.advice.endswith("trials wait; after 45 s (datalog_full_seconds) they go on and lose samples")


# The command


def findings(*arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    output = run_main("doctor", "--json", *arguments, variables={"TRIO_COGMENT_STORAGE": "sqlite:t.db"})
    assert output.err == ""
    found = json.loads(output.out)["findings"]
    return output.code, {one["what"]: (one["level"], one["text"]) for one in found}


def test_where_all_is_well(tmp_path: Path) -> None:
    port = free_port()
    code, found = findings(f"--port={port}")
    assert code == 0
    assert {level for level, _ in found.values()} <= {"ok", "warn"}
    assert found[f"port {port}"] == ("ok", "free on 127.0.0.1")
    assert found["trials"] == ("ok", f"{tmp_path}/t.db: will be made")
    assert {"python", "versions", "directory", "clock", "disk", "descriptors"} <= found.keys()
    assert list(tmp_path.iterdir()) == []
    output = run_main("doctor", f"--port={port}")
    assert (output.code, output.out.splitlines()[0].startswith("ok    python ")) == (0, True)


async def test_a_port_of_a_server_of_ours_and_one_of_somebody_else() -> None:
    async with open_platform() as platform, listening(*platform.services) as endpoint:
        port = endpoint.rpartition(":")[2]
        output = await run_here("doctor", f"--port={port}")
    assert output.code == 0
    assert f"warn  port {port}" in output.out
    assert "in use on 127.0.0.1 by a server with lifecycle 0." in output.out
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        code, found = await trio.to_thread.run_sync(findings, f"--port={taken}")
        assert (code, found[f"port {taken}"]) == (1, ("fail", "in use on 127.0.0.1 by another program"))
        code, found = await trio.to_thread.run_sync(findings, f"--port={taken}", "--host=127.0.0.2,127.0.0.1")
        assert (code, found[f"port {taken}"]) == (1, ("fail", "in use on 127.0.0.1 by another program"))
        code, found = await trio.to_thread.run_sync(findings, f"--port={taken}", "--host=127.0.0.2", "--host=127.0.0.3")
        assert found[f"port {taken}"] == ("ok", "free on 127.0.0.2, 127.0.0.3")
    code, found = await trio.to_thread.run_sync(findings, "--host=192.0.2.1", "--port=1")
    assert (code, found["port 1"][0]) == (1, "fail")
    assert found["port 1"][1].startswith("192.0.2.1: ")


async def test_a_directory_that_asks_for_tokens_gets_that_of_the_server(tmp_path: Path) -> None:
    secret, token = tmp_path / "secret", tmp_path / "token"
    assert (await run_here("token", "init", f"--auth_secret_file={secret}")).code == 0
    made = ("--role=directory", f"--auth_secret_file={secret}", f"--file={token}")
    assert (await run_here("token", "make", "server", *made)).code == 0
    closed = ("--auth=token", f"--auth_secret_file={secret}", "--persistence_file=")
    async with server("services", "directory", "--host=127.0.0.1", "--port=0", *closed) as one:
        await one.wait_serving()
        endpoint = f"grpc://127.0.0.1:{one.port}"
        flags = ("--port=0", f"--directory_endpoint={endpoint}")
        for known in (f"--auth_secret_file={secret}", f"--token_file={token}"):
            _, found = await trio.to_thread.run_sync(findings, *flags, known)
            assert found["directory"] == ("ok", f"{endpoint}: answers")
        looked = await run_here("doctor", *flags)
        assert looked.code == 1
        assert "-> give a token that it knows with --token_file" in looked.out


async def test_a_directory_that_answers_and_one_that_does_not() -> None:
    async with DirectoryServer(path="") as server, listening(*directory_services(server)) as endpoint:
        _, found = await trio.to_thread.run_sync(findings, "--port=0", f"--directory_endpoint={endpoint}")
        assert found["directory"] == ("ok", f"{endpoint}: answers")
    code, found = await trio.to_thread.run_sync(findings, "--port=0", f"--directory_endpoint={endpoint}")
    assert (code, found["directory"][0]) == (1, "fail")
    assert "Connection refused" in found["directory"][1]


def test_files_of_tls_and_of_tokens(tmp_path: Path) -> None:
    party = make_party(tmp_path, "party", "localhost")
    flags = [f"--private_key={party.key}", f"--trust_chain={party.chain}", f"--root_cert={party.roots}"]
    _, found = findings("--port=0", *flags)
    assert "TLS" not in found
    party.key.chmod(0o644)
    (tmp_path / "secret").write_text("x")
    code, found = findings("--port=0", *flags, "--auth_secret_file=secret")
    assert (code, found["TLS key"][0], found["token keys"][0]) == (1, "fail", "fail")
    party.key.write_text("no key")
    _, found = findings("--port=0", *flags)
    assert found["TLS"][0] == "fail"


# The flags


def test_it_reads_what_serve_reads(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(f"port: {free_port()}\nstorage: sqlite:{tmp_path}/there/trials.db\nlog_level: debug\nrpc: {{}}\n")
    for arguments, variables in (((f"--config={file}",), {}), ((), {"TRIO_COGMENT_CONFIG": str(file)})):
        done = run_main(
            "doctor", "--auth=open", "--web=false", *arguments, variables={"TRIO_COGMENT_STORAGE": "", **variables}
        )
        assert f"{tmp_path}/there" in done.out, done
    file.write_text("prot: 9000\n")
    wrong = run_main("doctor", f"--config={file}")
    assert wrong.code == 1
    assert "prot" in wrong.err
    assert "No such option" in run_main("doctor", "--hots=0.0.0.0").err


# Locks


def test_a_lock_is_seen_for_as_long_as_it_is_held(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    assert not data.is_locked(path)
    assert not os.path.exists(path)
    lock = SystemFiles().lock(path)
    assert data.is_locked(path)
    with pytest.raises(LockedError):
        SystemFiles().lock(path)
    lock.release()
    assert not data.is_locked(path)
    SystemFiles().lock(path).release()  # the look has left none


def test_what_cannot_be_looked_at_is_not_locked(tmp_path: Path) -> None:
    assert not data.is_locked(str(tmp_path / "no" / "lock"))
    assert not data.is_locked("a\0b")
    assert not data.is_locked(str(tmp_path))


def test_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which the library keeps the objects in memory."""
    kept = MemoryStore()
    monkeypatch.setattr(data, "ObjectStore", lambda url, **_: ObjectStore(url, store=kept))
    (well,) = data.bucket("models", "s3://bucket/models")
    assert (well.level, well.text) == (
        OK,
        "s3://bucket/models: objects can be created, only once, read, listed and deleted",
    )
    registry = ObjectBlobs(ObjectStore("s3://bucket/models", store=kept))
    registry.open()
    assert levels(data.bucket("models", "s3://bucket/models")) == [OK, WARN]
    registry.close()
    assert levels(data.bucket("models", "s3://bucket/models")) == [OK]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 1000)
    _, late = data.bucket("models", "s3://bucket/models")
    assert late.level is WARN
    assert "s behind that of s3://bucket/models" in late.text


def test_a_bucket_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[tuple[Exception, str]] = [
        (PermissionError(errno.EACCES, "writing x: 403 AccessDenied"), "s3://bucket: writing x: 403 AccessDenied"),
        (OSError(errno.ENXIO, "writing x: 404 NoSuchBucket"), "s3://bucket: writing x: 404 NoSuchBucket"),
        (FailedPreconditionError("s3://bucket: the server overwrites"), "s3://bucket: the server overwrites"),
    ]
    for problem, text in problems:

        def check(_store: ObjectStore, problem: Exception = problem) -> None:
            raise problem

        monkeypatch.setattr(ObjectStore, "check", check)
        (found,) = data.bucket("models", "s3://bucket")
        assert (found.level, found.text) == (FAIL, text)
        assert found.advice
    monkeypatch.setitem(sys.modules, "obstore", None)
    (found,) = data.bucket("models", "s3://bucket")
    assert "pip install 'trio-cogment[s3]'" in found.text


def test_serves_archive_may_be_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectStore, "check", lambda _store: (_ for _ in ()).throw(OSError(errno.EIO, "away")))
    _, found = findings("--archive_dir=s3://bucket/models")
    assert found["models"] == ("fail", "s3://bucket/models: away")


#: A server of PostgreSQL of which nothing is to be said.
FACTS: dict[str, Any] = {
    "version": "17.2",
    "clock_seconds": 0.0,
    "may_create": True,
    "fsync": True,
    "notices_clients": True,
    "connections": (20, 100),
}


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({}, None, ""),
        ({"may_create": False}, FAIL, "the user may not make tables"),
        ({"fsync": False}, WARN, "fsync is off"),
        ({"notices_clients": False}, WARN, "client_connection_check_interval cannot be set"),
        ({"clock_seconds": -7.0}, WARN, "its clock is -7 s beside this machine's"),
        ({"clock_seconds": 6.0}, WARN, "its clock is +6 s beside this machine's"),
        ({"clock_seconds": 4.0}, None, ""),
        ({"connections": (94, 100)}, WARN, "94 of 100 connections are in use, and a datastore has up to 7"),
        ({"connections": (93, 100)}, None, ""),
    ],
)
def test_a_database(monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], level: Level | None, said: str) -> None:
    monkeypatch.setattr(data, "facts_of", lambda _address: ServerFacts(**{**FACTS, **changed}))
    first, *rest = data.database("trials", "postgresql://cogment:secret@db/trials")
    assert first == ok("trials", "postgresql://cogment:***@db/trials: PostgreSQL 17.2")
    assert [one.level for one in rest] == ([] if level is None else [level])
    assert all(said in one.text and one.advice and "secret" not in one.text for one in rest)
