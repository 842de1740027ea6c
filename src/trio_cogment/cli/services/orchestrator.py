"""`trio-cogment services orchestrator`: its flags, what is checked before it starts, and what it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import UnavailableError
from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.configuration import setting_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.logs import log_options
from trio_cogment.cli.options import FilePath, applied, as_list, port_option
from trio_cogment.cli.services.default_params import (
    ParamsSettings,
    check_hooks,
    load_default_params,
    warn_of_unknown_classes,
)
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.dm_env_rpc import read_profile
from trio_cogment.cli.services.figures import add_platform, registry_shown
from trio_cogment.cli.services.kept import what_is_kept
from trio_cogment.cli.services.legacy_gateway import legacy_option, read_legacy_profile
from trio_cogment.cli.services.model_registry import opened_registry
from trio_cogment.cli.services.pages import opened_pages
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ANYWHERE, ServerSettings, common_settings, server_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.services.trainer import trainer_with_everything
from trio_cogment.cli.services.trial_datastore import StorageSettings, opened_storage
from trio_cogment.cli.services.types_option import load_types
from trio_cogment.cli.services.web_flags import web_options, web_settings
from trio_cogment.cli.services.welcome import Welcome

if TYPE_CHECKING:
    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.base.metrics import OrchestratorMetrics
    from trio_cogment.gateways.dm_env_rpc import Profile
    from trio_cogment.gateways.legacy import LegacyProfile
    from trio_cogment.platform import Extension
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.servers.datastore import TrialStore
    from trio_cogment.servers.model_registry import ModelRegistry

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

DEFAULT_PORT = SERVICES[ServiceKind.LIFECYCLE].default_port


# Flags


@record(kw_only=True)
class OrchestratorSettings(ServerSettings):
    """The settings of an orchestrator.

    With a storage it has a datastore too, with an archive a model registry, with a profile a gateway for dm_env_rpc,
    with a legacy one participants of the legacy API, and with the folder of a trainer that. If it welcomes, it tells
    people what there is and where data is kept, and says goodbye.
    """

    lifecycle_port: int
    actor_port: int
    params: Path | None = None
    pre_trial_hooks: Sequence[str] = ()
    storage: StorageSettings | None = None
    archive: Path | str | None = None
    profile: Path | None = None
    trainer: Path | None = None
    trainer_spec: str = ""
    legacy: Path | None = None
    welcomes: bool = False


def orchestrator_options(*, host: str = ANYWHERE) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the flags of an orchestrator, without its ports.

    Args:
        host: where it listens by default.
    """
    path = FilePath(path_type=Path)
    options = (
        partial(web_options, spec_flags=["--spec"]),
        log_options,
        directory_options("ORCHESTRATOR"),
        setting_options(
            "orchestrator.gc_frequency", "orchestrator.checkpoint_ticks", "orchestrator.checkpoint_seconds"
        ),
        click.option(
            "--status_file",
            type=path,
            envvar="COGMENT_STATUS_FILE",
            show_envvar=True,
            help="File or FIFO to which I (initializing), R (ready) and T (terminated) are written.",
        ),
        click.option(
            "--pre_trial_hooks",
            multiple=True,
            envvar="COGMENT_PRE_TRIAL_HOOKS",
            show_envvar=True,
            callback=as_list,
            metavar="ENDPOINTS",
            help="Pre-trial hooks in the order of calls, separated by commas (blanks in the environment); repeatable.",
        ),
        click.option(
            "--params",
            type=path,
            envvar="COGMENT_DEFAULT_PARAMS_FILE",
            show_envvar=True,
            help="YAML file with the default parameters of trials (trial_params).",
        ),
        legacy_option,
        setting_options("outgoing.allowed_networks", "outgoing.denied_networks"),
        server_options("ORCHESTRATOR", old_names=["PROMETHEUS_PORT"], host=host),
    )
    return lambda command: applied(options, command)


def orchestrator_settings(
    ctx: click.Context,
    *,
    lifecycle_port: int,
    actor_port: int,
    storage: StorageSettings | None = None,
    archive: Path | str | None = None,
    profile: Path | None = None,
    trainer: Path | None = None,
    trainer_spec: str = "",
    welcomes: bool = False,
) -> OrchestratorSettings:
    """Collect the settings from the flags of `orchestrator_options`.

    Raises:
        Failure: the flags contradict each other.
    """
    return OrchestratorSettings(
        **common_settings(ctx),
        lifecycle_port=lifecycle_port,
        actor_port=actor_port,
        params=ctx.params["params"],
        pre_trial_hooks=ctx.params["pre_trial_hooks"],
        status_file=ctx.params["status_file"],
        storage=storage,
        archive=archive,
        profile=profile,
        trainer=trainer,
        trainer_spec=trainer_spec,
        legacy=ctx.params["legacy"],
        web=web_settings(ctx),
        welcomes=welcomes,
    )


