"""The services in front of a datastore."""

from __future__ import annotations

from purerpc import Service

from trio_cogment.api import datalog_pb2, trial_datastore_pb2
from trio_cogment.datastore.datalog_service import DatalogService, LogExporterService
from trio_cogment.datastore.datastore import Datastore
from trio_cogment.datastore.trial_service import TrialService
from trio_cogment.rpc import bind


def datastore_services(datastore: Datastore) -> list[Service]:
    """Return what of a datastore is to be served: data logs under both their names, and the trials."""
    intake = datastore.sink()
    data_logs = datalog_pb2.DESCRIPTOR.services_by_name
    trials = trial_datastore_pb2.DESCRIPTOR.services_by_name
    return [
        bind(data_logs["DatalogSP"], DatalogService(intake)),
        bind(data_logs["LogExporterSP"], LogExporterService(intake)),
        bind(trials["TrialDatastoreSP"], TrialService(datastore.store, datastore.writer, datastore.config)),
    ]
