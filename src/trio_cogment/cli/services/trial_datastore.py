"""`trio-cogment services trial_datastore`: its flags, and what it serves.

Where trials are stored is here for `serve` too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.postgresql import shown
from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

if TYPE_CHECKING:
    from trio_cogment.servers.datastore import TrialStore

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "TRIAL_DATASTORE"
#: The reference's default file, and that of `serve`.
DEFAULT_FILE = Path(".cogment") / "trial_datastore.db"
#: That of `play`, which often runs beside a `serve` in the same folder.
PLAY_FILE = DEFAULT_FILE.with_name("play.db")
#: Of the reference.
_DEFAULT_MEMORY_BYTES = 1073741824
_MAX_MEMORY_BYTES = 2**32 - 1
_MAX_FILE_BYTES = 2**62
#: Levels of zstd, as `servers.datastore.chunks` has them, which takes time to import.
DEFAULT_COMPRESSION, _MOST_COMPRESSION = 1, 22


# Flags


@record(kw_only=True)
class StorageSettings:
    """Where trials are stored.

    Attributes:
        address: as `open_store` takes it, where it is not a file.
        file: an SQLite database; None: it is not a file.
        file_bytes: how large it may become; 0: as large as there is room.
        memory_bytes: how much memory they may take there.
        durability: what a confirmed sample in a file survives, `full` or `batch`.
        compression: of the samples in a file: a level of zstd; 0: none.
    """

    address: str = "memory:"
    file: Path | None = None
    file_bytes: int = 0
    memory_bytes: int
    durability: str = "full"
    compression: int = DEFAULT_COMPRESSION

    @property
    def is_durable(self) -> bool:
        """Whether trials are there after the process."""
        return self.file is not None or self.address != "memory:"

    @property
    def place(self) -> str:
        """Where that is, as people are told: a path in full, `in memory`, or the address without its password."""
        if self.file is not None:
            return str(self.file.absolute())
        return "in memory" if self.address == "memory:" else shown(self.address)


@record(kw_only=True)
class DatastoreSettings(ServerSettings):
    """The settings of a trial datastore."""

    port: int
    storage: StorageSettings


def _keeping_options(command: _Decorated) -> _Decorated:
    """Add what holds for stored trials wherever the flags of a command put them."""
    options = (
        setting_options("datastore.keep_trials"),
        click.option(
            "--file_storage_max_size",
            type=click.IntRange(0, _MAX_FILE_BYTES),
            default=0,
            metavar="BYTES",
            envvar=f"COGMENT_{_SERVICE}_FILE_STORAGE_MAX_SIZE",
            show_envvar=True,
            help="How large the SQLite database may become with its log; then samples are refused. The default is as "
            "large as there is room.",
        ),
        _durability_option,
        compression_option,
    )
    return applied(options, command)


def compression_option(command: _Decorated) -> _Decorated:
    """Add how samples in a file are compressed."""
    option = click.option(
        "--file_storage_compression",
        type=click.IntRange(0, _MOST_COMPRESSION),
        default=DEFAULT_COMPRESSION,
        metavar="LEVEL",
        envvar=f"COGMENT_{_SERVICE}_FILE_STORAGE_COMPRESSION",
        show_default=True,
        show_envvar=True,
        help="Compress samples in a file with zstd: 1 is fastest, 22 smallest, 0 is not at all.",
    )
    return option(command)


def _durability_option(command: _Decorated) -> _Decorated:
    option = click.option(
        "--durability",
        type=click.Choice(["full", "batch"]),
        default="full",
        envvar=f"COGMENT_{_SERVICE}_DURABILITY",
        show_default=True,
        show_envvar=True,
        help="What a confirmed sample in a file survives: a loss of power (full) or the end of the process (batch).",
    )
    return option(command)


def datastore_options(command: _Decorated) -> _Decorated:
    """Add the flags of a trial datastore."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=SERVICES[ServiceKind.DATASTORE].default_port),
        _keeping_options,
        click.option(
            "--file_storage",
            type=FilePath(path_type=Path),
            is_flag=False,
            flag_value=str(DEFAULT_FILE),
            default=None,
            metavar="[=PATH]",
            envvar=f"COGMENT_{_SERVICE}_FILE_STORAGE_PATH",
            show_envvar=True,
            help=f"Store trials in an SQLite database (without a path: {DEFAULT_FILE}); the default is in memory.",
        ),
        click.option(
            "--storage",
            default="",
            metavar="ADDRESS",
            envvar=f"COGMENT_{_SERVICE}_STORAGE",
            show_envvar=True,
            help="Where trials are stored, in the place of --file_storage: postgresql://USER@HOST/DATABASE, which any "
            "number of datastores share, sqlite:PATH, memory:, or an address for an installed plugin.",
        ),
        click.option(
            "--memory_storage_max_samples_size",
            type=click.IntRange(1, _MAX_MEMORY_BYTES),
            default=_DEFAULT_MEMORY_BYTES,
            metavar="BYTES",
            envvar=f"COGMENT_{_SERVICE}_MEMORY_STORAGE_MAX_SAMPLE_SIZE",
            show_default=True,
            show_envvar=True,
            help="Limit for samples in memory; above it the samples of ended trials are dropped, trial by trial.",
        ),
    )
    return applied(options, command)


