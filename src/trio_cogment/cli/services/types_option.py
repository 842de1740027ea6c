"""The flag of a server that shows payloads: which types they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.errors import CogmentError

if TYPE_CHECKING:
    from trio_cogment.spec import Spec

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def rl_types() -> Spec:
    """Return the types of `trio_cogment.rl`."""
    from trio_cogment.rl.spec import RL_SPEC

    return RL_SPEC


def dm_env_rpc_types() -> Spec:
    """Return the types of the gateway for dm_env_rpc."""
    from trio_cogment.gateways.dm_env_rpc import DM_ENV_RPC_SPEC

    return DM_ENV_RPC_SPEC


#: Types that need no file.
NAMED = {"rl": rl_types, "dm_env_rpc": dm_env_rpc_types}


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
    names = ", ".join(NAMED)
    return click.option(
        flag,
        *also,
        flag.removeprefix("--"),
        default="",
        metavar="FILE",
        envvar=variable,
        show_envvar=True,
        help=f"{text}: a project file (cogment.yaml), or one of {names}. By default they are shown as base64.",
    )


def load_types(flag: str, value: str) -> Spec | None:
    """Return the types that the flag names; None: it was not given. It blocks.

    Raises:
        Failure: there are none.
    """
    if not value:
        return None
    if value in NAMED:
        return NAMED[value]()
    from trio_cogment.spec import load_spec

    try:
        return load_spec(Path(value))
    except CogmentError as error:
        raise Failure(f"{flag}: {error}") from error
