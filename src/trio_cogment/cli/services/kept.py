"""What a server keeps, and where, in full."""

from __future__ import annotations

from pathlib import Path

from trio_cogment.cli.services.directory_flags import DirectorySettings
from trio_cogment.cli.services.trial_datastore import StorageSettings


def what_is_kept(
    storage: StorageSettings | None, archive: Path | None, directory: DirectorySettings | None, trainer: Path | None
) -> dict[str, str]:
    """Return what a server keeps -> where, in full.

    Args:
        storage: of trials; None: there is no datastore.
        archive: of models; None: there is no model registry.
        directory: of a server with an endpoint, somebody else's.
        trainer: the folder of runs; None: there is no trainer.
    """
    kept = {}
    if storage is not None:
        kept["trials"] = storage.address if storage.file is None else str(storage.file.absolute())
    if archive is not None:
        kept["models"] = str(archive.absolute())
    if directory is not None and directory.endpoint is None:
        kept["directory"] = str(Path(directory.file).absolute()) if directory.file else "memory:"
    if trainer is not None:
        kept["runs"] = str(trainer.absolute())
    return {what: "in memory" if where == "memory:" else where for what, where in kept.items()}
