"""`trio-cogment serve`: everything in one process, on one port."""

from __future__ import annotations

from typing import Any

import click

from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.options import port_option
from trio_cogment.cli.services.directory_flags import own_directory_option
from trio_cogment.cli.services.dm_env_rpc import gateway_option
from trio_cogment.cli.services.model_registry import archive_folder, archive_option
from trio_cogment.cli.services.orchestrator import (
    DEFAULT_PORT,
    orchestrator_options,
    orchestrator_settings,
    run_orchestrator,
)
from trio_cogment.cli.services.settings import THIS_MACHINE
from trio_cogment.cli.services.trainer import trainer_option
from trio_cogment.cli.services.trial_datastore import DEFAULT_FILE, storage_options, storage_settings


@click.command()
@port_option("--port", default=DEFAULT_PORT, text="TCP port; 0: any free one.")
@own_directory_option
@gateway_option
@trainer_option
@archive_option
@setting_options("orchestrator.resume")
@storage_options(DEFAULT_FILE)
@orchestrator_options(host=THIS_MACHINE)
@click.pass_context
def serve(ctx: click.Context, /, port: int, **_options: Any) -> None:
    """Serve everything on one port: orchestrator, trial datastore, model registry and directory.

    Only programs on this machine reach it, unless --host says otherwise. With --dm_env_rpc, clients of dm_env_rpc take
    parts in trials, too; with --trainer, runs of training programs and of trials can be submitted.
    """
    settings = orchestrator_settings(
        ctx,
        lifecycle_port=port,
        actor_port=port,
        storage=storage_settings(ctx),
        archive=archive_folder(ctx),
        profile=ctx.params["dm_env_rpc"],
        trainer=ctx.params["trainer"],
        trainer_spec=ctx.params["trainer_spec"],
        welcomes=True,
    )
    run_orchestrator(settings)
