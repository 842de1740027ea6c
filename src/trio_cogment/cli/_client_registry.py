"""`trio-cogment client model_registry`: the flags of its commands. What they do is in `_registry_commands`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli._client import as_file, client_options, client_settings, file_option
from trio_cogment.cli._groups import Group
from trio_cogment.cli._options import nearest
from trio_cogment.services import ServiceKind, default_address

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


#: Of what the API can name.
_MOST_NUMBER = 2**31 - 1


def _registry_options(command: _Decorated) -> _Decorated:
    endpoint = click.option(
        "--endpoint",
        default=default_address(ServiceKind.MODEL_REGISTRY),
        metavar="ENDPOINT",
        envvar="COGMENT_MODEL_REGISTRY_ENDPOINT",
        show_default=True,
        show_envvar=True,
        help="Where the model registry is.",
    )
    return endpoint(client_options(command))


def _as_user_data(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for item in values:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"expected NAME=VALUE, got {item!r}")
        found[name] = value
    return found


def _options_of(ctx: click.Context) -> tuple[Any, str]:
    return client_settings(ctx), nearest(ctx, "endpoint")


@click.group("model_registry", cls=Group)
@_registry_options
def model_registry(**_options: Any) -> None:
    """Ask a model registry."""


@model_registry.command("list")
@_registry_options
@click.pass_context
def list_models(ctx: click.Context, /, **_options: Any) -> None:
    """List the models, by their names."""
    from trio_cogment.cli._registry_commands import list_all_models

    list_all_models(*_options_of(ctx))


@model_registry.command()
@click.argument("model")
@_registry_options
@click.pass_context
def show(ctx: click.Context, /, model: str, **_options: Any) -> None:
    """Show a model and its versions."""
    from trio_cogment.cli._registry_commands import show_model

    show_model(*_options_of(ctx), model)


@model_registry.command()
@click.argument("model")
@click.option(
    "--user_data",
    multiple=True,
    callback=_as_user_data,
    metavar="NAME=VALUE",
    help="Said about the version; repeatable.",
)
@click.option(
    "--archive/--transient",
    default=True,
    show_default=True,
    help="Keep the version on the registry's disk, or for some time in its memory.",
)
@file_option("Where from. Without it, or with -: standard input.")
@_registry_options
@click.pass_context
def put(ctx: click.Context, /, model: str, file: Path, archive: bool, user_data: dict[str, str], **_: Any) -> None:
    """Make a new version of a model, and the model if there is none."""
    from trio_cogment.cli._registry_commands import put_version

    put_version(*_options_of(ctx), model, as_file(file), archive=archive, user_data=user_data)


@model_registry.command()
@click.argument("model")
@click.option(
    "--version",
    type=click.IntRange(-_MOST_NUMBER - 1, _MOST_NUMBER),
    default=-1,
    show_default=True,
    metavar="NUMBER",
    help="Which one; -1 is the newest, -2 the newest but one.",
)
@file_option("Where to; the file is replaced in one step. Without it, or with -: standard output.")
@_registry_options
@click.pass_context
def get(ctx: click.Context, /, model: str, file: Path, version: int, **_options: Any) -> None:
    """Write a version of a model to a file."""
    from trio_cogment.cli._registry_commands import get_version

    get_version(*_options_of(ctx), model, as_file(file), version=version)


@model_registry.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@_registry_options
@click.pass_context
def delete(ctx: click.Context, /, models: tuple[str, ...], **_options: Any) -> None:
    """Delete models and all their versions."""
    from trio_cogment.cli._registry_commands import delete_models

    delete_models(*_options_of(ctx), models)
