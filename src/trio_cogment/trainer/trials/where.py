"""Places of the trials of runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from trio_cogment.rpc import CallOpener
from trio_cogment.sdk import DatastoreClient
from trio_cogment.sdk.spec import Spec


@dataclass(frozen=True, slots=True)
class Where:
    """Where the trials of runs are.

    Attributes:
        opener: calls the orchestrator.
        datastore: has the samples of trials; None: there is no telemetry of them.
        datalog: the endpoint of its data log, for trials that name none.
        spec: the types of payloads.
        account: by which the orchestrator knows the trainer; empty: that is not known.
    """

    opener: CallOpener
    datastore: DatastoreClient | None = None
    datalog: str = ""
    spec: Spec = field(default_factory=Spec)
    account: str = ""
