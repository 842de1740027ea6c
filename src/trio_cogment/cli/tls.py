"""Mutual TLS: its three files, their flags, and the contexts made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, applied, nearest

if TYPE_CHECKING:
    import ssl

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_NAMES = ("private_key", "root_cert", "trust_chain")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The three files of mutual TLS: for the server, and for every call to other services."""

    private_key: Path
    root_cert: Path
    trust_chain: Path


def tls_options(command: _Decorated) -> _Decorated:
    """Add the flags of the three files."""
    options = (
        _file_option("--trust_chain", "COGMENT_TRUST_CHAIN_FILE", "PEM file with the certificate chain."),
        _file_option(
            "--root_cert",
            "COGMENT_ROOT_CERT_FILE",
            "PEM file with the root certificates that peers are checked against.",
        ),
        _file_option(
            "--private_key",
            "COGMENT_PRIVATE_KEY_FILE",
            "PEM file with the private key. With all three files every connection is mutual TLS.",
        ),
    )
    return applied(options, command)


def _file_option(flag: str, variable: str, text: str) -> Callable[[_Decorated], _Decorated]:
    return click.option(flag, type=FilePath(path_type=Path), envvar=variable, show_envvar=True, help=text)


def tls_files(ctx: click.Context) -> TlsFiles | None:
    """Collect the settings from the flags of `tls_options`; None: no TLS.

    Raises:
        Failure: some of the files are given, but not all.
    """
    given = {name: nearest(ctx, name) for name in _NAMES}
    missing = [f"--{name}" for name, path in given.items() if path is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise Failure(f"TLS needs all of {', '.join(f'--{name}' for name in given)}; missing: {', '.join(missing)}")
    return TlsFiles(**given)


@dataclass(frozen=True, slots=True)
class Tls:
    """Contexts for both directions."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def load_tls(files: TlsFiles) -> Tls:
    """Read the files: servers then require a certificate of every client, and every call shows this one.

    Raises:
        Failure: a file cannot be read, has the wrong content, or does not match the others.
    """
    import ssl

    from trio_cogment.rpc import client_tls, server_tls

    _check(files.private_key, "private_key", "PRIVATE KEY-----", "a private key in PEM form")
    _check(files.root_cert, "root_cert", "-----BEGIN CERTIFICATE-----", "certificates in PEM form")
    _check(files.trust_chain, "trust_chain", "-----BEGIN CERTIFICATE-----", "certificates in PEM form")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(files.root_cert)
    except ssl.SSLError as error:
        raise Failure(f"--root_cert: {files.root_cert}: {_reason(error)}") from error
    try:
        return Tls(
            server_tls(files.trust_chain, files.private_key, client_roots=files.root_cert),
            client_tls(files.root_cert, certificate=files.trust_chain, key=files.private_key),
        )
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"{files.private_key} is not the key of the certificate in {files.trust_chain}"
            raise Failure(f"--private_key: {text}") from error
        both = f"{files.private_key} with {files.trust_chain}"
        raise Failure(f"--private_key, --trust_chain: {both}: {_reason(error)}") from error


def _check(path: Path, flag: str, mark: str, expected: str) -> None:
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
