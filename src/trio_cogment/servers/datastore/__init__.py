"""The trial datastore: takes the samples of trials, keeps them, and serves them."""

from trio_cogment.servers.datastore._datastore import Datastore
from trio_cogment.servers.datastore._following import SampleReader
from trio_cogment.servers.datastore._services import datastore_services
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import TrialEnd, TrialStore

__all__ = [
    "Datastore",
    "SampleReader",
    "TrialEnd",
    "TrialStore",
    "datastore_services",
    "open_store",
]
