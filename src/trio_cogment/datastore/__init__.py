"""The trial datastore: takes the samples of trials, keeps them, and serves them."""

from trio_cogment.datastore._datastore import Datastore as Datastore
from trio_cogment.datastore._following import SampleReader as SampleReader
from trio_cogment.datastore._services import datastore_services as datastore_services
from trio_cogment.datastore.opening import open_store as open_store
from trio_cogment.datastore.storage import TrialEnd as TrialEnd
from trio_cogment.datastore.storage import TrialStore as TrialStore
