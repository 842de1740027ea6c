"""Helpers to declare commands and flags: groups with aliases, types of flags, flags that several commands take.

A flag wins over its environment variable, which wins over the file of `--config`, which wins over the default; an empty
variable counts as unset.
"""

from __future__ import annotations

import builtins
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from trio_cogment.base.endpoints import GrpcEndpoint, parse_server_endpoint
from trio_cogment.base.errors import EndpointError
from trio_cogment.base.object_store import is_object_url
from trio_cogment.base.suggestions import similar
from trio_cogment.cli.help_format import HelpContext

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_HIGHEST_PORT = 65535
_UNITS_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
#: The longest duration of the reference: 2**63 nanoseconds.
_MAX_DURATION_SECONDS = 2**63 / 1e9


class Group(click.Group):
    """A group of commands that shows its help when it is called alone, and whose commands may have aliases.

    Args:
        lazy: commands that are imported when they are used: name -> the module that has the command by this name, or
            with an underscore behind it where the name is one of Python's own, and its line in the help.
        aliases: other names of commands, which are not in the help.
    """

    context_class = HelpContext

    def __init__(
        self,
        *args: object,
        lazy: Mapping[str, tuple[str, str]] = {},
        aliases: Mapping[str, str] = {},
        **settings: object,
    ) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **settings})  # type: ignore[arg-type]  # click's own
        self._lazy = lazy
        self._aliases = dict(aliases)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, or print the help."""
        result: object = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that arguments begin with; if there is none, the error names what was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = similar(args[0], self.list_commands(ctx))
            meant = list(self._below(ctx, args[0])) or ([close] if close is not None else [])
            if not meant:
                raise
            names = " or ".join(map(repr, meant))
            raise click.UsageError(f"{error.message.rstrip('.')}. (Did you mean {names}?)", ctx=error.ctx) from None

    def _below(self, ctx: click.Context, name: str) -> Iterator[str]:
        """Yield the commands of this name in groups of this group: `client trial` for `trial`."""
        for group in self.list_commands(ctx):
            found = self.get_command(ctx, group)
            if isinstance(found, Group):
                if name in found.list_commands(ctx):
                    yield f"{group} {name}"
                yield from (f"{group} {below}" for below in found._below(ctx, name))

    def add_command(self, cmd: click.Command, name: str | None = None, *, aliases: tuple[str, ...] = ()) -> None:
        """Add a command; its aliases are not in the help."""
        super().add_command(cmd, name)
        self._aliases.update(dict.fromkeys(aliases, name or cmd.name or ""))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name or an alias."""
        name = self._aliases.get(cmd_name, cmd_name)
        if name in self._lazy and name not in self.commands:
            module, summary = self._lazy[name]
            attribute = f"{name}_" if hasattr(builtins, name) else name
            command: click.Command = getattr(importlib.import_module(module), attribute)
            command.short_help = summary
            self.add_command(command)
        found = super().get_command(ctx, name)
        if found is not None:
            found.context_class = HelpContext
        return found


def applied(options: Iterable[Callable[[_Decorated], _Decorated]], command: _Decorated) -> _Decorated:
    """Add options to a command; the last one is the first in its help."""
    for option in options:
        command = option(command)
    return command


# Types of flags

if TYPE_CHECKING:
    PairType = click.ParamType[tuple[str, Any]]
else:
    PairType = click.ParamType  # older versions of click know no types of values


