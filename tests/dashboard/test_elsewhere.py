"""The dashboard of an orchestrator whose datastore and model registry are other servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio.testing

from tests.access.keys import KEYS, control, grant, token_text
from tests.access.test_ownership import World, world
from tests.access.test_stored_ownership import add_sample, add_trial
from tests.dashboard.test_pages import API, Visitor
from tests.web.peers import Tab, serving
from trio_cogment import open_platform
from trio_cogment.access import AccessControl, Revoked, Role, Rules
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.base.services import ServiceKind
from trio_cogment.dashboard import open_dashboard
from trio_cogment.dashboard._elsewhere import reading
from trio_cogment.rpc import CallOpener
from trio_cogment.web import PageAccess, WebSide


@dataclass
class Near:
    """A dashboard without stores of its own, and who looks at it."""

    far: World
    side: WebSide
    access: PageAccess

    def visitor(self, name: str) -> Visitor:
        return Visitor(self.side, self.access.mint(self.far.named(name), 1000.0, ()))


@asynccontextmanager
async def near(far: World, keys: AccessControl | None) -> AsyncIterator[Near]:
    """Have one in front of a platform that asks for tokens; it can sign some itself, or not."""
    async with far.channel(None) as channel, open_platform() as platform:

        async def find(kind: ServiceKind) -> CallOpener:
            assert kind in (ServiceKind.DATASTORE, ServiceKind.MODEL_REGISTRY)
            return channel

        async with open_dashboard(platform, find=find, mint=None if keys is None else keys.mint) as routes:
            access = PageAccess()
            yield Near(far, WebSide(routes=routes, access=access), access)


async def test_everybody_sees_what_they_may_see_there(tmp_path: Path) -> None:
    async with world() as far, near(far, control()) as here:
        async with far.channel(far.named("alice")) as alice:
            await add_trial(alice, "hers")
            await add_sample(alice, "hers")
        for name, found in (("alice", ["hers"]), ("bob", []), ("eve", ["hers"]), ("root", ["hers"])):
            listed = await here.visitor(name).json("GET", f"{API}/stored")
            assert [one["id"] for one in listed["trials"]] == found, name
            answer = await here.visitor(name).ask("GET", f"{API}/stored/hers/samples")
            assert answer.status == (200 if found else 404), name
            assert len(answer.body.splitlines()) == 1


@pytest.mark.parametrize(
    ("roles", "narrowed"),
    [
        ([Role.ADMIN], [Role.OBSERVER]),
        ([Role.ADMIN, Role.OPERATOR, Role.DIRECTORY], [Role.OBSERVER, Role.OPERATOR]),
        ([Role.OBSERVER, Role.WORKER], [Role.OBSERVER]),
        ([Role.OPERATOR], [Role.OPERATOR]),
        ([Role.PARTICIPANT], []),
    ],
)
def test_nobody_is_given_more_than_reading_needs(roles: list[Role], narrowed: list[Role]) -> None:
    assert reading(grant(*roles)) == grant(*narrowed)


async def test_the_curves_of_a_trial() -> None:
    async with world() as far, near(far, control()) as here:
        async with far.channel(far.named("alice")) as alice:
            await add_trial(alice, "hers")
            await add_sample(alice, "hers")
        token = f"Bearer {here.access.mint(far.named('eve'), 1000.0, ())}"
        async with serving(*trio.testing.memory_stream_pair(), here.side) as there:
            tab = Tab(there.stream)
            await tab.open("/dashboard/live", authorization=token)
            await tab.send(json.dumps({"view": "trial", "id": "hers"}).encode())
            while "sample" not in (news := json.loads(await tab.message())):
                pass
            assert news["sample"]["tick"] == 0


@pytest.mark.parametrize(("name", "status"), [("alice", 403), ("eve", 401), ("root", 401)])
async def test_without_keys_only_who_may_see_everything_gets_there(name: str, status: int) -> None:
    """These are refused there, because that server asks for a token; one that does not would show them all."""
    async with world() as far, near(far, None) as here:
        answer = await here.visitor(name).ask("GET", f"{API}/stored")
        assert answer.status == status, answer.body


async def test_nothing_is_found(autojump_clock: object) -> None:
    async def find(_kind: ServiceKind) -> CallOpener:
        raise FailedPreconditionError("nobody has registered one")

    async with open_platform() as platform, open_dashboard(platform, find=find) as routes:
        access = PageAccess()
        visitor = Visitor(WebSide(routes=routes, access=access), access.mint(grant(Role.ADMIN), 1000.0, ()))
        for path, kind in (("stored", "datastore"), ("models", "modelregistry")):
            answer = await visitor.ask("GET", f"{API}/{path}")
            assert answer.status == 501
            text = f"this server has no {kind}, and none was found: nobody has registered one"
            assert json.loads(answer.body)["message"] == text


async def test_what_a_server_does_not_have_is_said_in_words() -> None:
    async with open_platform() as platform, open_dashboard(platform) as routes:
        access = PageAccess()
        visitor = Visitor(WebSide(routes=routes, access=access), access.mint(grant(Role.ADMIN), 1000.0, ()))
        for path, text in (("stored", "this server stores no trials"), ("models", "this server has no models")):
            answer = await visitor.ask("GET", f"{API}/{path}")
            assert (answer.status, json.loads(answer.body)["message"]) == (501, text)


async def test_who_looks_elsewhere_is_known_there_by_what_it_came_with() -> None:
    """So what the other server has revoked counts, also for who has come by the printed address."""
    keys = control()
    async with world() as far, far.channel(None) as channel, open_platform() as platform:

        async def find(_kind: ServiceKind) -> CallOpener:
            return channel

        async with open_dashboard(platform, find=find, mint=keys.mint) as routes:
            access = PageAccess(keys)
            side = WebSide(routes=routes, access=access)
            entered = access.enter(access.new_code())
            for token, entry in ((token_text(grant(Role.ADMIN)), "t1"), (entered, "name=pages")):
                visitor = Visitor(side, token)
                assert (await visitor.ask("GET", f"{API}/stored")).status == 200
                far.access.adopt(Rules(keys=KEYS, revoked=Revoked.parse(entry)))
                assert (await visitor.ask("GET", f"{API}/stored")).status == 401
                far.access.adopt(Rules(keys=KEYS))
