"""The places where a server stores things, in full; and whether trials are stored that it has part in."""

from __future__ import annotations

from pathlib import Path

from trio_cogment.base.endpoints import DISCOVER
from trio_cogment.base.object_store import is_object_url
from trio_cogment.base.postgresql import is_database_url, shown
from trio_cogment.cli.services.directory_flags import DirectorySettings
from trio_cogment.cli.services.trial_datastore import StorageSettings


def what_is_kept(
    storage: StorageSettings | None,
    archive: Path | str | None,
    directory: DirectorySettings | None,
    trainer: Path | None,
) -> dict[str, str]:
    """Return what a server keeps -> where, in full.

    Args:
        storage: of trials; None: they are not stored.
        archive: of models; None: there is no model registry.
        directory: of a server with an endpoint, somebody else's.
        trainer: the folder of runs; None: there is no trainer.
    """
    kept = {"trials": _storage(storage)}
    if archive is not None:
        kept["models"] = shown_place(archive)
    if directory is not None and directory.endpoint is None:
        kept["directory"] = shown_file(directory.file)
    if trainer is not None:
        kept["runs"] = str(trainer.absolute())
    return kept


def shown_place(place: Path | str) -> str:
    """Return a place in full: of a path, from the root on; an address as it is."""
    return place if isinstance(place, str) else str(place.absolute())


def shown_file(file: str) -> str:
    """Return where a directory keeps its registrations, in full."""
    if is_database_url(file):
        return shown(file)
    return shown_place(file if is_object_url(file) else Path(file)) if file else "in memory"


def trials_elsewhere(orchestrator: str) -> dict[str, str]:
    """Return what a server says of the trials that it has an orchestrator elsewhere start."""
    return {"trials": f"run by the orchestrator at {orchestrator}, which says whether they are stored"}


def where_trials_are(storage: StorageSettings | None, datalog: str, *, own_datalog: bool = False) -> dict[str, str]:
    """Return what a server says of the trials that it starts itself, all with the same parameters.

    Args:
        storage: of the server; None: it has none.
        datalog: the endpoint of their data log; empty: they have none.
        own_datalog: the participants of the server have a data log, which is found before the storage.
    """
    if datalog == DISCOVER and own_datalog:
        return {"trials": "given to the data log of the participants"}
    if datalog == DISCOVER or (storage is None and not datalog):
        return {"trials": _storage(storage)}
    if datalog:
        return {"trials": f"stored by the data log at {datalog}"}
    return {"trials": "not stored: datalog.endpoint is empty in their parameters"}


def _storage(storage: StorageSettings | None) -> str:
    if storage is None:
        return "not stored (--storage=none)"
    return storage.place


def where_at(address: str) -> str:
    """Return where a storage is, by its address as `open_store` takes it."""
    if address == "memory:":
        return "in memory"
    scheme, _, path = address.partition(":")
    return str(Path(path).absolute()) if scheme == "sqlite" else shown(address)
