"""TLS from the three files of the command line: one identity for our servers and for every call that goes out."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from trio_cogment.cli._settings import Failure, TlsFiles
from trio_cogment.rpc import client_tls, server_tls


@dataclass(frozen=True, slots=True)
class Tls:
    """Contexts for both directions."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def load_tls(files: TlsFiles) -> Tls:
    """Read the files; our servers then demand a certificate of every client, and every call of ours shows ours.

    Raises:
        Failure: a file cannot be read, is not what it should be, or does not belong to the others.
    """
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
