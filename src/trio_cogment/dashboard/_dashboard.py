"""The dashboard of one platform: its routes, and what they have in common."""

from __future__ import annotations

import trio

from trio_cogment._version import __version__
from trio_cogment.access import PAGES
from trio_cogment.base.host import Host
from trio_cogment.base.services import ServiceKind
from trio_cogment.dashboard._board import Board
from trio_cogment.dashboard._elsewhere import VisitorCalls
from trio_cogment.dashboard._live import Budget, Tab
from trio_cogment.dashboard._log import LogRing
from trio_cogment.dashboard._models import ModelPages
from trio_cogment.dashboard._server_pages import Measured, ServerPages
from trio_cogment.dashboard._stored import StoredPages
from trio_cogment.dashboard._trial_pages import TrialPages
from trio_cogment.dashboard._views import LogView, ServerView, TrialsView, TrialView
from trio_cogment.platform import Platform
from trio_cogment.sdk import DatastoreClient, ModelRegistryClient
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.web.assets import Assets
from trio_cogment.web.common_pages import about
from trio_cogment.web.replies import Reply, json_data, redirect
from trio_cogment.web.routing import AnyRoute, Route, Socket, SocketRoute, Visit

#: Where the dashboard is.
PATH = "/dashboard"
_API = f"{PATH}/api"
_RIGHT = PAGES + "dashboard"


class Dashboard:
    """See the package; made when the first of its routes is wanted.

    Args:
        platform: what is shown.
        calls: make the calls of visitors.
        log: the last records of the log.
        types: of payloads.
        directory: what is registered where; None: nothing is shown of it.
        metrics: what is measured; None: nothing.
        host: the clock.
        began: when the server started, on Trio's clock.
    """

    def __init__(
        self,
        platform: Platform,
        calls: VisitorCalls,
        log: LogRing,
        *,
        types: Spec | None,
        directory: DirectoryClient | None,
        metrics: Measured | None,
        host: Host,
        began: float,
    ) -> None:
        self._calls = calls
        self._log = log
        self._types = types
        self._board = Board(platform.orchestrator, trio.current_time)
        self._budget = Budget()
        self._trials = TrialPages(calls.here, self._board, lambda: platform.orchestrator.default_params)
        self._stored = StoredPages(self._datastore_of, version=__version__, wall_clock=host.wall_clock)
        self._models = ModelPages(self._registry_of)
        self._server = ServerPages(
            platform.orchestrator, directory=directory, metrics=metrics, clock=trio.current_time, began=began
        )
        self._assets = Assets("trio_cogment.dashboard")

    def routes(self) -> list[AnyRoute]:
        """Return the routes of all its pages."""
        return [
            *self._assets.routes(f"{PATH}/assets"),
            Route("GET", "/", _home, right=None, foreign=True),
            Route("GET", PATH, self._page, right=_RIGHT),
            Route("GET", f"{_API}/me", self._me, right=_RIGHT),
            SocketRoute(f"{PATH}/live", self._live, right=_RIGHT),
            *self._trials.routes(_API),
            *self._stored.routes(_API),
            *self._models.routes(_API),
            *self._server.routes(_API),
        ]

    async def _datastore_of(self, visit: Visit) -> DatastoreClient:
        return DatastoreClient(await self._calls.of(ServiceKind.DATASTORE, visit), spec=self._types)

    async def _registry_of(self, visit: Visit) -> ModelRegistryClient:
        return ModelRegistryClient(await self._calls.of(ServiceKind.MODEL_REGISTRY, visit))

    async def _page(self, visit: Visit) -> Reply:
        return self._assets.reply(visit.request, "dashboard.html")

    async def _me(self, visit: Visit) -> Reply:
        grant = visit.who.grant
        return json_data({"name": grant.name, "roles": sorted(role.value for role in grant.roles)})

    async def _live(self, visit: Visit, socket: Socket) -> None:
        board, identity = self._board, visit.who
        tab = Tab(
            visit,
            socket,
            trials=lambda search: TrialsView(board, identity, search),
            trial=lambda trial_id, samples: TrialView(board, identity, trial_id, samples),
            log=lambda: LogView(self._log),
            figures=lambda: ServerView(self._server.figures),
            datastore=lambda: self._datastore_of(visit),
            budget=self._budget,
        )
        await tab.run()


async def _home(visit: Visit) -> Reply:
    """Lead people to the dashboard, and tell programs what this is."""
    request = visit.request
    if not request.wants_html:
        return await about(visit)
    return redirect(request, PATH)
