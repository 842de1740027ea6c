"""`trio-cogment services trainer`: its flags, and what it serves.

The trainer of `serve` is here, too.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.endpoints import DISCOVER, parse_server_endpoint
from trio_cogment.base.errors import EndpointError
from trio_cogment.base.records import record
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.gateway import ORCHESTRATOR_FLAGS, client_of
from trio_cogment.cli.services.kept import trials_elsewhere
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import THIS_MACHINE, ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.services.types_option import load_types, types_option

if TYPE_CHECKING:
    from trio_cogment.base.metrics import TrainerMetrics
    from trio_cogment.sdk import ModelRegistryClient
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.trainer import PlatformTrainer, Where

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "TRAINER"
DEFAULT_PORT = 50055
_DEFAULT_FOLDER = Path(".cogment") / "trainer"
_MAX_COUNT = 2**31 - 1
_MAX_GPUS = 64


# Flags


@record(kw_only=True)
class TrainerSettings(ServerSettings):
    """The settings of a trainer."""

    port: int
    folder: Path
    cpus: int | None
    memory_mb: int | None
    gpus: tuple[int, ...] | None
    max_runs: int
    orchestrator: str
    datastore: str
    model_registry: str
    spec: str


def _folder_option(flag: str, *, text: str, default: Path | None) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        flag,
        type=FilePath(path_type=Path),
        default=default,
        metavar="PATH",
        envvar=f"COGMENT_{_SERVICE}_FOLDER",
        show_default=default is not None,
        show_envvar=True,
        help=text,
    )


def trainer_option(command: _Decorated) -> _Decorated:
    """Add the folder with which `serve` has a trainer, and the types that it knows."""
    text = "Run a trainer, with its files in this folder. Everybody who reaches the port can then start programs."
    types = types_option("--trainer_spec", variable="COGMENT_TRAINER_SPEC", text="The types that the trainer shows")
    return applied((types, _folder_option("--trainer", text=text, default=None)), command)


def _as_gpus(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[int, ...] | None:
    if value == "auto":
        return None
    if re.fullmatch("[0-9]{1,2}", value) and int(value) <= _MAX_GPUS:
        return tuple(range(int(value)))
    if re.fullmatch("([0-9]{1,2},)+[0-9]{0,2}", value):
        return tuple(sorted({int(gpu) for gpu in value.split(",") if gpu}))
    raise click.BadParameter(f"expected auto, how many, or their ids with commas, such as 0,2 or 3, got {value!r}")


def _as_server(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if value:
        try:
            parse_server_endpoint(value, discovery=True, field_name="")
        except EndpointError as error:
            raise click.BadParameter(str(error)) from None
    return value


def trainer_options(command: _Decorated) -> _Decorated:
    """Add the flags of a trainer."""
    options = (
        directory_options(_SERVICE),
        service_options(_SERVICE, port=DEFAULT_PORT, host=THIS_MACHINE),
        setting_options("trainer.credits_enforced"),
        *(
            click.option(
                f"--{name}",
                type=click.IntRange(1, _MAX_COUNT),
                default=None,
                metavar="NUMBER",
                envvar=f"COGMENT_{_SERVICE}_{name.upper()}",
                show_envvar=True,
                help=text,
            )
            for name, text in (
                ("max_runs", "How many runs go on at a time; the default is 1000."),
                ("memory_mb", "How much memory runs may ask for, in MiB; the default is all of this machine."),
                ("cpus", "How many processors runs may ask for; the default is all of this machine."),
            )
        ),
        click.option(
            "--gpus",
            callback=_as_gpus,
            default="auto",
            metavar="GPUS",
            envvar=f"COGMENT_{_SERVICE}_GPUS",
            show_default=True,
            show_envvar=True,
            help="The GPUs of runs: auto, how many, or their ids with commas.",
        ),
        *(
            click.option(
                *flags,
                name,
                callback=_as_server,
                default="",
                metavar="ENDPOINT",
                envvar=f"COGMENT_{_SERVICE}_{name.upper()}",
                show_envvar=True,
                help=f"{text}: grpc://host:port, or {DISCOVER}.",
            )
            for name, flags, text in (
                ("model_registry", ["--model_registry"], "Where workers keep the versions of their models"),
                ("datastore", ["--datastore"], "Which trial datastore has the samples of those trials"),
                ("orchestrator", ORCHESTRATOR_FLAGS, "Where runs of trials start them"),
            )
        ),
        types_option("--spec", variable="COGMENT_TRAINER_SPEC", text="The types of the payloads of trials"),
        _folder_option("--folder", text="Where runs are stored, and have their files.", default=_DEFAULT_FOLDER),
    )
    return applied(options, command)


def trainer_settings(ctx: click.Context) -> TrainerSettings:
    """Collect the settings from the flags of `trainer_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    common = common_settings(ctx)
    names = ("port", "folder", "cpus", "memory_mb", "gpus", "orchestrator", "datastore", "model_registry", "spec")
    if ctx.params["datastore"] and not ctx.params["orchestrator"]:
        raise Failure("--datastore: expected --orchestrator, too: the samples are those of its trials")
    if ctx.params["spec"] and not ctx.params["datastore"]:
        raise Failure("--spec: expected --datastore, too: payloads are those of its samples")
    for name in ("orchestrator", "datastore", "model_registry"):
        if ctx.params[name].startswith(DISCOVER) and common["directory"] is None:
            raise Failure(f"--{name}: {ctx.params[name]}: discovery needs a directory (--directory_endpoint)")
    given = {name: ctx.params[name] for name in names}
    return TrainerSettings(**common, **given, max_runs=ctx.params["max_runs"] or 1000)


@click.command("trainer")
@trainer_options
@click.pass_context
def trainer(ctx: click.Context, /, **_options: Any) -> None:
    """Run a trainer: it starts training programs, and stores and streams what they report.

    Whoever reaches its port can start programs on this machine; by default it listens on 127.0.0.1 only.
    """
    run_trainer(trainer_settings(ctx))


# What is served


def run_trainer(settings: TrainerSettings) -> None:
    """Serve until SIGTERM or SIGINT; then end all workers, and return.

    Raises:
        Failure: it cannot start.
    """
    spec = cache(partial(load_types, "--spec", settings.spec))
    application = Application(
        name="trainer",
        ports=[settings.port],
        check=spec if settings.spec else None,
        open=partial(_opened, settings, spec),
    )
    run_server(settings, application)


@asynccontextmanager
async def _opened(
    settings: TrainerSettings, spec: Callable[[], Spec | None], resources: Resources
) -> AsyncIterator[Running]:
    from trio_cogment.trainer import PlatformTrainer, this_machine

    capacity = this_machine(
        cpus=settings.cpus, memory_mb=settings.memory_mb, gpus=settings.gpus, runs=settings.max_runs
    )
    configuration = settings.configuration
    variables = {
        "COGMENT_ORCHESTRATOR": settings.orchestrator,
        "COGMENT_DATASTORE": settings.datastore,
        "COGMENT_MODEL_REGISTRY": settings.model_registry,
    }
    variables = {name: value for name, value in variables.items() if value}
    if settings.directory is not None and settings.directory.endpoint is not None:
        variables["COGMENT_DIRECTORY"] = str(settings.directory.endpoint)
    made = PlatformTrainer(
        settings.folder,
        capacity=capacity,
        address=address_of(settings, resources),
        variables=variables,
        config=configuration.trainer,
        workers=configuration.workers,
        metrics=_metrics(resources),
        access=resources.access.tokens,
    )
    async with _platform(settings, spec(), resources) as (where, models), made.opened(where, models=models) as opened:
        yield Running(services=[opened.services], stop=opened.stop, kept=_kept(settings))


def _kept(settings: TrainerSettings) -> dict[str, str]:
    kept = {"runs": str(settings.folder.absolute())}
    if settings.datastore:
        return kept | {"trials": f"stored in the datastore at {settings.datastore}"}
    return kept | (trials_elsewhere(settings.orchestrator) if settings.orchestrator else {})


@asynccontextmanager
async def _platform(
    settings: TrainerSettings, spec: Spec | None, resources: Resources
) -> AsyncIterator[tuple[Where | None, ModelRegistryClient | None]]:
    """Give where trials are, and models, if the flags say so."""
    endpoint = settings.orchestrator or settings.model_registry
    if not endpoint:
        yield None, None
        return
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.trainer import Where

    async with client_of(endpoint, settings, resources, spec=spec) as client:
        models = await client.model_registry(settings.model_registry) if settings.model_registry else None
        where = None
        if settings.orchestrator:
            datastore = await client.datastore(settings.datastore) if settings.datastore else None
            orchestrator, account = await client.orchestrator(), resources.access.account
            where = Where(orchestrator, datastore, settings.datastore, spec or Spec(), account)
        yield where, models


def address_of(settings: ServerSettings, resources: Resources) -> str:
    """Return where the processes of this machine reach the server's first port."""
    host = settings.hosts[0]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]:{resources.ports[-1]}" if ":" in host else f"{host}:{resources.ports[-1]}"


def trainer_with_everything(
    folder: Path,
    settings: ServerSettings,
    resources: Resources,
    *,
    spec: Spec | None,
    datastore: bool,
    model_registry: bool,
) -> PlatformTrainer:
    """Return the trainer of `serve`.

    Args:
        folder: with its files.
        settings: of the server.
        resources: of the process.
        spec: the types of payloads; None: it knows none.
        datastore: the server has one.
        model_registry: the server has one.
    """
    from trio_cogment.trainer import PlatformTrainer

    address = address_of(settings, resources)
    here = {
        "COGMENT_ORCHESTRATOR": True,
        "COGMENT_DATASTORE": datastore,
        "COGMENT_MODEL_REGISTRY": model_registry,
        "COGMENT_DIRECTORY": settings.directory is not None and settings.directory.endpoint is None,
    }
    return PlatformTrainer(
        folder,
        address=address,
        variables={name: f"grpc://{address}" for name, is_here in here.items() if is_here},
        config=settings.configuration.trainer,
        workers=settings.configuration.workers,
        metrics=_metrics(resources),
        access=resources.access.tokens,
        spec=spec,
    )


def _metrics(resources: Resources) -> TrainerMetrics | None:
    if resources.registry is None:
        return None
    from trio_cogment.base.metrics.runs import PrometheusTrainerMetrics

    return PrometheusTrainerMetrics(resources.registry)