@click.command()
@port_option(
    "--lifecycle_port",
    default=DEFAULT_PORT,
    variables=["COGMENT_LIFECYCLE_PORT", "TRIAL_LIFECYCLE_PORT"],
    text="Port of the trial lifecycle service; 0: any free one.",
)
@port_option(
    "--actor_port",
    default=DEFAULT_PORT,
    variables=["COGMENT_ACTOR_PORT", "TRIAL_ACTOR_PORT"],
    text="Port for client actors; the same port means one server with both services.",
)
@setting_options("orchestrator.datastore", "orchestrator.resume")
@orchestrator_options()
@click.pass_context
def orchestrator(ctx: click.Context, /, lifecycle_port: int, actor_port: int, **_options: Any) -> None:
    """Run an orchestrator.

    With --datastore and --resume its trials outlive it: they go on when it is started again, or at another one.
    """
    settings = orchestrator_settings(ctx, lifecycle_port=lifecycle_port, actor_port=actor_port)
    configured = settings.configuration.orchestrator
    if configured.resume and not configured.datastore:
        raise Failure("--resume: expected --datastore, too: the trial datastore that keeps the trials which go on")
    run_orchestrator(settings)


# What is served


def run_orchestrator(settings: OrchestratorSettings) -> None:
    """Serve until SIGTERM or SIGINT, then end the trials, tell their participants, and return.

    Raises:
        Failure: it cannot start.
    """
    application = orchestrator_application(settings)
    if settings.welcomes:
        application = replace(application, ready="", welcome=Welcome(services=application.name))
    run_server(settings, application)


def orchestrator_application(settings: OrchestratorSettings) -> Application:
    """Return what an orchestrator serves, and where.

    Raises:
        Failure: with these settings no trial could start.
    """
    check_hooks(settings.pre_trial_hooks, discovery=settings.directory is not None, legacy=settings.legacy is not None)
    parts = {
        "orchestrator": True,
        "trial_datastore": settings.storage is not None,
        "model_registry": settings.archive is not None,
        "dm_env_rpc": settings.profile is not None,
        "trainer": settings.trainer is not None,
        "legacy": settings.legacy is not None,
        "directory": settings.directory is not None and settings.directory.endpoint is None,
    }
    legacy = cache(partial(_legacy_profile, settings))
    of_params = ParamsSettings(
        settings.params,
        settings.legacy,
        hooks=bool(settings.pre_trial_hooks),
        discovery=settings.directory is not None,
        datastore=settings.storage is not None,
    )
    params = cache(lambda: load_default_params(of_params, legacy()))
    profile = cache(partial(_profile, settings))
    types = cache(partial(load_types, "--trainer_spec", settings.trainer_spec))
    page_types = cache(partial(load_types, "--web_spec", "" if settings.web is None else settings.web.types))

    def check() -> None:
        profile()
        specs = {"--trainer_spec": types(), "--web_spec": page_types()}
        warn_of_unknown_classes(of_params, params(), specs)

    of_pages = settings.web is not None and settings.web.types
    reads = bool(settings.params or settings.profile or settings.legacy or settings.trainer_spec or of_pages)

    return Application(
        name=", ".join(name for name, served in parts.items() if served),
        ports=[settings.lifecycle_port, settings.actor_port],
        check=check if reads else None,
        open=partial(_opened, settings, params, profile, legacy, types, page_types),
        # As of the directory: launch files of the reference wait for it.
        ready="Trial Lifecycle service active",
    )


