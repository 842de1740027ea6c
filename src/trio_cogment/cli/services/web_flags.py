"""Flags of what a server has for browsers, and the sides that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import applied, as_list, boolean_option, port_option
from trio_cogment.cli.services.types_option import types_option

if TYPE_CHECKING:
    from trio_cogment.base.config import WebConfig
    from trio_cogment.web import OriginPolicy, PageAccess, WebSide
    from trio_cogment.web.routing import AnyRoute

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@record(kw_only=True)
class WebSettings:
    """What a server has for browsers.

    Attributes:
        enabled: its ports serve them.
        hosts: names by which it is known.
        origins: of pages that may use it.
        url: by which browsers find it, behind a reverse proxy; empty: by its own address.
        open_port: of the port that pages of any origin may use; 0: there is none.
        types: names the types of payloads that pages show; see `types_option.load_types`.
        datastore: endpoint of the one that pages show where the server has none; empty: it is discovered.
        model_registry: likewise.
    """

    enabled: bool = True
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    url: str = ""
    open_port: int = 0
    types: str = ""
    datastore: str = ""
    model_registry: str = ""


def web_options(command: _Decorated, *, spec_flags: Sequence[str] = ()) -> _Decorated:
    """Add the flags.

    Args:
        command: to which they are added.
        spec_flags: other names of `--web_spec`.
    """
    options = (
        # The old name of the reference.
        click.option("--actor_http_port", hidden=True, default="0", metavar="PORT"),
        port_option(
            "--actor_web_port",
            default=0,
            variables=["COGMENT_WEB_PROXY_PORT"],
            text="Port for pages of any origin, as with the reference's web proxy, without TLS; 0: none.",
        ),
        origin_options,
        _store_option("--web_model_registry", "TRIO_COGMENT_WEB_MODEL_REGISTRY", "model registry"),
        _store_option("--web_datastore", "TRIO_COGMENT_WEB_DATASTORE", "trial datastore"),
        types_option(
            "--web_spec",
            variable="TRIO_COGMENT_WEB_SPEC",
            text="Types of the payloads that pages show",
            also=spec_flags,
        ),
        boolean_option("--web", variable="TRIO_COGMENT_WEB", text="Serve browsers, on the ports of gRPC."),
    )
    return applied(options, command)


def origin_options(command: _Decorated) -> _Decorated:
    """Add the flags that say who may use what there is for browsers."""
    options = (
        _list_option(
            "--web_allow_origin",
            "TRIO_COGMENT_WEB_ALLOW_ORIGIN",
            metavar="ORIGINS",
            text="Pages of other servers that may use this one, as https://example.org, separated by commas; "
            "repeatable; *: any.",
        ),
        _list_option(
            "--web_host",
            "TRIO_COGMENT_WEB_HOST",
            metavar="NAMES",
            text="Names by which browsers find this server, besides addresses and localhost, separated by commas; "
            "repeatable; *: any.",
        ),
        click.option(
            "--web_url",
            default="",
            metavar="URL",
            envvar="TRIO_COGMENT_WEB_URL",
            show_envvar=True,
            help="Address by which browsers find this server behind a reverse proxy, as https://lab.example.org/cogment.",
        ),
    )
    return applied(options, command)


def _list_option(flag: str, variable: str, *, metavar: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        flag, multiple=True, callback=as_list, metavar=metavar, envvar=variable, show_envvar=True, help=text
    )


def _store_option(flag: str, variable: str, what: str) -> Callable[[_Decorated], _Decorated]:
    text = f"Endpoint of the {what} that pages show where the server has none; by default it is asked of the directory."
    return click.option(flag, default="", metavar="ENDPOINT", envvar=variable, show_envvar=True, help=text)


def web_settings(ctx: click.Context) -> WebSettings:
    """Collect the settings from the flags of `web_options`.

    Raises:
        Failure: a flag has another form.
    """
    old = ctx.params["actor_http_port"]
    if not (old.isascii() and old.isdecimal() and len(old) <= 5):
        raise Failure(f"--actor_http_port: expected a port, got {old!r}")
    open_port = ctx.params["actor_web_port"] or int(old)
    return replace(
        origin_settings(ctx),
        enabled=ctx.params["web"],
        open_port=open_port,
        types=ctx.params["web_spec"],
        datastore=_checked_endpoint("--web_datastore", ctx.params["web_datastore"]),
        model_registry=_checked_endpoint("--web_model_registry", ctx.params["web_model_registry"]),
    )


def _checked_endpoint(flag: str, text: str) -> str:
    if text:
        from trio_cogment.base.endpoints import parse_server_endpoint
        from trio_cogment.base.errors import EndpointError

        try:
            parse_server_endpoint(text, discovery=True, field_name=flag)
        except EndpointError as error:
            raise Failure(str(error)) from None
    return text


def origin_settings(ctx: click.Context) -> WebSettings:
    """Collect the settings from the flags of `origin_options`.

    Raises:
        Failure: a flag has another form.
    """
    settings = WebSettings(
        hosts=ctx.params["web_host"], origins=ctx.params["web_allow_origin"], url=ctx.params["web_url"].rstrip("/")
    )
    if settings.hosts or settings.origins or settings.url:
        from trio_cogment.base.errors import InvalidArgumentError
        from trio_cogment.web.origins import OriginPolicy, PublicAddress

        try:
            OriginPolicy(settings.hosts, settings.origins)
        except InvalidArgumentError as error:
            raise Failure(f"--web_host, --web_allow_origin: {error}") from None
        try:
            PublicAddress.parse(settings.url or "http://localhost")
        except InvalidArgumentError as error:
            raise Failure(f"--web_url: {error}") from None
    return settings


def _policy(settings: WebSettings) -> OriginPolicy:
    """Return who may use what there is for browsers."""
    from trio_cogment.web.origins import OriginPolicy, PublicAddress

    address = PublicAddress.parse(settings.url) if settings.url else None
    return OriginPolicy(settings.hosts, settings.origins, address)


def web_side(
    settings: WebSettings | None,
    config: WebConfig,
    access: PageAccess | None = None,
    routes: Callable[[PageAccess], Iterable[AnyRoute]] | None = None,
) -> WebSide | None:
    """Return what the ports of gRPC have for browsers; None: nothing.

    Args:
        settings: of the flags.
        config: limits.
        access: who is behind the requests of pages.
        routes: returns what is there for pages.
    """
    if settings is None or not settings.enabled:
        return None
    from trio_cogment.web import WebSide

    policy = _policy(settings)
    if access is None or routes is None:
        return WebSide(policy, config=config, access=access)
    return WebSide(policy, config=config, access=access, routes=partial(routes, access))


def refuses_pages(settings: WebSettings | None) -> Callable[[Collection[str], Collection[str]], str]:
    """Return what tells why a request with these fields `Host` and `Origin` is refused; empty: it is not.

    Args:
        settings: of the flags; None: what is allowed without any.
    """
    policy = _policy(settings or WebSettings())

    def refuses(hosts: Collection[str], origins: Collection[str]) -> str:
        admitted = policy.admit(hosts=hosts, origins=origins, secure=False)
        return admitted if isinstance(admitted, str) else ""

    return refuses


def entrance(settings: WebSettings, hosts: Sequence[str], port: int, *, tls: bool) -> str:
    """Return the address of a server's pages, to which their paths are added.

    Args:
        settings: of the flags.
        hosts: on which the server listens.
        port: on which it listens.
        tls: the port is encrypted.
    """
    if settings.url:
        return settings.url
    named = [host for host in (*settings.hosts, *hosts) if host not in ("*", "0.0.0.0", "::", "127.0.0.1", "::1", "")]
    host = named[0] if named else "localhost"
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def open_side(config: WebConfig) -> WebSide:
    """Return what the port has that pages of any origin may use."""
    from trio_cogment.web import OriginPolicy, WebSide
    from trio_cogment.web.origins import ANY

    return WebSide(OriginPolicy([ANY], [ANY]), config=config)
