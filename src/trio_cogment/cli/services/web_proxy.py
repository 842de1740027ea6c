"""`trio-cogment services web_proxy`: its flags, and what it serves."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.base.services import SERVICES, ServiceKind
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import applied, port_option
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.gateway import client_of, orchestrator_of, orchestrator_option
from trio_cogment.cli.services.kept import trials_elsewhere
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.services.types_option import EXPECTED, load_types
from trio_cogment.cli.services.web_flags import origin_options, origin_settings

if TYPE_CHECKING:
    from trio_cogment.access import AccessControl
    from trio_cogment.sdk.spec import Spec
    from trio_cogment.web import PageAccess
    from trio_cogment.web.routing import AnyRoute

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SERVICE = "WEB_PROXY"
_DEFAULT_WEB_PORT = 8080
_LEAST_SECRET_CHARACTERS = 16
_ORCHESTRATOR_FLAG = "--orchestrator_endpoint"


@record(kw_only=True)
class WebProxySettings(ServerSettings):
    """The settings of a web proxy in front of an orchestrator."""

    port: int
    web_port: int
    orchestrator: str
    spec_file: str
    implementation: str
    secret: str = field(default="", repr=False)


def web_proxy_options(command: _Decorated) -> _Decorated:
    """Add the flags of a web proxy."""
    options = (
        directory_options(_SERVICE),
        origin_options,
        service_options(_SERVICE, port=0),
        click.option(
            "--secret",
            default="",
            metavar="TEXT",
            envvar=f"COGMENT_{_SERVICE}_SECRET",
            show_envvar=True,
            help="Signs the tokens of actors; by default the keys of --auth_secret_file do. There has to be one. On "
            "the command line others on the machine can see it.",
        ),
        click.option(
            "--implementation",
            default="web",
            metavar="NAME",
            envvar=f"COGMENT_{_SERVICE}_IMPLEMENTATION",
            show_default=True,
            show_envvar=True,
            help="The implementation of the actors that play here, for the parameters of trials.",
        ),
        click.option(
            "--spec_file",
            "--spec",
            "spec_file",
            default="cogment.yaml",
            metavar="FILE",
            envvar="COGMENT_SPEC_FILE",
            show_default=True,
            show_envvar=True,
            help=f"Types of the payloads: {EXPECTED}.",
        ),
        orchestrator_option(_SERVICE, flag=_ORCHESTRATOR_FLAG, variable="COGMENT_ORCHESTRATOR_ENDPOINT"),
        port_option(
            "--web_port",
            default=_DEFAULT_WEB_PORT,
            variables=[f"COGMENT_{_SERVICE}_WEB_PORT"],
            text="Port of HTTP; the same as --port: one for both; 0: any free one.",
        ),
    )
    return applied(options, command)


@click.command("web_proxy")
@web_proxy_options
@click.pass_context
def web_proxy(ctx: click.Context, /, **_options: Any) -> None:
    """Run a web proxy in front of an orchestrator: trials are started and played by HTTP and JSON.

    An actor whose implementation is that of the proxy plays by requests: it joins a trial, and acts on each
    observation. GET /openapi.json describes the routes.
    """
    run_web_proxy(web_proxy_settings(ctx))


def web_proxy_settings(ctx: click.Context) -> WebProxySettings:
    """Collect the settings from the flags of `web_proxy_options`.

    Raises:
        Failure: the flags contradict each other, or there is no secret.
    """
    common = common_settings(ctx)
    secret = ctx.params["secret"]
    if not secret and common["auth"].secret_file is None:
        raise Failure(
            f"--secret: expected one (COGMENT_{_SERVICE}_SECRET): {_LEAST_SECRET_CHARACTERS} characters or more that "
            "nobody can guess, such as what `openssl rand -hex 32` prints; or --auth_secret_file, made by "
            "`trio-cogment token init`. It signs the tokens of actors"
        )
    if secret and len(secret) < _LEAST_SECRET_CHARACTERS:
        raise Failure(f"--secret: expected {_LEAST_SECRET_CHARACTERS} characters or more that nobody can guess")
    if not ctx.params["implementation"]:
        raise Failure("--implementation: expected a name")
    endpoint = orchestrator_of(ctx, has_directory=common["directory"] is not None, flag=_ORCHESTRATOR_FLAG)
    return WebProxySettings(
        **{**common, "web": origin_settings(ctx)},
        port=ctx.params["port"],
        web_port=ctx.params["web_port"],
        orchestrator=endpoint,
        spec_file=ctx.params["spec_file"],
        implementation=ctx.params["implementation"],
        secret=secret,
    )


# What is served


def run_web_proxy(settings: WebProxySettings) -> None:
    """Serve until SIGTERM or SIGINT; the actors that play here are lost to their trials then.

    Raises:
        Failure: it cannot start.
    """
    spec = cache(partial(_read_spec, settings.spec_file))
    application = Application(
        name="web_proxy",
        ports=[settings.port, settings.web_port],
        check=spec,
        open=partial(_opened, settings, spec),
    )
    run_server(settings, application)


def _read_spec(value: str) -> Spec:
    spec = load_types("--spec_file", value)
    if spec is None:
        raise Failure("--spec_file: expected a project file, or a name of types")
    return spec


def _signing(settings: WebProxySettings, resources: Resources) -> AccessControl:
    """Return what signs the tokens of actors."""
    if not settings.secret:
        assert resources.access.tokens is not None, "one of the two is there"
        return resources.access.tokens
    from trio_cogment.access import AccessControl, Keys, Rules
    from trio_cogment.base.host import Host

    host = Host()
    key = hashlib.sha256(b"web proxy of trio-cogment\0" + settings.secret.encode()).digest()
    return AccessControl(
        Rules(keys=Keys((key,))), wall_clock=host.wall_clock, new_id=host.new_id, platform=resources.access.tokens
    )


@asynccontextmanager
async def _opened(settings: WebProxySettings, spec: Callable[[], Spec], resources: Resources) -> AsyncIterator[Running]:
    from trio_cogment.gateways.rest import RestProxy, rest_routes

    proxy = RestProxy(
        spec(),
        signing=_signing(settings, resources),
        control=resources.access.control,
        implementation=settings.implementation,
        config=settings.configuration.web_proxy,
        recheck_seconds=settings.configuration.rpc.access_recheck_seconds,
    )
    actors = SERVICES[ServiceKind.ACTOR].full_name
    services = [service for service in proxy.participants.services() if service.name == actors]

    def routes(_access: PageAccess) -> Sequence[AnyRoute]:
        return rest_routes(proxy)

    async with client_of(settings.orchestrator, settings, resources, spec=spec()) as client:
        proxy.connect(await client.orchestrator())
        yield Running(
            services=[services, []],
            offers=proxy.participants.offers,
            routes=routes,
            entrance=False,
            kept=trials_elsewhere(settings.orchestrator),
        )
