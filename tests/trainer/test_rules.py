"""Rules of the protocol that no other test has for its subject; and the list of all of them in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from tests.trainer.bench import STATUS, fails, serving, steps
from tests.trainer.test_control import event_of, ready
from trio_cogment.api.trainer.trainer_pb2 import RunEpisode
from trio_cogment.base.errors import StatusCode
from trio_cogment.trainer.storage import Batch, MemoryDatabase

ROOT = Path(__file__).resolve().parents[2]


def test_each_rule_in_the_documents_has_its_tests() -> None:
    text = (ROOT / "docs" / "trainer.md").read_text().partition("### The rules, one by one")[2].partition("\n### ")[0]
    rows = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 33
    for rule, tests in rows:
        named = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", tests)
        assert named, rule
        for file, names in named:
            path = ROOT / file if file.startswith("tests/") else ROOT / "tests" / "trainer" / file
            content = path.read_text()
            for name in re.findall(r"`(\w+)`", names):
                assert re.search(rf"\bdef {name}\(|^{name} =", content, re.MULTILINE), f"{rule}: {file} has no {name}"


async def test_a_change_is_stored_before_anybody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = MemoryDatabase.write

    def noting(self: MemoryDatabase, batch: Batch) -> None:
        write(self, batch)
        written.extend(one.event.seq for one in batch.runs if one.event is not None)

    monkeypatch.setattr(MemoryDatabase, "write", noting)
    async with serving() as (client, _), client.watch() as watch:
        await watch.wait_initial_metadata()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ready, client)
            for status in ("INIT", "RDY"):
                record = await watch.receive()
                assert record is not None
                assert STATUS[record.status] == status
                assert record.seq_id in written
        assert await client.status("a") == "RDY"


@pytest.mark.parametrize("state", ["RDY", "EXEC", "PAUSE"])
async def test_register_leaves_a_run_that_goes_on_as_it_is(state: str) -> None:
    async with serving() as (client, _):
        await ready(client)
        if state != "RDY":
            await client.publish(steps("a", 1))
        if state == "PAUSE":
            await client.command("a", pause=True)
        await client.register("a", "another")
        assert await client.status("a") == state


async def test_an_episode_costs_a_credit_like_a_step() -> None:
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            await client.publish(steps("a", 3), token=token)
            episodes = [RunEpisode(run_id="a", worker_id="w", episode_index=n) for n in range(2)]
            await client.publish(episodes, token=token, kind="Episodes")
            assert trainer.board.entry("a").workers["w"].ledger.consumed == 5


async def test_a_worker_out_of_step_is_refused_and_set_right_by_the_next_grant(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving(batch_rate_hz=10, credit_grace_seconds=2) as (client, _):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            sent = steps("a", 502, numbered=True)
            async with fails(StatusCode.RESOURCE_EXHAUSTED, "accepted=500 last_seq=500"):
                await client.publish(sent, token=token)
            with trio.fail_after(20):
                event = await call.receive()
            assert event is not None
            assert event.grant_steps >= 100
            assert (await client.publish(steps("a", 2, first=500, numbered=True), token=token)).accepted == 2
            await client.cancel("a")
        assert await client.all_of("a") == list(range(1, 503))


async def test_no_message_is_answered_by_itself() -> None:
    """Hundreds of messages have one reply, and one grant for all of them."""
    async with serving() as (client, trainer):
        token = await ready(client)
        async with client.control(token) as call:
            assert await event_of(call) == {"grant_steps": 500}
            assert (await client.publish(steps("a", 450), token=token)).accepted == 450
            granted = await event_of(call)
            assert granted["grant_steps"] >= 401
            assert trainer.figures("a")["grants_sent"] == 2
