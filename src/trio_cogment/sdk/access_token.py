"""The access token of a program: in a variable, or in a file that a variable names."""

from __future__ import annotations

import os
from collections.abc import Mapping

import trio

from trio_cogment.access import authorization
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError

ACCESS_TOKEN_VARIABLE = "COGMENT_TOKEN"
ACCESS_TOKEN_FILE_VARIABLE = "COGMENT_TOKEN_FILE"


async def access_token_of(given: str, variables: Mapping[str, str]) -> str:
    """Return the token to use: the one that was given, else that of the variables; empty without any.

    Raises:
        FailedPreconditionError: the file cannot be read.
        InvalidArgumentError: the token cannot be sent.
    """
    token = given or variables.get(ACCESS_TOKEN_VARIABLE, "").strip()
    path = variables.get(ACCESS_TOKEN_FILE_VARIABLE, "")
    if not token and path:
        token = await trio.to_thread.run_sync(read_token, path)
    authorization(token)
    return token


def read_token(path: str | os.PathLike[str]) -> str:
    """Return the token in a file.

    Raises:
        FailedPreconditionError: the file cannot be read.
        InvalidArgumentError: what is in it is not a token.
    """
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
        if not token:
            raise InvalidArgumentError("expected a token, but there is none in it")
        authorization(token)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "expected text"
        raise FailedPreconditionError(f"{os.fspath(path)}: {reason}") from error
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{os.fspath(path)}: {error}") from None
    return token
