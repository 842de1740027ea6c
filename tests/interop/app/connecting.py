"""Connections of the application's programs: in the clear or by TLS, told or discovered."""

import argparse
import os
from typing import Any

import cogment


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls", help="folder with key.pem, chain.pem and roots.pem: certificates on both sides")
    parser.add_argument("--anonymous", action="store_true", help="show no certificate to servers")
    parser.add_argument("--directory", help="endpoint of the directory")


def endpoint(args: argparse.Namespace, *url: str) -> Any:
    """The endpoint with this URL, or the one that is to be discovered."""
    found = cogment.Endpoint(*url)
    if args.tls:
        found.use_ssl = True
        key, roots, chain = (os.path.join(args.tls, name) for name in ("key.pem", "roots.pem", "chain.pem"))
        found.set_from_files(None if args.anonymous else key, roots, None if args.anonymous else chain)
    return found


def connecting(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a context."""
    return {"directory_endpoint": endpoint(args, args.directory)} if args.directory else {}


def served_endpoint(args: argparse.Namespace) -> Any:
    served = cogment.ServedEndpoint(port=0)
    if args.tls:
        key, chain, roots = (_text(args.tls, name) for name in ("key.pem", "chain.pem", "roots.pem"))
        served.private_key_certificate_chain_pairs = [(key, chain)]
        served.root_certificates = roots
    return served


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name)) as file:
        return file.read()
