"""The services in front of a datastore."""

from __future__ import annotations

from purerpc import Service

from trio_cogment.api import datalog_pb2
from trio_cogment.base.services import LOG_EXPORTER, SERVICES, ServiceKind
from trio_cogment.rpc import bind
from trio_cogment.servers.datastore._datalog_service import DatalogService, LogExporterService
from trio_cogment.servers.datastore._datastore import Datastore
from trio_cogment.servers.datastore._trial_service import TrialService


def datastore_services(datastore: Datastore) -> list[Service]:
    """Return the services of a datastore: data logs under both their names, and the trials."""
    intake = datastore.sink()
    return [
        bind(SERVICES[ServiceKind.DATALOG].descriptor(), DatalogService(intake)),
        bind(datalog_pb2.DESCRIPTOR.services_by_name[LOG_EXPORTER], LogExporterService(intake)),
        bind(
            SERVICES[ServiceKind.DATASTORE].descriptor(),
            TrialService(
                datastore.store,
                datastore.writer,
                datastore.owners,
                datastore.retention,
                datastore.config,
                datastore.trouble_of,
            ),
        ),
    ]