def datastore_settings(ctx: click.Context) -> DatastoreSettings:
    """Collect the settings from the flags of `datastore_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    memory_bytes: int = ctx.params["memory_storage_max_samples_size"]
    address: str = ctx.params["storage"].strip()
    if address:
        if ctx.params["file_storage"] is not None:
            raise Failure("--storage: expected no --file_storage beside it")
        storage = _storage_at(ctx, address, memory_bytes)
    else:
        storage = StorageSettings(
            file=ctx.params["file_storage"],
            file_bytes=ctx.params["file_storage_max_size"],
            memory_bytes=memory_bytes,
            durability=ctx.params["durability"],
            compression=ctx.params["file_storage_compression"],
        )
    if storage is None:
        raise Failure("--storage: a trial datastore without a storage has nothing to do")
    return DatastoreSettings(**common_settings(ctx), port=ctx.params["port"], storage=storage)


def storage_options(file: Path) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds where a server with an orchestrator stores its trials.

    Args:
        file: where it does by default.
    """
    storage = click.option(
        "--storage",
        default=f"sqlite:{file}",
        metavar="ADDRESS",
        envvar="TRIO_COGMENT_STORAGE",
        show_default=True,
        show_envvar=True,
        help="Where trials are stored: sqlite:PATH, postgresql://USER@HOST/DATABASE, memory:, none, or an address for "
        "an installed plugin.",
    )
    return lambda command: storage(_keeping_options(command))


def storage_settings(ctx: click.Context) -> StorageSettings | None:
    """Collect the settings from the flags of `storage_options`; None: trials are not stored.

    Raises:
        Failure: the value is not understood.
    """
    return _storage_at(ctx, ctx.params["storage"].strip(), _DEFAULT_MEMORY_BYTES)


def _storage_at(ctx: click.Context, address: str, memory_bytes: int) -> StorageSettings | None:
    scheme, colon, path = address.partition(":")
    if address == "none":
        return None
    common: dict[str, Any] = {"memory_bytes": memory_bytes, "durability": ctx.params["durability"]}
    common["compression"] = ctx.params["file_storage_compression"]
    if colon and scheme == "memory" and not path:
        return StorageSettings(**common)
    if scheme == "sqlite" and path:
        return StorageSettings(file=Path(path), file_bytes=ctx.params["file_storage_max_size"], **common)
    if colon and scheme not in ("", "memory", "sqlite"):  # a database, or of a plugin, as is seen when it is opened
        return StorageSettings(address=address, **common)
    raise Failure(f"--storage: expected sqlite:PATH, postgresql://..., memory: or none, got {address!r}")


@click.command("trial_datastore")
@datastore_options
@click.pass_context
def trial_datastore(ctx: click.Context, /, **_options: Any) -> None:
    """Run a trial datastore."""
    run_datastore(datastore_settings(ctx))


# What is served


def run_datastore(settings: DatastoreSettings) -> None:
    """Serve until SIGTERM or SIGINT; return when all accepted samples are stored.

    Raises:
        Failure: it cannot start.
    """
    application = Application(
        name="trial_datastore",
        ports=[settings.port],
        open=partial(_opened, settings),
    )
    run_server(settings, application)


@asynccontextmanager
async def _opened(settings: DatastoreSettings, resources: Resources) -> AsyncIterator[Running]:
    from trio_cogment.servers.datastore import Datastore, datastore_services

    async with (
        opened_storage(settings.storage, resources, flag="--file_storage") as store,
        Datastore(store, config=settings.configuration.datastore) as datastore,
    ):
        if resources.figures is not None:
            resources.figures.add("trial_datastore", datastore.figures)
        yield Running(services=[datastore_services(datastore)], kept={"trials": settings.storage.place})


@asynccontextmanager
async def opened_storage(
    settings: StorageSettings, resources: Resources | None = None, *, flag: str = "--storage"
) -> AsyncIterator[TrialStore]:
    """Open the storage that the flags name.

    Args:
        settings: the flags.
        resources: have what its metrics go to, if there are any.
        flag: names another place.

    Raises:
        Failure: another server uses the file, or the folder of the default file cannot be made.
        CogmentError: the storage cannot be opened.
    """
    from trio_cogment.base.host.files import LockedError
    from trio_cogment.servers.datastore.opening import open_store

    address = settings.address
    if settings.file is not None:
        address = f"sqlite:{settings.file}"
        if settings.file.parent == DEFAULT_FILE.parent:
            # This folder is the project's own, so it need not exist.
            try:
                DEFAULT_FILE.parent.mkdir(mode=0o700, exist_ok=True)
            except OSError as error:
                raise Failure(f"{DEFAULT_FILE.parent}: {error.strerror or error}") from error
    opened = open_store(
        address,
        durability=settings.durability,
        memory_bytes=settings.memory_bytes,
        file_bytes=settings.file_bytes,
        compression=settings.compression,
    )
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(opened)
        except CogmentError as error:
            if isinstance(error.__cause__, LockedError):
                raise Failure(f"{error}; {flag} names another file") from error
            raise
        if resources is not None:
            _show_figures(settings, store, resources)
        yield store


def _show_figures(settings: StorageSettings, store: TrialStore, resources: Resources) -> None:
    """Have metrics show what a storage takes, and what it counts of itself."""
    from trio_cogment.servers.datastore.opening import figures_of, memory_of

    own = figures_of(store)
    if resources.registry is not None and own is not None:
        from trio_cogment.base.metrics.stores import StoreMetrics

        StoreMetrics(resources.registry, own)
    if resources.figures is None:
        return
    if settings.file is not None:
        from trio_cogment.base.metrics.services import file_figures

        resources.figures.add("trial_datastore", partial(file_figures, settings.file, settings.file_bytes))
    elif (memory := memory_of(store)) is not None:
        limit = settings.memory_bytes
        resources.figures.add("trial_datastore", lambda: {"store_size_bytes": memory(), "store_limit_bytes": limit})
