"""TLS: its files, their flags, and the contexts made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied, nearest

if TYPE_CHECKING:
    import ssl

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

#: How a channel says that TLS may be what is missing, or what is too much.
MAY_SPEAK_TLS = "the server may speak TLS"
MAY_NOT_SPEAK_TLS = "the server may not speak TLS"
#: And that a certificate of its own is.
ASKS_FOR_CERTIFICATE = "the server asks for a client certificate"

_NAMES = ("private_key", "root_cert", "trust_chain")
_OUTGOING = "outgoing_root_cert"


@record(kw_only=True)
class TlsFiles:
    """The files of TLS, for servers and for calls to others.

    Attributes:
        private_key: of the certificate in `trust_chain`; neither without the other.
        trust_chain: what servers, and callers that are asked, show.
        root_cert: who signs the certificates of peers; None: clients are not asked for one, and servers are checked
            against the system's roots.
        outgoing_root_cert: who signs the certificates of servers that are called, if not those of `root_cert`.
    """

    private_key: Path | None = None
    root_cert: Path | None = None
    trust_chain: Path | None = None
    outgoing_root_cert: Path | None = None

    @property
    def trusted(self) -> Path | None:
        """The roots with which servers are checked; None: the system's."""
        return self.outgoing_root_cert or self.root_cert


def tls_options(command: _Decorated) -> _Decorated:
    """Add the flags of the files, for a command that calls servers."""
    roots = "PEM file with the root certificates that servers are checked with. Default: the roots of the system."
    return _with_files(command, roots)


def _with_files(command: _Decorated, roots: str) -> _Decorated:
    options = (
        _file_option("--trust_chain", "COGMENT_TRUST_CHAIN_FILE", "PEM file with the certificate chain."),
        _file_option("--root_cert", "COGMENT_ROOT_CERT_FILE", roots),
        _file_option(
            "--private_key",
            "COGMENT_PRIVATE_KEY_FILE",
            "PEM file with the private key. With it and a certificate chain, connections are encrypted.",
        ),
    )
    return applied(options, command)


def server_tls_options(command: _Decorated) -> _Decorated:
    """Add the flags of the files, for a command that serves and calls others."""
    option = _file_option(
        "--outgoing_root_cert",
        "COGMENT_OUTGOING_ROOT_CERT_FILE",
        "PEM file with the root certificates that other servers are checked with when this one calls them. Clients are "
        "not asked for a certificate by it. Default: that of --root_cert, or else the roots of the system.",
    )
    roots = "PEM file with the root certificates that peers are checked with. With it, clients must show a certificate."
    return _with_files(option(command), roots)


def _file_option(flag: str, variable: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(flag, type=FilePath(path_type=Path), envvar=variable, show_envvar=True, help=text)


def tls_files(ctx: click.Context, *, server: bool = False) -> TlsFiles | None:
    """Collect the settings from the flags of `tls_options` or `server_tls_options`; None: no TLS.

    Args:
        ctx: of the command.
        server: it serves, and needs a certificate unless only calls to others are encrypted.

    Raises:
        Failure: some of the files are given, but others are missing.
    """
    given = {name: nearest(ctx, name) for name in _NAMES}
    if server:
        given[_OUTGOING] = ctx.params[_OUTGOING]
    if not any(given[name] for name in _NAMES):
        return TlsFiles(**given) if given.get(_OUTGOING) else None
    pair = [name for name in ("private_key", "trust_chain") if given[name] is None]
    if len(pair) == 1 or (pair and server):
        whose = "a server's TLS" if server else "a certificate"
        missing = ", ".join(f"--{name}" for name in pair)
        raise Failure(f"{whose} needs --private_key and --trust_chain; missing: {missing}")
    return TlsFiles(**given)


@dataclass(slots=True)
class Tls:
    """Contexts for both directions.

    Attributes:
        files: what they were made of.
        client: of calls to others.
        server: of a server; None: there is no certificate for it.
    """

    files: TlsFiles
    client: ssl.SSLContext
    server: ssl.SSLContext | None

    def reload(self) -> None:
        """Read the files again, for connections from now on; it blocks. Roots that calls to others trusted stay so.

        Raises:
            Failure: one cannot be used. The contexts are as they were.
        """
        made = load_tls(self.files)
        files = self.files
        if files.trust_chain is not None:
            self.client.load_cert_chain(files.trust_chain, files.private_key)
        if files.trusted is not None:
            self.client.load_verify_locations(files.trusted)
        self.server = made.server

    def of_servers(self) -> ssl.SSLContext:
        """Return the present context of a server."""
        assert self.server is not None
        return self.server


def load_tls(files: TlsFiles) -> Tls:
    """Read the files. With root certificates, servers require a certificate of every client.

    Raises:
        Failure: a file cannot be read, has the wrong content, or does not match the others.
    """
    import ssl

    from trio_cogment.rpc import client_tls, server_tls

    _check(files.private_key, "private_key", "PRIVATE KEY-----", "a private key in PEM form")
    _check(files.trust_chain, "trust_chain", "-----BEGIN CERTIFICATE-----", "certificates in PEM form")
    for flag in ("root_cert", _OUTGOING):
        _check_roots(getattr(files, flag), flag)
    server = None
    try:
        if files.trust_chain is not None:
            server = server_tls(files.trust_chain, files.private_key, client_roots=files.root_cert)
        return Tls(files, client_tls(files.trusted, certificate=files.trust_chain, key=files.private_key), server)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"{files.private_key} is not the key of the certificate in {files.trust_chain}"
            raise Failure(f"--private_key: {text}") from error
        both = f"{files.private_key} with {files.trust_chain}"
        raise Failure(f"--private_key, --trust_chain: {both}: {_reason(error)}") from error


def unchecked_tls(files: TlsFiles | None) -> ssl.SSLContext:
    """Return a context for calls to a server that may show any certificate; nothing may be told to it.

    Args:
        files: with the certificate for servers that ask for one.
    """
    import ssl

    from trio_cogment.rpc import client_tls

    context = client_tls() if files is None else client_tls(certificate=files.trust_chain, key=files.private_key)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _check_roots(path: Path | None, flag: str) -> None:
    import ssl

    _check(path, flag, "-----BEGIN CERTIFICATE-----", "certificates in PEM form")
    if path is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise Failure(f"--{flag}: {path}: {_reason(error)}") from error


def _check(path: Path | None, flag: str, mark: str, expected: str) -> None:
    if path is None:
        return
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Failure(f"--{flag}: {path}: {error.strerror or error}") from error
    if mark.encode() not in content:
        raise Failure(f"--{flag}: {path}: expected {expected}")


def _reason(error: ssl.SSLError) -> str:
    if error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error.args[-1]) if error.args else "not usable"
