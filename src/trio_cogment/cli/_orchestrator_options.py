"""The flags of an orchestrator alone, and those of the reference that are not built yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from trio_cogment.cli._directory_options import directory_options
from trio_cogment.cli._flags import applied
from trio_cogment.cli._options import (
    FilePath,
    as_list,
    common_settings,
    log_options,
    overridden,
    server_options,
)
from trio_cogment.cli._settings import Failure, OrchestratorSettings, StorageSettings

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_MOST_DIGITS = 9


def _as_count(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    if value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS:
        return int(value)
    raise click.BadParameter(f"expected a number of starts, 0 or more, got {value!r}")


def orchestrator_options(command: _Decorated) -> _Decorated:
    """Add what an orchestrator has besides its ports."""
    path = FilePath(path_type=Path)
    options = (
        *(_refused(*flag) for flag in _NOT_BUILT),
        log_options,
        directory_options("ORCHESTRATOR"),
        click.option(
            "--gc_frequency",
            callback=_as_count,
            metavar="STARTS",
            envvar="COGMENT_GC_FREQUENCY",
            show_envvar=True,
            help="Forget all ended trials at every so many starts too; without it they go by age and number alone.",
        ),
        click.option(
            "--status_file",
            type=path,
            envvar="COGMENT_STATUS_FILE",
            show_envvar=True,
            help="File or FIFO that gets I (initializing), R (ready) and T (terminated).",
        ),
        click.option(
            "--pre_trial_hooks",
            multiple=True,
            envvar="COGMENT_PRE_TRIAL_HOOKS",
            show_envvar=True,
            callback=as_list,
            metavar="ENDPOINTS",
            help="Hooks, in the order of their calls: separated by commas (blanks in the environment); repeatable.",
        ),
        click.option(
            "--params",
            type=path,
            envvar="COGMENT_DEFAULT_PARAMS_FILE",
            show_envvar=True,
            help="YAML file with the default trial_params.",
        ),
        server_options("ORCHESTRATOR", old_names=["PROMETHEUS_PORT"]),
    )
    return applied(options, command)


#: Flag, environment variables, and the default of the reference, which says the same as leaving it out.
_NOT_BUILT: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("--actor_web_port", ("COGMENT_WEB_PROXY_PORT",), "0"),
    ("--actor_http_port", (), "0"),
)


def _refuse(default: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is None:
            return
        if param.name and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
            if value.strip().lower() == default:
                return
            names = " or ".join(param.envvar or ())
            raise Failure(f"{param.opts[0]} (environment: {names}) is not built yet")
        raise Failure(f"{param.opts[0]} is not built yet")

    return refuse


def _refused(flag: str, variables: tuple[str, ...], default: str) -> Callable[[_Decorated], _Decorated]:
    # Ignoring one would be worse.
    return click.option(flag, envvar=list(variables), hidden=True, expose_value=False, callback=_refuse(default))


def orchestrator_settings(
    ctx: click.Context,
    *,
    lifecycle_port: int,
    actor_port: int,
    storage: StorageSettings | None = None,
    archive: Path | None = None,
) -> OrchestratorSettings:
    """Collect what `orchestrator_options` found.

    Raises:
        Failure: what they say does not fit together.
    """
    common = common_settings(ctx)
    frequency = ctx.params["gc_frequency"]
    common["configuration"] = overridden(common["configuration"], "orchestrator", gc_frequency=frequency)
    return OrchestratorSettings(
        **common,
        lifecycle_port=lifecycle_port,
        actor_port=actor_port,
        params=ctx.params["params"],
        pre_trial_hooks=ctx.params["pre_trial_hooks"],
        status_file=ctx.params["status_file"],
        storage=storage,
        archive=archive,
    )