@asynccontextmanager
async def _opened(
    settings: OrchestratorSettings,
    params: Callable[[], TrialParams | None],
    profile: Callable[[], Profile | None],
    legacy: Callable[[], LegacyProfile | None],
    types: Callable[[], Spec | None],
    page_types: Callable[[], Spec | None],
    resources: Resources,
) -> AsyncIterator[Running]:
    from trio_cogment.base.config import PlatformConfig
    from trio_cogment.platform import open_platform

    configuration = settings.configuration
    async with (
        _storage(settings, resources) as store,
        _registry(settings) as registry,
        open_platform(
            config=PlatformConfig(
                orchestrator=configuration.orchestrator,
                rpc=configuration.rpc,
                outgoing=configuration.outgoing,
                datastore=configuration.datastore,
                default_params=params(),
                pre_trial_hooks=_hooks(settings, legacy()),
                client_tls=resources.client_tls,
            ),
            directory=resources.directory,
            access=resources.access.tokens,
            metrics=_metrics(settings, resources),
            store=store,
            model_registry=registry,
            extensions=_extensions_of(settings, resources, profile(), _legacy_of_clients(settings, legacy()), types()),
        ) as platform,
        opened_pages(settings, resources, platform, page_types()) as routes,
        registry_shown(resources.figures, registry, settings.archive),
    ):
        add_platform(resources.figures, platform)
        still_running = 0

        async def stop() -> None:
            nonlocal still_running
            still_running = platform.orchestrator.running_trials
            if registry is not None:
                registry.stop()
            await platform.stop()

        def goodbye() -> str:
            parts = ["stopped"]
            handed_over = platform.orchestrator.handed_over
            if handed_over:
                parts.append(f"trials that were handed over: {handed_over}")
            if still_running > handed_over:
                parts.append(f"running trials that were ended: {still_running - handed_over}")
            if platform.datastore is not None:
                parts.append(f"samples stored: {platform.datastore.stored_samples}")
            if platform.orchestrator.lost_samples:
                parts.append(f"samples lost: {platform.orchestrator.lost_samples}")
            return "; ".join(parts)

        is_registered = settings.directory is not None and settings.directory.auto_register
        if platform.resumes and not is_registered:  # else as soon as it is known where it is reached
            if store is None and (endpoint := await _own_endpoint(settings, resources)):
                platform.reached_at(endpoint)
            else:
                platform.resume()
        lifecycle, *others = platform.services
        yield Running(
            services=[[lifecycle], others],
            stop=stop,
            routes=routes,
            kept=_kept(settings),
            controller=platform.controller,
            reached_at=platform.reached_at,
            goodbye=goodbye,
        )


async def _own_endpoint(settings: OrchestratorSettings, resources: Resources) -> str:
    """Return where this orchestrator is reached: a datastore elsewhere knows its trials by that. Empty: nowhere."""
    from trio_cogment.servers.discovery.registration import host_finder

    find_host = host_finder(f"ipv4:{host}:0" for host in settings.hosts)
    try:
        return str(GrpcEndpoint(await find_host(), resources.ports[0]))
    except UnavailableError:  # the machine has no address
        return ""


def _kept(settings: OrchestratorSettings) -> dict[str, str]:
    if not settings.welcomes:  # it has no storage of its own
        return {"trials": "stored only where their parameters name a data log (datalog.endpoint)"}
    return what_is_kept(settings.storage, settings.archive, settings.directory, settings.trainer)


@asynccontextmanager
async def _storage(settings: OrchestratorSettings, resources: Resources) -> AsyncIterator[TrialStore | None]:
    if settings.storage is None:
        yield None
        return
    async with opened_storage(settings.storage, resources) as store:
        yield store


@asynccontextmanager
async def _registry(settings: OrchestratorSettings) -> AsyncIterator[ModelRegistry | None]:
    if settings.archive is None:
        yield None
        return
    async with opened_registry(settings.archive, settings.configuration) as registry:
        yield registry


def _profile(settings: OrchestratorSettings) -> Profile | None:
    return None if settings.profile is None else read_profile("--dm_env_rpc", settings.profile)


def _legacy_profile(settings: OrchestratorSettings) -> LegacyProfile | None:
    return None if settings.legacy is None else read_legacy_profile("--legacy", settings.legacy)


def _hooks(settings: OrchestratorSettings, legacy: LegacyProfile | None) -> tuple[str, ...]:
    return tuple(settings.pre_trial_hooks) or (() if legacy is None else legacy.pre_trial_hooks)


def _legacy_of_clients(settings: OrchestratorSettings, legacy: LegacyProfile | None) -> LegacyProfile | None:
    """Return the profile for the trials of old clients: with hooks, say, they get what others get."""
    if legacy is None or not (settings.params is not None or _hooks(settings, legacy)):
        return legacy
    return replace(legacy, params=None)


def _metrics(settings: OrchestratorSettings, resources: Resources) -> OrchestratorMetrics | None:
    if resources.registry is None:
        return None
    from trio_cogment.base.metrics.prometheus import PrometheusMetrics

    return PrometheusMetrics(settings.configuration.metrics, registry=resources.registry)


def _extensions_of(
    settings: OrchestratorSettings,
    resources: Resources,
    profile: Profile | None,
    legacy: LegacyProfile | None,
    types: Spec | None,
) -> list[Extension]:
    """Return the gateways, and the trainer, that the flags ask for; `types` are those that the trainer shows."""
    found: list[Extension] = []
    if profile is not None:
        from trio_cogment.gateways.dm_env_rpc import DmEnvRpcGateway

        found.append(DmEnvRpcGateway(profile, config=settings.configuration.dm_env_rpc))
    if settings.trainer is not None:
        found.append(
            trainer_with_everything(
                settings.trainer,
                settings,
                resources,
                spec=types,
                datastore=settings.storage is not None,
                model_registry=settings.archive is not None,
            )
        )
    if legacy is not None:
        from trio_cogment.gateways.legacy import LegacyGateway

        found.append(LegacyGateway(legacy, rpc_config=settings.configuration.rpc))
    return found
