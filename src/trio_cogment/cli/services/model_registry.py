"""`trio-cogment services model_registry`: its flags, and what it serves.

The folder of archived versions is here for `serve` too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.configuration import Configuration, setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FolderOrBucket, applied
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.figures import registry_shown
from trio_cogment.cli.services.kept import shown_place
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running

if TYPE_CHECKING:
    from trio_cogment.servers.model_registry import ModelRegistry

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "MODEL_REGISTRY"
_DEFAULT_ARCHIVE = Path(".cogment") / "model_registry"
#: The value of `--archive_dir` with which `serve` has no model registry.
_NO_ARCHIVE = Path("none")
#: In help.
_BUCKET = "s3://BUCKET/PREFIX"


# Flags


@record(kw_only=True)
class ModelRegistrySettings(ServerSettings):
    """The settings of a model registry."""

    port: int
    archive: Path | str


def _archive_option(text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        "--archive_dir",
        type=FolderOrBucket(path_type=Path),
        default=_DEFAULT_ARCHIVE,
        metavar="PLACE",
        envvar=f"COGMENT_{_SERVICE}_ARCHIVE_DIR",
        show_default=True,
        show_envvar=True,
        help=text,
    )


def model_registry_options(command: _Decorated) -> _Decorated:
    """Add the flags of a model registry."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=SERVICES[ServiceKind.MODEL_REGISTRY].default_port),
        setting_options("model_registry.cache_max_items", "model_registry.sent_version_chunk_bytes"),
        _archive_option(f"Folder of archived versions, created if it does not exist; or a bucket, {_BUCKET}."),
    )
    return applied(options, command)


def model_registry_settings(ctx: click.Context) -> ModelRegistrySettings:
    """Collect the settings from the flags of `model_registry_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    return ModelRegistrySettings(**common_settings(ctx), port=ctx.params["port"], archive=ctx.params["archive_dir"])


def archive_option(command: _Decorated) -> _Decorated:
    """Add where `serve` archives versions of models."""
    return _archive_option(f"Folder of the model registry, or a bucket, {_BUCKET}; {_NO_ARCHIVE}: no model registry.")(
        command
    )


def models_option(command: _Decorated) -> _Decorated:
    """Add where `play` finds the models that are agents of an experiment."""
    return _archive_option(
        f"Folder of the model registry, or a bucket, {_BUCKET}, if agents of an experiment are stored models; "
        f"{_NO_ARCHIVE}: there is none."
    )(command)


def archive_folder(ctx: click.Context) -> Path | str | None:
    """Return the value of the flag of `archive_option`; None: there is no model registry."""
    folder: Path | str = ctx.params["archive_dir"]
    return None if folder == _NO_ARCHIVE else folder


@click.command("model_registry")
@model_registry_options
@click.pass_context
def model_registry(ctx: click.Context, /, **_options: Any) -> None:
    """Run a model registry."""
    run_model_registry(model_registry_settings(ctx))


# What is served


def run_model_registry(settings: ModelRegistrySettings) -> None:
    """Serve until SIGTERM or SIGINT; then end the calls of clients that follow models, and return.

    Raises:
        Failure: it cannot start.
    """
    application = Application(
        name="model_registry",
        ports=[settings.port],
        open=partial(_opened, settings),
    )
    run_server(settings, application)


@asynccontextmanager
async def _opened(settings: ModelRegistrySettings, resources: Resources) -> AsyncIterator[Running]:
    from trio_cogment.servers.model_registry import model_registry_services

    async with (
        opened_registry(settings.archive, settings.configuration) as registry,
        registry_shown(resources.figures, registry, settings.archive),
    ):

        async def stop() -> None:
            registry.stop()

        kept = {"models": shown_place(settings.archive)}
        yield Running(services=[model_registry_services(registry)], stop=stop, kept=kept)


@asynccontextmanager
async def opened_registry(archive: Path | str, configuration: Configuration) -> AsyncIterator[ModelRegistry]:
    """Run a model registry over a folder, or a bucket.

    Raises:
        Failure: it cannot be used.
    """
    from trio_cogment.servers.model_registry import ModelRegistry

    async with AsyncExitStack() as opened:
        try:
            registry = ModelRegistry(archive, config=configuration.model_registry)
            await opened.enter_async_context(registry)
        except CogmentError as error:
            raise Failure(f"--archive_dir: {archive}: {error}") from error
        yield registry
