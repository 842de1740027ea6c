"""`trio-cogment participants MODULE`: serves the environments, actors, hooks and data logs that a module registers."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trio_cogment.base.services import SERVICES
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.directory_flags import directory_options
from trio_cogment.cli.services.run import run_server
from trio_cogment.cli.services.settings import ServerSettings, common_settings, service_options
from trio_cogment.cli.services.start import Application, Resources, Running
from trio_cogment.cli.users_code import imported, member, run_users_code

if TYPE_CHECKING:
    from purerpc import Service

    from trio_cogment.sdk import Participants

_SERVICE = "PARTICIPANTS"
_DEFAULT_PORT = 9001
#: What a module is expected to have, unless the command line names something else.
_ATTRIBUTE = "participants"
#: When after a signal the process ends, even if a participant in a worker thread does not.
_GIVE_UP_SECONDS = 5.0


@click.command("participants")
@click.argument("module", metavar="MODULE[:ATTRIBUTE]")
@service_options(_SERVICE, port=_DEFAULT_PORT)
@directory_options(_SERVICE)
@click.pass_context
def participants(ctx: click.Context, /, module: str, port: int, **_options: Any) -> None:
    """Serve the environments, actors, hooks and data logs that a Python module registers.

    MODULE is a module's name, as for `python -m`, and is looked up in the current folder first. ATTRIBUTE is a
    Participants object in it, or a function that returns one; by default `participants`, or the only Participants
    object of the module.
    """
    settings = ServerSettings(**common_settings(ctx))
    found = load(module)
    services = _services(found)
    application = Application(
        name="participants",
        ports=[port],
        open=functools.partial(_opened, found, services),
        give_up_seconds=_GIVE_UP_SECONDS,
    )
    run_server(settings, application)


def _services(found: Participants) -> list[Service]:
    names = {SERVICES[kind].descriptor().full_name for kind in found.kinds()}
    return [service for service in found.services() if service.name in names]


@asynccontextmanager
async def _opened(found: Participants, services: list[Service], _resources: Resources) -> AsyncIterator[Running]:
    yield Running(services=[services], offers=found.offers)


# The module


def load(target: str) -> Participants:
    """Import `MODULE[:ATTRIBUTE]`, and return what it registers.

    Raises:
        Failure: it cannot be imported, or has no such object. An exception in the module itself is printed first, with
            the part of its traceback that is not of this program.
    """
    name, _, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        path = Path(name).with_suffix("")
        hint = repr(".".join(path.parts))
        if path.is_absolute() or ".." in path.parts:
            hint = f"{path.name!r} in the folder {path.parent.as_posix()}"
        raise Failure(f"{name}: expected the name of a module, not of a file; try {hint}")
    found = _member(imported(name), attribute)
    from trio_cogment.sdk import Participants

    if not isinstance(found, Participants) and callable(found):
        made = run_users_code(found, f"{target} failed")
        if not isinstance(made, Participants):
            raise Failure(f"{target}: expected a function that returns Participants, got {type(made).__name__}")
        found = made
    if not isinstance(found, Participants):
        raise Failure(f"{target}: expected Participants or a function that returns them, got {type(found).__name__}")
    if not found.kinds():
        raise Failure(f"{target}: nothing is registered; use register_environment, register_actor, ...")
    return found


def _member(module: Any, attribute: str) -> Any:
    if attribute:
        return member(module, attribute)
    if hasattr(module, _ATTRIBUTE):
        return getattr(module, _ATTRIBUTE)
    from trio_cogment.sdk import Participants

    objects = {name: value for name, value in vars(module).items() if isinstance(value, Participants)}
    if len({id(value) for value in objects.values()}) == 1:
        return next(iter(objects.values()))
    if objects:
        choice = ", ".join(f"{module.__name__}:{name}" for name in objects)
        raise Failure(f"{module.__name__} has several Participants; choose one: {choice}")
    raise Failure(
        f"{module.__name__} has no Participants; assign them to `{_ATTRIBUTE}`, or name a function that returns them"
    )
