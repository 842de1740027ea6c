"""Writing generated files: each appears whole, and one that is up to date is not touched."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trio_cogment.base.host.beside import open_beside


def write_files(folder: str | Path, files: Mapping[str, str]) -> list[str]:
    """Write files below a folder, which is made if need be; return the paths of those that changed.

    Args:
        folder: where to write.
        files: the texts, by path relative to the folder.

    Raises:
        OSError: a file cannot be written; those before it are there.
    """
    changed = []
    for path, text in sorted(files.items()):
        target = Path(folder, path)
        content = text.encode("utf-8")
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Whoever imports or watches the file never finds half of it.
        file, unfinished = open_beside(str(target))
        try:
            with file:
                file.write(content)
                file.flush()
                os.replace(unfinished, target)
        finally:
            Path(unfinished).unlink(missing_ok=True)
        changed.append(path)
    return changed
