"""`trio-cogment datastore compact`: puts the samples in the file of a datastore together, and makes it smaller."""

from __future__ import annotations

from pathlib import Path

import click

from trio_cogment.cli.client.transfer import progress
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath, json_option
from trio_cogment.cli.services.trial_datastore import DEFAULT_FILE, compression_option
from trio_cogment.cli.text import print_json, size_text


@click.command("compact")
@click.argument("file", type=FilePath(path_type=Path), default=DEFAULT_FILE)
@compression_option
@json_option()
def compact(file: Path, file_storage_compression: int, as_json: bool) -> None:
    """Put the samples of ended trials together, and make FILE smaller.

    A datastore does the same in the background, but for making the file smaller. It must not run. This can be
    interrupted at any moment: what is done is kept, and the next call goes on.
    """
    from trio_cogment.base.errors import CogmentError
    from trio_cogment.servers.datastore.compacting import compact as compact_file

    try:
        with progress("compact", None) as on_progress:
            done = compact_file(str(file), level=file_storage_compression, on_progress=on_progress)
    except KeyboardInterrupt:
        raise Failure(f"{file}: interrupted; what was done is kept, and the next call goes on") from None
    except CogmentError as error:
        raise Failure(str(error)) from error
    if as_json:
        print_json({"filepath": str(file), **done._asdict()})
        return
    text = f"{file}: {size_text(done.bytes_before)} before, {size_text(done.bytes_after)} now"
    if not done.given_back:
        text += "; the disk has no room to make it smaller"
    click.echo(text)
