"""The trial datastore: takes the samples of trials, keeps them, and serves them.

A sample is confirmed when it is durable, and making something durable costs a disk about as much for a thousand samples
as for one. So the samples of all trials meet in one queue and are committed in batches, each in one transaction
(`_group_commit`); a stream goes on meanwhile, up to a number of unconfirmed samples, and is then held back. That is the
only back-pressure there is, and it reaches the trial through its data log.

Before that, a sample is converted to the bytes that are stored, without I/O (`_conversion`). Nearly all samples of a
trial have the same layout, which a template learned from an earlier one makes use of.

A storage knows nothing of this: it applies batches and reads (`storage` is the interface). What becomes of a second
sample for the same tick is the same for every storage, and therefore a table (`_write_rules`). Readers that follow a
trial get what is stored, and then what is committed, without a gap: what they are shown is always as of a commit that
has been reported, so an end is never seen before its samples. When a data log goes away without an end, a lease decides
how long to wait for it (`_leases`).
"""

from trio_cogment.servers.datastore._datastore import Datastore
from trio_cogment.servers.datastore._following import SampleReader
from trio_cogment.servers.datastore._services import datastore_services
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import StoredTrial, TrialEnd, TrialStore

__all__ = [
    "Datastore",
    "SampleReader",
    "StoredTrial",
    "TrialEnd",
    "TrialStore",
    "datastore_services",
    "open_store",
]
