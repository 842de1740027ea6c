"""The web side of a server: its pages are made once, before the first browser comes if there is time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.web.peers import served
from trio_cogment.web import WebSide
from trio_cogment.web.replies import Reply
from trio_cogment.web.routing import AnyRoute, Route, Visit


class Pages:
    """Routes that may fail to be made.

    Attributes:
        made: how often they were.
        failure: of the next time.
    """

    def __init__(self) -> None:
        self.made = 0
        self.failure: OSError | None = None

    def routes(self) -> Iterable[AnyRoute]:
        self.made += 1
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        return [Route("GET", "/page", self.page, right=None)]

    async def page(self, _visit: Visit) -> Reply:
        return Reply(200, b"a page")


async def test_pages_are_made_once_for_all_connections(autojump_clock: object) -> None:
    pages = Pages()
    side = WebSide(routes=pages.routes)
    assert pages.made == 0
    for _ in range(3):
        async with served(side) as there:
            assert (await there.ask("GET", "/page")).body == b"a page"
    assert pages.made == 1


@pytest.mark.parametrize("failure", [None, OSError(24, "too many open files")])
async def test_pages_are_made_before_the_first_browser_comes(failure: OSError | None, autojump_clock: object) -> None:
    """Or tried again, when it comes."""
    pages = Pages()
    pages.failure = failure
    side = WebSide(routes=pages.routes)
    await side.prepare()
    assert pages.made == 1
    async with served(side) as there:
        assert (await there.ask("GET", "/page")).body == b"a page"
    assert pages.made == (1 if failure is None else 2)
