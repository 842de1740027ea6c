"""`trio-cogment token`: the secret of a platform, and the tokens that are signed with it."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, Group, json_option, parse_duration
from trio_cogment.cli.text import print_json, printable

if TYPE_CHECKING:
    from trio_cogment.access import Token

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_SECRET_VARIABLE = "COGMENT_AUTH_SECRET_FILE"
_REVOCATION_VARIABLE = "COGMENT_AUTH_REVOCATION_FILE"
_NEVER = "never"
_DAY_SECONDS = 86400.0
_ID_BYTES = 10
#: The ids of tokens that this command and servers make.
_ID = re.compile(r"[0-9a-f]{20,32}")


@click.group(cls=Group)
def token() -> None:
    """Make, show and revoke the tokens of a platform whose servers have --auth=token."""


def _secret_option(*, required: bool) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        "--auth_secret_file",
        type=FilePath(path_type=Path),
        required=required,
        metavar="PATH",
        envvar=_SECRET_VARIABLE,
        show_envvar=True,
        help="File with the keys of tokens.",
    )


def _token_file_option() -> Callable[[_Decorated], _Decorated]:
    return click.option("--token_file", type=FilePath(path_type=Path), metavar="PATH", help="File with the token.")


@token.command()
@_secret_option(required=True)
@click.option("--rotate", is_flag=True, help="Put a new key before those that are there; tokens of the old ones count.")
@json_option()
def init(auth_secret_file: Path, rotate: bool, as_json: bool) -> None:
    """Make the secret file of a platform.

    Its servers share it, and only its owner can read it.
    """
    from trio_cogment.access import Keys
    from trio_cogment.base.host.beside import create_durably
    from trio_cogment.base.host.files import SystemFiles, replace_durably

    key = os.urandom(32).hex()
    if not rotate:
        try:
            create_durably(str(auth_secret_file), f"{key}\n".encode())
        except FileExistsError:
            text = "it exists already; --rotate puts a new key into it"
            if not auth_secret_file.stat().st_size:
                text = "it is empty, as after a full disk; remove it first"
            raise Failure(f"--auth_secret_file: {auth_secret_file}: {text}") from None
        except OSError as error:
            raise Failure(f"--auth_secret_file: {auth_secret_file}: {error.strerror or error}") from None
    else:
        from trio_cogment.cli.services.auth import read_secret

        old, keys = read_secret(auth_secret_file)
        if len(keys) >= Keys.MOST:
            raise Failure(f"--auth_secret_file: {auth_secret_file}: it has {len(keys)} keys; remove an old one first")
        try:
            replace_durably(SystemFiles().owner_only(), str(auth_secret_file), f"{key}\n{old}".encode())
        except OSError as error:
            raise Failure(f"--auth_secret_file: {auth_secret_file}: {error.strerror or error}") from None
    if as_json:
        print_json({"filepath": str(auth_secret_file)})
    else:
        click.echo(f"{auth_secret_file}: a new key; servers read it at their start and at SIGHUP")


def _expiry(_ctx: click.Context, _param: click.Parameter, value: str) -> float | None:
    """Return how long a token counts, in seconds; None: no limit."""
    text = value.strip()
    if text == _NEVER:
        return None
    days = text.removesuffix("d")
    try:
        seconds = float(days) * _DAY_SECONDS if days != text else parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 36525 * _DAY_SECONDS:
        raise click.BadParameter(f"expected a duration such as 90d, 12h or 30m, or {_NEVER}, got {value!r}")
    return seconds


def _roles_help() -> str:
    return (
        "What the holder is: admin, operator, participant, seat, observer, directory, orchestrator or worker; "
        "repeatable."
    )


@token.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help=_roles_help())
@click.option("--expires", callback=_expiry, default="90d", show_default=True, help="After which time, or never.")
@click.option(
    "--trial", "trials", multiple=True, metavar="ID", help="Of a participant or seat: a trial; or ids as `lab-*`."
)
@click.option("--class", "classes", multiple=True, metavar="CLASS", help="Of a participant: an actor class.")
@click.option("--actor", "actors", multiple=True, metavar="NAME", help="Of a participant or seat: an actor.")
@click.option("--max_trials", type=click.IntRange(0), help="How many trials the holder may have at a time.")
@click.option("--max_stored_bytes", type=click.IntRange(0), help="How much the holder may store on each server.")
@click.option("--max_models", type=click.IntRange(0), help="How many models the holder may have.")
@click.option("--file", type=FilePath(path_type=Path), help="Write the token to a new file that only its owner reads.")
@_secret_option(required=False)
@json_option("Print the token and its id as JSON.")
def make(
    name: str,
    roles: Sequence[str],
    expires: float | None,
    trials: Sequence[str],
    classes: Sequence[str],
    actors: Sequence[str],
    max_trials: int | None,
    max_stored_bytes: int | None,
    max_models: int | None,
    file: Path | None,
    auth_secret_file: Path | None,
    as_json: bool,
) -> None:
    """Make a token for NAME, and print it, or what --file has got.

    Tokens for the same name are one account: they share what they own and their quotas. `docs/security.md` says what
    each role may do. A token without a role may ask servers how they are.
    """
    from trio_cogment.access import NEVER, Grant, Quotas, Token, roles_of
    from trio_cogment.base.errors import InvalidArgumentError
    from trio_cogment.base.host.beside import create_durably
    from trio_cogment.cli.services.auth import read_secret

    try:
        grant = Grant(
            name=name,
            roles=roles_of(roles),
            trials=tuple(trials),
            classes=tuple(classes),
            actors=tuple(actors),
            quotas=Quotas(trials=max_trials, stored_bytes=max_stored_bytes, models=max_models),
        )
    except InvalidArgumentError as error:
        raise Failure(str(error)) from None
    if auth_secret_file is None:
        raise Failure("--auth_secret_file: it is needed; `trio-cogment token init` makes one")
    _, keys = read_secret(auth_secret_file)
    expires_at = NEVER if expires is None else int(time.time() + expires)
    token_id = os.urandom(_ID_BYTES).hex()
    made = Token(token_id=token_id, grant=grant, expires_at=expires_at)
    text = keys.sign(made)
    if file is not None:
        try:
            create_durably(str(file), f"{text}\n".encode())
        except FileExistsError:
            raise Failure(f"--file: {file}: it exists already") from None
        except OSError as error:
            raise Failure(f"--file: {file}: {error.strerror or error}") from None
    if as_json:
        print_json({"id": token_id, **({"token": text} if file is None else {"filepath": str(file)})})
    else:
        click.echo(text if file is None else printable(f"{file}: {_summary(made)}"))


def _summary(made: Token) -> str:
    roles = ", ".join(sorted(role.value for role in made.grant.roles)) or "no role"
    until = f"until {_date(made)}" if made.expires_at else "does not expire"
    return f"{made.grant.name}, {roles}, id {made.token_id}, {until}"


def _date(found: Token) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.expires_at))


@token.command()
@click.argument("given", metavar="[TOKEN-OR-FILE]", required=False)
@_token_file_option()
@_secret_option(required=False)
@click.option(
    "--auth_revocation_file",
    type=FilePath(path_type=Path),
    envvar=_REVOCATION_VARIABLE,
    show_envvar=True,
    help="File with the tokens that do not count.",
)
@json_option()
def show(
    given: str | None,
    token_file: Path | None,
    auth_secret_file: Path | None,
    auth_revocation_file: Path | None,
    as_json: bool,
) -> None:
    """Show what a token says.

    The argument is the token itself, a file with it, or `-`, the default, for standard input. With the secret it also
    says whether the token counts.
    """
    if given is not None and token_file is not None:
        raise Failure("expected a token, or --token_file")
    text = _token_text(given or "-", token_file)
    found = _unverified(text)
    state = "not checked (--auth_secret_file)"
    if auth_secret_file is not None:
        state = _state(text, auth_secret_file, auth_revocation_file)
    data = _described(found) | {"state": state}
    if as_json:
        print_json(data)
        return
    for name, value in data.items():
        if value not in ([], {}):
            shown = ", ".join(value) if isinstance(value, list) else value
            click.echo(printable(f"{name}: {shown}"))


def _token_text(given: str, file: Path | None) -> str:
    """Return the token that is given by itself, in a file, or on standard input."""
    if file is None and given == "-":
        return sys.stdin.read().strip()
    if file is None and os.path.isfile(given):
        file = Path(given)
    if file is None:
        return given.strip()
    from trio_cogment.base.errors import CogmentError
    from trio_cogment.sdk.access_token import read_token

    try:
        return read_token(file)
    except CogmentError as error:
        raise Failure(str(error)) from None


def _unverified(text: str) -> Token:
    from trio_cogment.access import unverified
    from trio_cogment.base.errors import InvalidArgumentError

    try:
        return unverified(text)
    except InvalidArgumentError as error:
        raise Failure(f"TOKEN: {error}") from None


def _state(text: str, secret: Path, revocations: Path | None) -> str:
    from trio_cogment.access import AccessControl
    from trio_cogment.base.errors import UnauthenticatedError
    from trio_cogment.cli.services.auth import AuthSettings, read_rules

    rules = read_rules(AuthSettings(mode="token", secret_file=secret, revocation_file=revocations))
    control = AccessControl(rules, wall_clock=time.time_ns, new_id=str)
    try:
        control.verified(text, local=True)
    except UnauthenticatedError as error:
        return str(error)
    return "valid"


def _described(found: Token) -> dict[str, Any]:
    grant = found.grant
    quotas = {"trials": grant.quotas.trials, "bytes": grant.quotas.stored_bytes, "models": grant.quotas.models}
    return {
        "id": found.token_id,
        "name": grant.name,
        "roles": sorted(role.value for role in grant.roles),
        "expires": _date(found) if found.expires_at else _NEVER,
        "trials": list(grant.trials),
        "classes": list(grant.classes),
        "actors": list(grant.actors),
        "quotas": {name: value for name, value in quotas.items() if value is not None},
    }


@token.command()
@click.argument("given", metavar="[TOKEN-OR-ID-OR-FILE]", required=False)
@_token_file_option()
@click.option("--name", help="Revoke all tokens of this holder, also those that are made later.")
@click.option(
    "--auth_revocation_file",
    type=FilePath(path_type=Path),
    required=True,
    envvar=_REVOCATION_VARIABLE,
    show_envvar=True,
    help="File with the tokens that do not count; servers read it at their start and at SIGHUP.",
)
@json_option()
def revoke(
    given: str | None, token_file: Path | None, name: str | None, auth_revocation_file: Path, as_json: bool
) -> None:
    """Revoke a token, or all tokens of a holder.

    Adds the token's id, or the holder's name, to the revocation file.
    """
    if sum(one is not None for one in (given, token_file, name)) != 1:
        raise Failure("expected a token, its id, --token_file or --name")
    entry = f"name={name}" if name is not None else _revoked_token(given or "", token_file)
    from trio_cogment.access import Revoked
    from trio_cogment.base.errors import InvalidArgumentError

    try:
        revoked = Revoked.parse(entry)
    except InvalidArgumentError as error:
        raise Failure(str(error)) from None
    if name is not None and (not name or revoked.names != {name}):  # it would be read as somebody else's
        raise Failure(f"--name: expected the name of a token's holder, got {name!r}")
    is_new = not auth_revocation_file.exists()
    _append_line(auth_revocation_file, entry)
    if as_json:
        print_json({"filepath": str(auth_revocation_file), "entry": entry, "created": is_new})
    else:
        where = f"{auth_revocation_file} (new)" if is_new else str(auth_revocation_file)
        click.echo(printable(f"{where}: {entry}; servers read it at their start and at SIGHUP"))


def _append_line(path: Path, line: str) -> None:
    """Add a line to a file, durably, and not to the last line of an editor that has not ended it.

    Raises:
        Failure: the disk is full or failed; the file has the lines that it had.
    """
    from trio_cogment.base.host.files import write_whole

    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 1))
            ended = file.read(1) in (b"", b"\n")
            try:
                write_whole(file, ("" if ended else "\n").encode() + f"{line}\n".encode())
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise
    except OSError as error:
        raise Failure(f"--auth_revocation_file: {path}: {error.strerror or error}") from None


def _revoked_token(given: str, token_file: Path | None) -> str:
    """Return the line that revokes a token.

    Raises:
        Failure: it is neither a token, nor the id of one, nor a file with one.
    """
    if token_file is None and _ID.fullmatch(given):
        return given
    text = _token_text(given, token_file)
    if token_file is None and text == given and "." not in given:
        holder = f"; --name={given} revokes all tokens of {given}" if given else ""
        raise Failure(f"{given!r} is not a token, a token's id or a file with a token{holder}")
    found = _unverified(text)
    return f"{found.token_id}  # {found.grant.name}"
