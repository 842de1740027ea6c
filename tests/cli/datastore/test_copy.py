"""`trio-cogment datastore copy` as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import trio

from tests.cli.process import run_main
from trio_cogment.servers.datastore import open_store
from trio_cogment.servers.datastore.storage import EndWrite, TrialEnd
from trio_cogment.testing.conformance.trial_store import ids, new_trial, sample


def stored(path: Path) -> str:
    async def store() -> None:
        async with open_store(f"sqlite:{path}") as opened:
            await opened.apply([new_trial("a"), sample("a", 0), EndWrite("a", TrialEnd.ENDED), new_trial("b")])

    trio.run(store)
    return f"sqlite:{path}"


def test_copies(tmp_path: Path) -> None:
    source, target = stored(tmp_path / "one.db"), f"sqlite:{tmp_path}/two.db"
    output = run_main("datastore", "copy", source, target)
    assert (output.code, output.out) == (0, "1 trial copied\n")
    assert output.err == "left out, because they still go on: b\n"
    output = run_main("datastore", "copy", source, target, "--json")
    assert json.loads(output.out) == {
        "trials": 0, "samples": 1, "there": ["a"], "open": ["b"], "others": [], "lost": {},
    }  # fmt: skip

    async def found() -> list[str]:
        async with open_store(target) as store:
            return await ids(store)

    assert trio.run(found) == ["a"]


def test_what_is_refused(tmp_path: Path) -> None:
    source = stored(tmp_path / "one.db")
    for arguments, text in (
        ((f"sqlite:{tmp_path}/none.db", source), "SOURCE: there is no file"),
        (("memory:", source), "SOURCE: 'memory:' has no trials"),
        ((source, source), "expected two storages, got the same one twice"),
        ((source, "moon:x"), "storage: expected 'memory:'"),
    ):
        output = run_main("datastore", "copy", *arguments)
        assert output.code == 1
        assert text in output.err
    assert not (tmp_path / "none.db").exists()


def test_another_trial_is_told_of(tmp_path: Path) -> None:
    source, target = stored(tmp_path / "one.db"), f"sqlite:{tmp_path}/two.db"

    async def store() -> None:
        async with open_store(target) as opened:
            await opened.apply([new_trial("a", user_id="bob")])

    trio.run(store)
    output = run_main("datastore", "copy", source, target)
    assert output.code == 1
    assert "a: not copied: the target has another trial with this id\n" in output.err
