"""`trio-cogment doctor`: looks at what a server needs, and says what to do about what is wrong.

It looks where `serve` with the same flags and variables would, and changes nothing. (Whether a bucket takes objects can
only be seen by making one, which is removed.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.object_store import is_object_url
from trio_cogment.base.plugins import scheme_of
from trio_cogment.base.postgresql import SCHEMES, is_database_url
from trio_cogment.cli.client.common import ClientSettings, run_client
from trio_cogment.cli.configuration import configuration_of
from trio_cogment.cli.doctor import data, machine
from trio_cogment.cli.doctor.findings import Finding, Level, fail, lines, worst
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, as_endpoint, json_option, port_option
from trio_cogment.cli.serve import serve
from trio_cogment.cli.services.auth import ServerAccess, auth_settings
from trio_cogment.cli.services.directory_access import directory_token
from trio_cogment.cli.services.directory_flags import NO_DIRECTORY, own_directory_option
from trio_cogment.cli.services.model_registry import archive_folder, archive_option
from trio_cogment.cli.services.orchestrator import DEFAULT_PORT
from trio_cogment.cli.services.settings import THIS_MACHINE, given_hosts, host_option
from trio_cogment.cli.services.trial_datastore import DEFAULT_FILE, StorageSettings, storage_options, storage_settings
from trio_cogment.cli.text import print_json
from trio_cogment.cli.tls import TlsFiles, load_tls, server_tls_options, tls_files


@click.command()
@json_option("Print the findings as JSON.")
@server_tls_options
@click.option(
    "--auth_secret_file",
    type=FilePath(path_type=Path),
    metavar="PATH",
    envvar="COGMENT_AUTH_SECRET_FILE",
    show_envvar=True,
    help="File with the keys of tokens, if servers ask for tokens.",
)
@click.option(
    "--directory_endpoint",
    callback=as_endpoint,
    default=None,
    metavar="ENDPOINT",
    envvar="COGMENT_DIRECTORY_ENDPOINT",
    show_envvar=True,
    help="Directory that servers and participants use, if it is not that of `serve`.",
)
@own_directory_option
@archive_option
@storage_options(DEFAULT_FILE)
@host_option(THIS_MACHINE)
@port_option("--port", default=DEFAULT_PORT, text="TCP port of `serve`.")
@click.pass_context
def doctor(
    ctx: click.Context,
    /,
    port: int,
    persistence_file: str,
    directory_endpoint: GrpcEndpoint | None,
    auth_secret_file: Path | None,
    as_json: bool,
    **_options: Any,
) -> int:
    """Check what a server needs, and say what to do.

    Looks at versions, ports, files and who may read them, the directory, the clock, disks and descriptors, where
    `serve` with the same flags, variables and file of --config would. Nothing is changed; in a bucket, an object is
    made and removed. The flags of `serve` that are not listed here are read, and nothing else is done with them. Each
    line is ok, warn or fail; the exit code is 1 if one is fail.
    """
    hosts = given_hosts(ctx)
    storage, archive = storage_settings(ctx), archive_folder(ctx)
    tls = tls_files(ctx, server=True)
    registrations: Path | str | None = None
    if directory_endpoint is None and persistence_file not in ("", NO_DIRECTORY):
        elsewhere = is_object_url(persistence_file) or is_database_url(persistence_file)
        registrations = persistence_file if elsewhere else Path(persistence_file)
    stored = storage.file if storage else None, archive, registrations
    places = [place for place in stored if isinstance(place, Path)]
    findings = [machine.python(), *machine.versions()]
    settings = ClientSettings(tls=None if tls is None or _of_tls(tls) else tls, token=_token(ctx))
    findings += run_client(_of_network, hosts, port, directory_endpoint, settings)
    findings += _of_files(storage, archive, registrations, auth_secret_file, tls)
    patience = configuration_of(ctx).orchestrator.datalog_full_seconds
    findings += [machine.clock(places), *data.disk(places or [Path()], patience), machine.descriptors()]
    if as_json:
        print_json({"level": worst(findings).value, "findings": [finding.as_json() for finding in findings]})
    else:
        click.echo("\n".join(lines(findings)))
    return int(worst(findings) is Level.FAIL)


def _unlisted(own: list[click.Parameter]) -> Iterator[click.Parameter]:
    """Yield the flags of `serve` that are not among a command's own; its help does not show them."""
    names = {parameter.name for parameter in own}
    for parameter in serve.params:
        if isinstance(parameter, click.Option) and parameter.name not in names:
            unlisted = copy.copy(parameter)
            unlisted.hidden = parameter.name != "config"
            yield unlisted


doctor.params += list(_unlisted(doctor.params))


def _token(ctx: click.Context) -> str:
    """Return the token that `serve` would send to its directory; empty: none.

    Raises:
        Failure: the flags contradict each other, or the token cannot be read.
    """
    settings = auth_settings(ctx)
    try:
        token = directory_token(ServerAccess(settings, "doctor"))
    except Failure:
        return settings.token  # what is wrong with the files of `--auth_...` is another finding, or `serve` says it
    return token if isinstance(token, str) else token()


async def _of_network(
    hosts: Sequence[str], port: int, directory: GrpcEndpoint | None, settings: ClientSettings
) -> list[Finding]:
    from trio_cogment.cli.doctor import network

    return [*await network.port(settings, hosts, port, flag="--port"), await network.directory(settings, directory)]


def _of_files(
    storage: StorageSettings | None,
    archive: Path | str | None,
    registrations: Path | str | None,
    secret: Path | None,
    tls: TlsFiles | None,
) -> Iterator[Finding]:
    if storage is not None and storage.file is not None:
        yield from data.file("trials", storage.file, database=True)
    elif storage is not None and scheme_of(storage.address) in SCHEMES:
        yield from data.database("trials", storage.address)
    if isinstance(archive, str):
        yield from data.bucket("models", archive)
    elif archive is not None:
        yield from data.folder("models", archive)
    if isinstance(registrations, str) and is_database_url(registrations):
        yield from data.database("registrations", registrations.partition("#")[0])
    elif isinstance(registrations, str):
        yield from data.bucket("registrations", registrations.rpartition("/")[0])
    elif registrations is not None:
        yield from data.file("registrations", registrations)
    if secret is not None:
        yield data.secret("token keys", secret)
    if tls is not None:
        if tls.private_key is not None:
            yield data.secret("TLS key", tls.private_key)
        yield from _of_tls(tls)


def _of_tls(tls: TlsFiles) -> list[Finding]:
    try:
        load_tls(tls)
    except Failure as error:
        return [fail("TLS", error.message, "see docs/operations.md: key, chain and roots are PEM files that match")]
    return []
