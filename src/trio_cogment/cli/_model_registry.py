"""A model registry as a server process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from trio_cogment.cli._serving import Program, Running, Surroundings, run_server
from trio_cogment.cli._settings import Configuration, Failure, ModelRegistrySettings
from trio_cogment.errors import CogmentError
from trio_cogment.model_registry import LocalBlobs, ModelRegistry, model_registry_services
from trio_cogment.platform import wall_clock_ns


def run_model_registry(settings: ModelRegistrySettings) -> None:
    """Serve until SIGTERM or SIGINT; then tell those who follow models, and return.

    Raises:
        Failure: it cannot start.
    """
    run_server(settings, partial(_program, settings))


def _program(settings: ModelRegistrySettings) -> Program:
    return Program(name="model_registry", ports=[settings.port], open=partial(_opened, settings))


@asynccontextmanager
async def _opened(settings: ModelRegistrySettings, _surroundings: Surroundings) -> AsyncIterator[Running]:
    async with opened_registry(settings.archive, settings.configuration) as registry:

        async def stop() -> None:
            registry.stop()

        yield Running(services=[model_registry_services(registry)], stop=stop)


@asynccontextmanager
async def opened_registry(archive: Path, configuration: Configuration) -> AsyncIterator[ModelRegistry]:
    """Run a model registry over a folder.

    Raises:
        Failure: the folder cannot be used.
    """
    registry = ModelRegistry(LocalBlobs(archive), wall_clock=wall_clock_ns, config=configuration.model_registry)
    async with AsyncExitStack() as opened:
        try:
            await opened.enter_async_context(registry)
        except CogmentError as error:
            raise Failure(f"--archive_dir: {archive}: {error}") from error
        yield registry
