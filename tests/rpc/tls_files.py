"""Certificates for tests, made once per run and written where OpenSSL and grpcio can read them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Party:
    """A certificate with its key, and the authority that signed it."""

    chain: Path
    key: Path
    roots: Path

    def pem(self) -> tuple[bytes, bytes, bytes]:
        return self.roots.read_bytes(), self.key.read_bytes(), self.chain.read_bytes()


def make_party(folder: Path, name: str, *identities: str, authority: trustme.CA | None = None) -> Party:
    authority = authority or trustme.CA()
    certificate = authority.issue_cert(*identities)
    party = Party(folder / f"{name}.pem", folder / f"{name}.key", folder / f"{name}-roots.pem")
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(party.chain, append=True)
    certificate.private_key_pem.write_to_path(party.key)
    authority.cert_pem.write_to_path(party.roots)
    return party
