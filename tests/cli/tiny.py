"""A second service in the frame of servers: a data log that knows nothing, with a command of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import click
import trio

from trio_cogment.api import datalog_pb2, trial_datastore_pb2
from trio_cogment.base.about import About
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.cli import main
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services import services
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.rpc import bind

STORE = trial_datastore_pb2.DESCRIPTOR.services_by_name["TrialDatastoreSP"]
LOG = datalog_pb2.DESCRIPTOR.services_by_name["DatalogSP"]


@asynccontextmanager
async def opened(broken: str, said: trio.Path | None, resources: Resources) -> AsyncIterator[Running]:
    async def stop() -> None:
        if said is not None:
            await said.write_text(f"{await said.read_text()} stopped")

    if said is not None:
        told = {name: getattr(resources, name) is not None for name in ("client_tls", "directory", "registry")}
        await said.write_text(" ".join(name for name, there in told.items() if there))
    if broken == "open":
        raise FailedPreconditionError("the store is of a newer version")
    async with trio.open_nursery():
        if broken == "inside":
            raise FailedPreconditionError("the store is locked")
        if broken == "bug":
            raise RuntimeError("never thought of")
        yield Running(services=[[bind(STORE, About()), bind(LOG, About())]], stop=stop)


@click.command()
@service_options("TRIAL_DATASTORE", port=9003)
@directory_options("TRIAL_DATASTORE")
@click.option("--broken", default="")
@click.option("--said", type=click.Path(path_type=trio.Path), default=None)
@click.pass_context
def tiny(ctx: click.Context, /, port: int, broken: str, said: trio.Path | None, **_options: Any) -> None:
    """Run it."""

    def check() -> None:
        if broken == "check":
            raise Failure("--broken: so it is")

    application = Application(
        name="tiny",
        ports=[port],
        check=check,
        open=lambda resources: opened(broken, said, resources),
    )
    run_server(ServerSettings(**common_settings(ctx)), application)


if __name__ == "__main__":
    services.add_command(tiny, aliases=("small",))
    main()
