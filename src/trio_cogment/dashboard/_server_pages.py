"""The server itself for pages: its figures, its metrics, and what a directory knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from trio_cogment.api.directory_pb2 import FullServiceData
from trio_cogment.base.about import API_VERSION, GRPC_VERSION, overall_load
from trio_cogment.base.errors import UnimplementedError
from trio_cogment.base.services import kind_of_type
from trio_cogment.dashboard._rows import Row
from trio_cogment.servers.discovery import DirectoryClient
from trio_cogment.servers.orchestrator import Orchestrator
from trio_cogment.web.replies import Reply, json_data
from trio_cogment.web.routing import AnyRoute, Route, Visit

_INQUIRE = "/cogmentAPI.DirectorySP/Inquire"
#: Metrics that a page shows; there may be many labels.
_MAX_METRICS = 500
_MAX_SERVICES = 1000


class Measured(Protocol):
    """A registry of metrics, as prometheus_client has it."""

    def collect(self) -> Iterable[Any]:
        """Return all metrics, each with its samples."""


class ServerPages:
    """See the module.

    Args:
        orchestrator: whose figures they are.
        directory: None: there is none.
        metrics: None: nothing is measured.
        clock: returns the time, in seconds on any scale.
        began: when the server started, on that scale.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        *,
        directory: DirectoryClient | None,
        metrics: Measured | None,
        clock: Callable[[], float],
        began: float,
    ) -> None:
        self._orchestrator = orchestrator
        self._directory = directory
        self._metrics = metrics
        self._clock = clock
        self._began = began

    def routes(self, prefix: str) -> list[AnyRoute]:
        """Return the routes.

        Args:
            prefix: of their paths.
        """
        return [Route("GET", f"{prefix}/directory", self.directory, right=_INQUIRE)]

    def figures(self) -> dict[str, Row]:
        """Return figures, as rows by their names."""
        trials = list(self._orchestrator.trials)
        queues = [trial.queues for trial in trials]
        figures: dict[str, Any] = {
            "version": GRPC_VERSION,
            "API": API_VERSION,
            "seconds since the start": int(self._clock() - self._began),
            "load (%)": overall_load(),
            "trials known": len(trials),
            "trials with tasks": self._orchestrator.running_trials,
            "messages that wait for participants": sum(one.messages for one in queues),
            "samples that wait for data logs": sum(one.samples for one in queues),
            "samples lost": self._orchestrator.lost_samples,
        }
        rows: dict[str, Row] = {name: {"name": name, "value": value} for name, value in figures.items()}
        return rows | self._measured()

    def _measured(self) -> dict[str, Row]:
        rows: dict[str, Row] = {}
        for family in self._metrics.collect() if self._metrics is not None else ():
            for sample in family.samples:
                if sample.name.endswith(("_bucket", "_created")):
                    continue
                labels = ",".join(f"{key}={value}" for key, value in sample.labels.items())
                name = f"{sample.name}{{{labels}}}" if labels else sample.name
                rows[f"metric {name}"] = {"name": name, "value": f"{sample.value:g}", "metric": True}
                if len(rows) >= _MAX_METRICS:
                    return rows
        return rows

    async def directory(self, _visit: Visit) -> Reply:
        """Answer with what is registered."""
        if self._directory is None:
            raise UnimplementedError("this server knows no directory")
        found = await self._directory.inquire()
        return json_data({"services": [_service(one) for one in found[:_MAX_SERVICES]], "all": len(found)})


def _service(service: FullServiceData) -> Row:
    kind = kind_of_type(service.details.type)
    endpoint = service.endpoint
    return {
        "id": service.service_id,
        "kind": "?" if kind is None else kind.value,
        "endpoint": f"{endpoint.host}:{endpoint.port}" if endpoint.port else endpoint.host,
        "protocol": endpoint.Protocol.Name(endpoint.protocol) if endpoint.protocol in (0, 1, 2, 3) else "?",
        "permanent": service.permanent,
        "properties": dict(service.details.properties),
    }
