"""The flags with the token that says who calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied, nearest

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def access_token_options(command: _Decorated) -> _Decorated:
    """Add the flags; `access_token` reads them."""
    options = (
        click.option(
            "--token_file",
            type=FilePath(path_type=Path),
            default=None,
            metavar="PATH",
            envvar="COGMENT_TOKEN_FILE",
            show_envvar=True,
            help="File with the token that says who calls, for servers with --auth=token.",
        ),
        click.option(
            "--token",
            default=None,
            metavar="TOKEN",
            envvar="COGMENT_TOKEN",
            show_envvar=True,
            help="The token itself; on the command line others on this machine can see it.",
        ),
    )
    return applied(options, command)


def access_token(ctx: click.Context) -> str:
    """Return the token of the flags of `access_token_options`; empty without one.

    Raises:
        Failure: it cannot be read or sent.
    """
    token, path = nearest(ctx, "token"), nearest(ctx, "token_file")
    if not token and path is None:
        return ""
    from trio_cogment.access import authorization
    from trio_cogment.base.errors import CogmentError
    from trio_cogment.sdk.access_token import read_token

    try:
        if token:
            authorization(token.strip())
            return str(token.strip())
        return read_token(path)
    except CogmentError as error:
        raise Failure(f"--token_file: {error}" if not token else f"--token: {error}") from None
