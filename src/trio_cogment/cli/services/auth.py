"""Access flags of a server: who may call it, the files they name, and the tokens with which it calls others."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.access_token import access_token, access_token_options
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied, given_on_the_line

if TYPE_CHECKING:
    from trio_cogment.access import AccessControl, Keys, Role, Rules, TokenSource

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


OPEN = "open"
TOKEN = "token"

#: How long a token counts that a server makes for its own calls, and so the longest of them. A new one is made after
#: half of that.
OWN_TOKEN_SECONDS = 30 * 86400.0


@record(kw_only=True)
class AuthSettings:
    """Who may call a server, and how it says who it is.

    Attributes:
        mode: `open`: everybody may do everything; `token`: callers need a token, or a certificate with a known name.
        secret_file: with the keys that tokens are signed with.
        revocation_file: with the tokens that do not count any more.
        certificates_file: with the roles of clients' certificates, by their names.
        token: that the server sends to its directory, and to the orchestrator it is in front of; empty: it makes one.
        unsent: names the variable of a token that is not sent, because the server makes its own.
    """

    mode: str = OPEN
    secret_file: Path | None = None
    revocation_file: Path | None = None
    certificates_file: Path | None = None
    token: str = field(default="", repr=False)
    unsent: str = ""


def auth_options(command: _Decorated) -> _Decorated:
    """Add the flags; `auth_settings` reads them."""
    options = (
        access_token_options,
        _file_option(
            "--auth_certificates_file",
            "COGMENT_AUTH_CERTIFICATES_FILE",
            "File with the names of client certificates and their roles, one name on each line.",
        ),
        _file_option(
            "--auth_revocation_file",
            "COGMENT_AUTH_REVOCATION_FILE",
            "File with the tokens that do not count any more; it need not exist.",
        ),
        _file_option(
            "--auth_secret_file",
            "COGMENT_AUTH_SECRET_FILE",
            "File with the keys of tokens, made by `trio-cogment token init`; the servers of a platform share it.",
        ),
        click.option(
            "--auth",
            type=click.Choice([OPEN, TOKEN]),
            default=OPEN,
            envvar="COGMENT_AUTH",
            show_default=True,
            show_envvar=True,
            help="Who may call: everybody (open), or who has a token or a client certificate that is known (token).",
        ),
    )
    return applied(options, command)


def _file_option(flag: str, variable: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(
        flag, type=FilePath(path_type=Path), default=None, metavar="PATH", envvar=variable, show_envvar=True, help=text
    )


def auth_settings(ctx: click.Context) -> AuthSettings:
    """Collect the settings from the flags of `auth_options`.

    Raises:
        Failure: the flags contradict each other, or the token cannot be read.
    """
    given = ctx.params
    if "auth" not in given:
        return AuthSettings()
    # Whoever starts a server may have exported the token of her own programs; the server would do its work with that.
    unsent = "" if given["auth_secret_file"] is None else _variable_of_token(ctx)
    settings = AuthSettings(
        mode=given["auth"],
        secret_file=given["auth_secret_file"],
        revocation_file=given["auth_revocation_file"],
        certificates_file=given["auth_certificates_file"],
        token="" if unsent else access_token(ctx),
        unsent=unsent,
    )
    if settings.mode == TOKEN and settings.secret_file is None and settings.certificates_file is None:
        raise Failure(
            "--auth=token: expected --auth_secret_file (made by `trio-cogment token init`), or --auth_certificates_file"
        )
    if settings.mode == OPEN and settings.certificates_file is not None:
        raise Failure("--auth_certificates_file: expected --auth=token, too; with --auth=open nobody is asked")
    return settings


def _variable_of_token(ctx: click.Context) -> str:
    """Return the variable that gives a token; empty: there is none, or a flag gives one."""
    names = ("token", "token_file")
    if any(given_on_the_line(ctx, name) for name in names):
        return ""
    variables = {option.name: str(option.envvar) for option in ctx.command.params}
    return next((variables[name] for name in names if ctx.params[name]), "")


def read_rules(settings: AuthSettings, *, revoked_before: bool = False) -> Rules:
    """Read the files.

    Args:
        settings: name them.
        revoked_before: something is revoked already, so the file with it has to be there.

    Raises:
        Failure: one cannot be read, or the secret can be read by others.
    """
    from trio_cogment.access import Revoked, Rules, parse_certificates

    revoked = None
    keys = None if settings.secret_file is None else read_secret(settings.secret_file)[1]
    # A link that leads nowhere is there: it is an error, and does not mean that nothing is revoked.
    if settings.revocation_file is not None and (revoked_before or _is_there(settings.revocation_file)):
        revoked = _parsed("--auth_revocation_file", settings.revocation_file, Revoked.parse)
    certificates = None
    if settings.certificates_file is not None:
        certificates = _parsed("--auth_certificates_file", settings.certificates_file, parse_certificates)
    return Rules(keys=keys, revoked=revoked or Revoked(), certificates=certificates)


def _revokes(rules: Rules) -> bool:
    return bool(rules.revoked.token_ids or rules.revoked.names)


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        pass  # opening it says why
    return True


def read_secret(path: Path) -> tuple[str, Keys]:
    """Return the content of a secret file, and its keys.

    Raises:
        Failure: it cannot be read, or others can read it, too.
    """
    from trio_cogment.access import Keys

    return _parsed("--auth_secret_file", path, lambda text: (text, Keys.parse(text)), secret=True)


_Parsed = TypeVar("_Parsed")


def _parsed(flag: str, path: Path, parse: Callable[[str], _Parsed], *, secret: bool = False) -> _Parsed:
    from trio_cogment.base.errors import InvalidArgumentError

    try:
        with open(path, encoding="utf-8") as file:
            if secret and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise Failure(f"{flag}: {path}: others than its owner can read it; chmod 600 {path}")
            return parse(file.read())
    except OSError as error:
        raise Failure(f"{flag}: {path}: {error.strerror or error}") from error
    except UnicodeError as error:
        raise Failure(f"{flag}: {path}: expected text") from error
    except InvalidArgumentError as error:
        raise Failure(f"{flag}: {path}: {error}") from error


class ServerAccess:
    """Who may call this process, and how it says who it is.

    Args:
        settings: the files are read.
        name: of what is served: the process's own tokens are those of `server:NAME`.

    Attributes:
        control: decides about calls; None: everybody may do everything.

    Raises:
        Failure: a file cannot be read.
    """

    def __init__(self, settings: AuthSettings, name: str) -> None:
        self._settings = settings
        self._name = f"server:{name}"
        self._own: AccessControl | None = None
        self._revoked_before = False
        if settings.mode == TOKEN or settings.secret_file is not None:
            # Not before: a server without tokens listens first.
            from trio_cogment.access import AccessControl
            from trio_cogment.base.host import Host

            host = Host()
            rules = read_rules(settings)
            self._revoked_before = _revokes(rules)
            self._own = AccessControl(rules, wall_clock=host.wall_clock, new_id=host.new_id)
        self.control = self._own if settings.mode == TOKEN else None

    @property
    def tokens(self) -> AccessControl | None:
        """What knows and signs the platform's tokens; None: it has no secret."""
        return self._own

    @property
    def signing(self) -> AccessControl | None:
        """What signs tokens for the orchestrator that this server is in front of.

        None: it has no secret, or a flag gives the token for that.
        """
        return None if self._settings.token else self._own

    @property
    def permits_metrics(self) -> Callable[[str], bool] | None:
        """What tells whether a request for metrics is answered, by its field `authorization`; None: all are.

        Any good token will do, also one without a role: it is sent without encryption.
        """
        control = self.control
        if control is None:
            return None
        import logging

        from trio_cogment.access import AUTHORIZATION, bearer_token
        from trio_cogment.base.errors import UnauthenticatedError, status_of
        from trio_cogment.budget.refusals import note_refused_call

        log = logging.getLogger(__name__)

        def permits(value: str) -> bool:
            try:
                control.verified(bearer_token([(AUTHORIZATION, value)]) or "", local=False)
            except UnauthenticatedError as error:
                note_refused_call(log, "a reader of metrics", *status_of(error), service="metrics")
                return False
            return True

        return permits

    def read_again(self) -> Rules | None:
        """Read the files again; it blocks. They count when they are adopted; None: there are none.

        Raises:
            Failure: one cannot be read, or the revocations have gone.
        """
        return None if self._own is None else read_rules(self._settings, revoked_before=self._revoked_before)

    def adopt(self, rules: Rules | None) -> None:
        """Judge by what `read_again` has returned from now on."""
        if self._own is None or rules is None:
            return
        self._own.adopt(rules)
        self._revoked_before = _revokes(rules)
        import logging

        logging.getLogger(__name__).info(
            "access: read keys: %d, revoked tokens: %d, revoked names: %d, names of certificates: %d",
            0 if rules.keys is None else len(rules.keys),
            len(rules.revoked.token_ids),
            len(rules.revoked.names),
            len(rules.certificates or ()),
        )

    @property
    def account(self) -> str:
        """The account of `token_for`, as servers with the same secret know it; empty: nothing says so."""
        if not self._settings.token:
            return "" if self._own is None else f"token:{self._name}"
        from trio_cogment.access import unverified
        from trio_cogment.base.errors import InvalidArgumentError

        try:
            return f"token:{unverified(self._settings.token).grant.name}"
        except InvalidArgumentError:
            return ""

    def token_for(self, *roles: Role, lifetime_seconds: float = OWN_TOKEN_SECONDS) -> str | TokenSource:
        """Return the token to send to other servers: that of the flags, else one of the process's own with these roles.

        Empty if there is neither.
        """
        if self._settings.token or self._own is None:
            return self._settings.token
        from trio_cogment.access import Grant

        return self._own.source(Grant(name=self._name, roles=frozenset(roles)), lifetime_seconds, sources=())