class FilePath(click.Path):
    """A path; an empty one is an error, not the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if value == "":
            self.fail("expected a path, got ''", param, ctx)
        return super().convert(value, param, ctx)


class FolderOrBucket(FilePath):
    """The path of a folder, or the address of a bucket, which is a text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, or the address."""
        if is_object_url(value):
            return value
        return super().convert(value, param, ctx)


def as_endpoint(_ctx: click.Context, _param: click.Parameter, value: str | None) -> GrpcEndpoint | None:
    """Return the endpoint of a server that cannot be discovered; None only for None."""
    if value is None:
        return None
    try:
        return parse_server_endpoint(value, field_name="")
    except EndpointError as error:
        raise click.BadParameter(str(error)) from None


def boolean_option(
    flag: str, *, text: str, variable: str | None = None, default: str | None = "true"
) -> Callable[[_Decorated], _Decorated]:
    """Return a flag that is true or false, or None if that is its default; without a value it is true."""
    return click.option(
        flag,
        type=click.BOOL,
        is_flag=False,
        flag_value="true",
        default=default,
        metavar="BOOLEAN",
        envvar=variable,
        show_default=True,
        show_envvar=True,
        help=text,
    )


def port_option(
    flag: str, *, default: int, text: str, variables: Sequence[str] = ()
) -> Callable[[_Decorated], _Decorated]:
    """Return a flag that is a TCP port, or 0."""
    return click.option(
        flag,
        callback=_as_port,
        metavar="PORT",
        default=str(default),
        envvar=list(variables) or None,
        show_default=True,
        show_envvar=True,
        help=text,
    )


def _as_port(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    if value.isascii() and value.isdecimal() and int(value) <= _HIGHEST_PORT:
        return int(value)
    raise click.BadParameter(f"expected a port from 0 to {_HIGHEST_PORT}, got {value!r}")


def as_list(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[str]:
    """Return a list: separated by commas on the command line and in the file, by blanks in the environment."""
    # As with the reference. Click has split the variable at the blanks.
    if param.name and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return list(values)
    return [item.strip() for value in values for item in value.split(",") if item.strip()]


def as_properties(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Return `name=value,name` as a dictionary; a value left out is empty."""
    found = {}
    for item in (item.strip() for value in values for item in value.split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        if item and (not name or "=" in value):
            raise click.BadParameter(f"expected name=value,name,..., got {item!r}")
        if item:
            found[name] = value
    return found


def as_all_properties(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Return `name=value,name=value` as a dictionary; no value may be left out."""
    for item in (item.strip() for value in values for item in value.split(",")):
        if item and "=" not in item:
            raise click.BadParameter(f"expected NAME=VALUE, got {item!r}")
    return as_properties(ctx, param, values)


def properties_option(help_text: str) -> Callable[[_Decorated], _Decorated]:
    """Return the flag `--properties` that selects trials by properties, all of which they must have."""
    return click.option(
        "--properties",
        multiple=True,
        callback=as_all_properties,
        metavar="NAME=VALUE,...",
        help=f"{help_text} that have all of these properties; repeatable.",
    )


def parse_duration(text: str) -> float:
    """Return the seconds of a duration in the notation of the reference (that is, of Go): `30s`, `1m30s`, `500ms`.

    Raises:
        ValueError: it is not a duration, or negative, or longer than 292 years.
    """
    digits = text.removeprefix("+")
    if digits == "0":
        return 0.0
    parts, end = [], 0
    for part in _DURATION_PART.finditer(digits):
        if part.start() != end:
            break
        parts.append(float(part[1]) * _UNITS_SECONDS[part[2]])
        end = part.end()
    if not parts or end != len(digits) or sum(parts) > _MAX_DURATION_SECONDS:
        raise ValueError(f"expected a duration such as 30s, 1m30s or 500ms, got {text!r}")
    return sum(parts)


def as_duration(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Return the seconds of a duration that must be more than 0."""
    try:
        seconds = parse_duration(value.strip())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not seconds:
        raise click.BadParameter(f"expected more than 0, got {value!r}")
    return seconds


def timeout_option(what: str) -> Callable[[_Decorated], _Decorated]:
    """Return the flag that says how long to wait for something."""
    return click.option(
        "--timeout",
        default="30s",
        callback=as_duration,
        metavar="DURATION",
        envvar="COGMENT_CLIENT_TIMEOUT",
        show_default=True,
        show_envvar=True,
        help=f"How long to wait for {what}: 30s, 1m30s, 500ms.",
    )


def token_option(text: str) -> Callable[[_Decorated], _Decorated]:
    """Return the flag with the authentication token for a directory, with this help."""
    return click.option(
        "--directory_authentication_token",
        default="",
        callback=_as_token,
        metavar="TOKEN",
        envvar="COGMENT_DIRECTORY_AUTHENTICATION_TOKEN",
        show_envvar=True,
        help=text,
    )


def _as_token(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not all("!" <= character <= "~" for character in value):
        raise click.BadParameter("expected printable ASCII without blanks")  # without the value, which is a secret
    return value


def json_option(text: str = "Print the result as JSON.") -> Callable[[_Decorated], _Decorated]:
    """Return the flag with which a result is printed for programs."""
    return click.option("--json", "as_json", is_flag=True, help=text)


# Flags that several commands on one line may take


def nearest(ctx: click.Context, name: str) -> Any:
    """Return a flag that several commands on the line may take: given there, the last one wins.

    The environment and the defaults are the same for all of them.
    """
    takers = _takers(ctx, name)
    return next((taker for taker in takers if _has(taker, name)), takers[0]).params[name]


def given_on_the_line(ctx: click.Context, name: str) -> bool:
    """Tell whether a flag that several commands on the line may take is given there."""
    return any(_has(taker, name) for taker in _takers(ctx, name))


def _takers(ctx: click.Context, name: str) -> list[click.Context]:
    takers = []
    above: click.Context | None = ctx
    while above is not None:
        if name in above.params:
            takers.append(above)
        above = above.parent
    return takers


def _has(taker: click.Context, name: str) -> bool:
    return taker.get_parameter_source(name) is ParameterSource.COMMANDLINE
