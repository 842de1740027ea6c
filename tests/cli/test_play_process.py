"""`trio-cogment play` as a process: where the addresses that it prints lead, and what it stores where it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, server
from tests.play.pages import read_message
from tests.web.peers import HOST, Tab
from trio_cogment.sdk import connect
from trio_cogment.servers.datastore import open_store

_LINK = re.compile(r"^play +(http://localhost:\d+/~\S+/play/)$", re.MULTILINE)
_DASHBOARD = re.compile(r"^dashboard +(http://\S+)", re.MULTILINE)

MODULE = """\
from trio_cogment import Participants
from trio_cogment.sdk.spec import Spec

participants = Participants(Spec())


async def world(session):
    await session.start([("*", b"hello")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.end([("*", b"goodbye")])


async def clever(session):
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"clever")


participants.register_environment(world)
participants.register_actor(clever, "clever", ["player"])
"""
PARAMS = """\
trial_params:
  actors:
    - {name: ann, actor_class: player, endpoint: "cogment://client"}
    - {name: agent, actor_class: player, implementation: clever, endpoint: "cogment://discover"}
  environment: {endpoint: "cogment://discover"}
"""


#: Where a page leads on by itself.
_ON = re.compile(r'<meta http-equiv="refresh" content="0; url=([^"]+)">')


async def opened(browser: httpx.AsyncClient, address: str) -> httpx.Response:
    """Go to an address, and wherever one is sent from there."""
    page = await browser.get(address, headers={"accept": "text/html"}, follow_redirects=True)
    while page.status_code == 200 and (on := _ON.search(page.text)):
        page = await browser.get(urljoin(str(page.url), on[1]), headers={"accept": "text/html"}, follow_redirects=True)
    return page


@pytest.mark.parametrize(("printed", "title"), [(_LINK, "Play"), (_DASHBOARD, "Dashboard")], ids=["play", "dashboard"])
async def test_each_address_that_is_printed_leads_to_its_page(printed: re.Pattern[str], title: str) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        async with server("play", "CartPole-v1", "--port=0") as process, httpx.AsyncClient() as browser:
            page = await opened(browser, (await process.said(printed))[1])
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8"), page.text
            assert f"<title>{title}</title>" in page.text
            assert await process.stop() == 0


async def playing(process: Server, link: str) -> dict[str, Any]:
    """Say in the lobby that one is ready, and play to the end; return how the lobby greeted."""
    path = urlsplit(link).path
    async with await trio.open_tcp_stream("127.0.0.1", process.port) as stream:
        lobby = Tab(stream)
        await lobby.open(f"{path}socket", origin=f"http://{HOST}")
        await lobby.send(b'{"type": "hello", "ticket": ""}')
        greeting: dict[str, Any] = read_message(await lobby.message())["welcome"]
        await lobby.send(b'{"type": "ready"}')
        while not (seat := read_message(await lobby.message()).get("link")):
            pass
        async with await trio.open_tcp_stream("127.0.0.1", process.port) as other:
            page = Tab(other)
            await page.open(f"{seat}socket", origin=f"http://{HOST}")
            while not (state := read_message(await page.message())).get("over"):
                if state.get("asked") is not None:
                    await page.send(b'{"type": "act", "tick": %d, "action": {"base64": "aGVsbG8="}}' % state["asked"])
    return greeting


@pytest.mark.parametrize(
    ("flags", "datalog", "kept", "trials"),
    [
        ([], "", "/.cogment/play.db", 1),
        (["--storage=sqlite:own.db"], "", "/own.db", 1),
        (["--storage=memory:"], "", "in memory", 0),
        (["--storage=none"], "", "not stored (--storage=none)", 0),
        ([], "  datalog: {endpoint: ''}\n", "not stored: datalog.endpoint is empty in their parameters", 0),
    ],
)
async def test_what_people_play_is_stored_where_the_start_says(
    flags: list[str], datalog: str, kept: str, trials: int, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "params.yaml").write_text(PARAMS + datalog)
    command = ("play", "mine", "--params=params.yaml", "--port=0", *flags)
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*command, folder=tmp_path, variables={"TRIO_COGMENT_STORAGE": ""}) as process:
            link = await process.said(_LINK)
            greeting = await playing(process, link[1])
            assert await process.stop() == 0
            await process.read_rest()
    said = re.findall(r"^trials +(.*)$", process.out, re.MULTILINE)
    assert said == [f"{tmp_path}{kept}" if kept.startswith("/") else kept]
    assert greeting["recorded"] is not kept.startswith("not stored")
    if trials:
        async with open_store(f"sqlite:{said[0]}") as store:
            [found] = await store.trials(after=0, limit=9)
            assert found.samples_count == 2


async def test_people_have_the_time_that_a_flag_says_beside_params(tmp_path: Path) -> None:
    """Params files have a limit by themselves: a trial ends when nothing has happened for 30 seconds."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "params.yaml").write_text(PARAMS + "  datalog: {endpoint: 'cogment://discover'}\n")
    command = ("play", "mine", "--params=params.yaml", "--port=0", "--action_seconds=0")
    with trio.fail_after(PATIENCE_SECONDS):
        async with server(*command, folder=tmp_path, variables={"TRIO_COGMENT_STORAGE": "memory:"}) as process:
            link = await process.said(_LINK)
            await playing(process, link[1])
            async with connect(f"grpc://127.0.0.1:{process.port}", variables={}) as client:
                [trial] = await (await client.datastore()).trials()
            assert trial.params.max_inactivity == 0
            assert await process.stop() == 0
