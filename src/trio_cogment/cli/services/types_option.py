"""The flag that says of which types payloads are: a project file, a module's `Spec`, or a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.errors import CogmentError
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.users_code import imported, member

if TYPE_CHECKING:
    from trio_cogment.sdk.spec import Spec

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def rl_types() -> Spec:
    """Return the types of `trio_cogment.rl`."""
    from trio_cogment.environments.spec import RL_SPEC

    return RL_SPEC


def dm_env_rpc_types() -> Spec:
    """Return the types of the gateway for dm_env_rpc."""
    from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC

    return DM_ENV_RPC_SPEC


#: Types that need no file.
NAMED = {"rl": rl_types, "dm_env_rpc": dm_env_rpc_types}
#: What may be given, for help.
EXPECTED = f"a project file (cogment.yaml), MODULE:SPEC, or one of {', '.join(NAMED)}"


def types_option(
    flag: str, *, variable: str, text: str, also: Sequence[str] = ()
) -> Callable[[_Decorated], _Decorated]:
    """Return the flag.

    Args:
        flag: its name.
        variable: its environment variable.
        text: its help.
        also: other names that it has.
    """
    return click.option(
        flag,
        *also,
        flag.removeprefix("--"),
        default="",
        metavar="FILE|MODULE:SPEC",
        envvar=variable,
        show_envvar=True,
        help=f"{text}: {EXPECTED}. By default they are shown as base64.",
    )


def needs_compiler(value: str) -> bool:
    """Tell whether the types that a flag names come from protos, which are compiled."""
    return bool(value) and value not in NAMED and _in_module(value) is None


def load_types(flag: str, value: str) -> Spec | None:
    """Return the types that the flag names; None: it was not given. It blocks.

    Args:
        flag: its name.
        value: a file, or its folder; `MODULE:SPEC`, a `Spec` in a module that is looked up in the current folder first;
            or one of `NAMED`.

    Raises:
        Failure: there are none.
    """
    if not value:
        return None
    if value in NAMED:
        return NAMED[value]()
    try:
        from trio_cogment.sdk.spec import Spec, load_spec

        place = _in_module(value)
        if place is None:
            return load_spec(Path(value), legacy=True)
        found = member(imported(place[0]), place[1])
    except (CogmentError, Failure) as error:
        raise Failure(f"{flag}: {error}") from error
    if not isinstance(found, Spec):
        raise Failure(f"{flag}: {value}: expected a Spec, got {type(found).__name__}")
    return found


def _in_module(value: str) -> tuple[str, str] | None:
    """Return the module and the name in it; None: it is a file, whose path may have a colon."""
    module, colon, attribute = value.partition(":")
    if not colon or Path(value).exists():
        return None
    names = [*module.split("."), *attribute.split(".")]
    return (module, attribute) if all(name.isidentifier() for name in names) else None
