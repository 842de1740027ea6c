"""Updates of a tab while trials run: enough, not too often, and never at a trial's expense."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.dashboard.shown import arena, platform_with_pages, player
from tests.servers.datastore.harness import GateStore
from tests.web.peers import Tab, serving
from trio_cogment import ActorSession, EnvironmentSession, actor_params, open_platform, trial_params
from trio_cogment.access import THIS_PROCESS, Grant, Role
from trio_cogment.base.config import OrchestratorConfig, PlatformConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.dashboard._board import Board
from trio_cogment.dashboard._log import LogRing
from trio_cogment.dashboard._rows import applied
from trio_cogment.platform import Platform
from trio_cogment.web import PageAccess, WebSide


class Here:
    def __init__(self, platform: Platform, side: WebSide, access: PageAccess) -> None:
        self.platform = platform
        self.side = side
        self.access = access

    @asynccontextmanager
    async def tab(self, role: Role = Role.ADMIN, pair: Any = None, **asked: Any) -> AsyncIterator[Tab]:
        ours, theirs = pair or trio.testing.memory_stream_pair()
        token = self.access.mint(Grant(name="ann", roles=frozenset([role])), 1000.0, ())
        async with serving(ours, theirs, self.side):
            tab = Tab(ours)
            await tab.open("/dashboard/live", authorization=f"Bearer {token}")
            await look(tab, **asked)
            yield tab


async def look(tab: Tab, **asked: Any) -> None:
    await tab.send(json.dumps(asked).encode())


async def told(tab: Tab) -> Any:
    return json.loads(await tab.message())


@asynccontextmanager
async def here(*trials: str) -> AsyncIterator[Here]:
    async with platform_with_pages() as (platform, side, access):
        for trial_id in trials:
            await platform.controller.start_trial(trial_id=trial_id)
        yield Here(platform, side, access)


async def test_the_list(autojump_clock: object) -> None:
    async with here("run-a", "short-1") as there, there.tab(view="trials", search="", number=7) as tab:
        rows: dict[str, Any] = {}
        began = trio.current_time()
        times = []
        while trio.current_time() < began + 5:
            news = await told(tab)
            times.append(trio.current_time())
            assert (news["view"], news["number"]) == ("trials", 7)
            rows = applied(rows, news)
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 0.099
        assert list(rows) == ["run-a", "short-1"]
        assert rows["run-a"]["state"] == "RUNNING"
        assert 12 < rows["run-a"]["rate"] < 15
        assert rows["run-a"]["slow"] == "env"
        assert rows["short-1"]["state"] == "ENDED"
        assert rows["short-1"]["tick"] == 60
        await there.platform.controller.start_trial(trial_id="run-b")
        while "run-b" not in rows:
            rows = applied(rows, await told(tab))
        assert next(iter(rows)) == "run-b"
        await look(tab, view="trials", search="-b", number=8)
        news = await told(tab)
        while news["number"] != 8:
            news = await told(tab)
        assert list(news["set"]) == ["run-b"]


async def test_one_trial(autojump_clock: object) -> None:
    async with here("run-a") as there, there.tab(view="trial", id="run-a") as tab:
        rows: dict[str, Any] = {}
        ticks: list[int] = []
        values: list[float] = []
        messages = []
        sample: Any = None
        with trio.move_on_after(6):
            while True:
                news = await told(tab)
                rows = applied(rows, news)
                curve = news.get("curves", {}).get("reward|quick")
                if curve is not None:
                    ticks = curve["ticks"] if curve.get("all") else [*ticks, *curve["ticks"]]
                    values += curve["values"]
                messages += news.get("messages", [])
                sample = news.get("sample", sample)
        assert rows["trial"]["state"] == "RUNNING"
        names = [row["name"] for key, row in rows.items() if key != "trial"]
        assert names == ["env", "quick", "slow"]
        assert all(row["health"] == "there" for key, row in rows.items() if key != "trial")
        shares = {row["name"]: row["share"] for key, row in rows.items() if key != "trial"}
        assert shares["env"] > shares["slow"] > shares["quick"]
        assert ticks == list(range(len(ticks)))
        assert len(ticks) > 50
        assert values == [float(f"{value:.9g}") for value in values]  # the digits of 32 bits, not of 64
        assert messages[0]["from"] in ("quick", "slow")
        assert messages[0]["payload"]["value"] == "tick 0 <b>here</b>"
        [of_environment] = [one for one in messages if not one["from"] and one["tick"] < 40]
        assert of_environment["to"] == "quick"
        assert of_environment["payload"]["value"] == {"phase": "far", "tick": 20}
        assert sample["actors"]["quick"]["observation"]["value"]["$array"]["shape"] == [24, 24, 3]
        await there.platform.controller.terminate_trial("run-a", hard=True)
        while "end" not in rows["trial"]:
            rows = applied(rows, await told(tab))
        assert rows["trial"]["end"]["cause"] == "HARD_TERMINATION"


async def test_what_is_wrong_with_samples(autojump_clock: object) -> None:
    store = GateStore()
    config = PlatformConfig(orchestrator=OrchestratorConfig(max_queued_samples=3, datalog_full_seconds=20))
    async with open_platform(store=store, config=config) as platform:
        platform.participants.register_environment(arena)
        platform.participants.register_actor(player, "player")
        params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover")
        board = Board(platform.orchestrator, trio.current_time)
        await platform.controller.start_trial(params, trial_id="t")
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(10)
        assert board.rows(THIS_PROCESS)["t"]["trouble"] == "no room left"
        assert "lost" not in board.rows(THIS_PROCESS)["t"]
        await trio.sleep(20)
        row = board.one(THIS_PROCESS, "t")["trial"]
        assert row["lost"] == platform.orchestrator.lost_samples > 0


async def test_a_trial_waits_for_its_data_log_and_for_nobody_else(autojump_clock: object) -> None:
    async def endless(session: EnvironmentSession) -> None:
        await session.start([("*", b"")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.produce_observations([("*", b"")])

    async def slow(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await trio.sleep(0.1)
                await session.do_action(b"")

    store = GateStore()
    config = PlatformConfig(orchestrator=OrchestratorConfig(max_queued_samples=3))
    async with open_platform(store=store, config=config) as platform:
        platform.participants.register_environment(endless)
        platform.participants.register_actor(slow, "slow")
        params = trial_params([actor_params("ann", "player")], datalog_endpoint="cogment://discover")
        board = Board(platform.orchestrator, trio.current_time)
        await platform.controller.start_trial(params, trial_id="t")
        store.failure = ResourceExhaustedError("no room left")
        await trio.sleep(20)
        for _ in range(100):
            await trio.sleep(1)
            board.rows(THIS_PROCESS)
        rows = board.one(THIS_PROCESS, "t")
        assert (rows["trial"]["held"], rows["trial"]["slow"], rows["trial"]["share"]) == (True, "the data log", 1)
        assert not any(rows[number]["awaited"] for number in "01")
        store.failure = None
        await trio.sleep(20)
        row = board.rows(THIS_PROCESS)["t"]
        assert "held" not in row
        assert "trouble" not in row


async def test_unknown_trials(autojump_clock: object) -> None:
    async with here() as there, there.tab(view="trial", id="<script>") as tab:
        news = await told(tab)
        assert news["missing"] == "trial '<script>': it is not known here"
        while "note" not in news:
            news = await told(tab)
        assert "No samples" in news["note"] or "cannot be read" in news["note"]


async def test_the_server_and_its_log(autojump_clock: object) -> None:
    async with here("run-a") as there:
        async with there.tab(view="server") as tab:
            rows = applied({}, await told(tab))
            assert rows["trials known"]["value"] == 1
        logging.getLogger("tests").error("first %s", "<b>")
        async with there.tab(view="log") as tab:
            records = (await told(tab))["records"]
            assert records[-1] | {"time": 0} == {"time": 0, "level": "ERROR", "name": "tests", "text": "first <b>"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "expected a JSON object"),
        (b"[", "expected a JSON object"),
        (b"[" * 10_000, "expected a JSON object"),
        (b'{"view": {}}', "expected a JSON object"),
        (b"{}", "view: expected"),
        (b'{"view": "x"}', "view: expected"),
        (b"\xff", "expected a JSON object"),
    ],
)
async def test_what_is_no_question(data: bytes, reason: str, autojump_clock: object) -> None:
    async with here() as there, there.tab(view="trials") as tab:
        await told(tab)
        await tab.send(data)
        code, text = await tab.end()
        assert code == 4000
        assert text.startswith(reason)


async def test_logs_are_not_for_operators(autojump_clock: object) -> None:
    async with here() as there, there.tab(Role.OPERATOR, view="log") as tab:
        assert await tab.end() == (1008, "not allowed for your roles (operator)")


async def test_a_tab_that_does_not_read_keeps_nobody_waiting(autojump_clock: object) -> None:
    """The trial goes on at its pace, nothing gathers for the tab, and when it reads it is up to date at once."""
    async with here("run-a") as there:
        trial = there.platform.orchestrator.trials.get("run-a")
        assert trial is not None
        async with there.tab(pair=trio.testing.lockstep_stream_pair(), view="trial", id="run-a") as tab:
            await told(tab)
            began, tick = trio.current_time(), trial.machine.tick_id
            await trio.sleep(30)
            rate = (trial.machine.tick_id - tick) / (trio.current_time() - began)
            assert 12 < rate < 15
            sizes = []
            rows: dict[str, Any] = {}
            while rows.get("trial", {}).get("tick", 0) < trial.machine.tick_id - 5:
                data = await tab.message()
                sizes.append(len(data))
                rows = applied(rows, json.loads(data))
            # What had room was on its way; then all that is new in one. Otherwise it would be 300.
            assert len(sizes) <= 30
            assert sum(sizes) < 300_000
        await there.platform.controller.terminate_trial("run-a", hard=True)


def test_records() -> None:
    ring = LogRing()
    for number in range(3):
        ring.handle(logging.LogRecord("a", logging.INFO, "", 0, "n %d", (number,), None))
    ring.handle(logging.LogRecord("a", logging.INFO, "", 0, "broken %d", ("x",), None))
    last, records = ring.after(1, 10)
    assert (last, [one["text"] for one in records]) == (4, ["n 1", "n 2", "broken %d"])
    assert [one["text"] for one in ring.after(0, 1)[1]] == ["broken %d"]
    for _ in range(2000):
        ring.handle(logging.LogRecord("a", logging.INFO, "", 0, "x" * 10_000, (), None))
    last, records = ring.after(0, 5000)
    assert (last, len(records), len(records[0]["text"])) == (2004, 1000, 4000)
