"""Figures of what a server process has, for its metrics: of a platform, and of a model registry with its folder."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_cogment.base.metrics.services import ServiceMetrics
    from trio_cogment.platform import Platform
    from trio_cogment.servers.model_registry import ModelRegistry

#: Between two looks at what is in the folder of a model registry: there may be very many files.
FOLDER_SECONDS = 60.0


def add_platform(figures: ServiceMetrics | None, platform: Platform) -> None:
    """Have metrics show the datastore of a platform, if it has one; None: there are no metrics."""
    if figures is not None and platform.datastore is not None:
        figures.add("trial_datastore", platform.datastore.figures)


@asynccontextmanager
async def registry_shown(
    figures: ServiceMetrics | None, registry: ModelRegistry | None, archive: Path | str | None
) -> AsyncIterator[None]:
    """Have metrics show a model registry for the time of the block.

    Args:
        figures: None: there are no metrics.
        registry: None: there is none.
        archive: its folder, whose size is looked at in a thread, or the address of its bucket, whose size is not.
    """
    if figures is None or registry is None:
        yield
        return
    import trio  # the module is imported before the ports are taken, when nothing slow may be

    from trio_cogment.base.metrics.services import disk_figures

    models = registry.models
    size: dict[str, float] = {}

    def read() -> dict[str, float]:
        found = {"models": len(models), "model_versions": sum(len(model.numbers) for model in models.values())}
        return {**found, **size, **(disk_figures(archive) if isinstance(archive, Path) else {})}

    async def look(folder: Path) -> None:
        while True:
            size["store_size_bytes"] = await trio.to_thread.run_sync(folder_bytes, folder, abandon_on_cancel=True)
            await trio.sleep(FOLDER_SECONDS)

    figures.add("model_registry", read)
    async with trio.open_nursery() as nursery:
        if isinstance(archive, Path):
            nursery.start_soon(look, archive)
        yield
        nursery.cancel_scope.cancel()


def folder_bytes(folder: Path) -> int:
    """Return what the files of a folder take; it blocks. What goes away meanwhile does not count."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except OSError:
                pass
    return total
