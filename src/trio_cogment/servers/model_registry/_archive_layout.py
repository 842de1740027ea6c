"""The layout of the archive: the folder of a model, and the names of its blobs.

For plain ids this is the layout of the reference, so that each can read what the other wrote:

=====================  ==================================================================
``<folder>.yaml``         the model: its id and user data
``<folder>-v<n>.yaml``    a version: everything but its bytes; n has six digits at least
``<folder>-v<n>.data``    its bytes; the version is there when both are, and not before
``<folder>.last``         the highest number that a version which is not archived has had
``<folder>.owner``        the account that the model belongs to; without it, it is nobody's
``<folder>.deleted``      the model is deleted, and the rest of the folder is to be removed
=====================  ==================================================================

A plain id is its own folder. Any other id is written with ``%`` and two hexadecimal digits for each byte that is not
plain; where that is too long, or taken, with ``%h`` and the SHA-256 of the id, which is no such encoding.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass, field

#: Longest name of a folder; with what is appended for a blob it fits into the 255 bytes of usual file systems.
MAX_FOLDER_BYTES = 180
#: The largest number that a request can name.
MAX_NUMBER = 2**31 - 1

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_LIKE_A_VERSION = re.compile(rb"-v[0-9]+$")
_NUMBER = re.compile(r"-v([0-9]{6,10})\.(yaml|data)")


def folder_of(model_id: str, taken: Container[str] = ()) -> str:
    """Return the folder of a new model.

    Args:
        model_id: any text but the empty one.
        taken: folders of other models, which another program may have named.
    """
    data = model_id.encode()
    if len(data) <= MAX_FOLDER_BYTES:
        encoded = _encoded(data)
        if len(encoded) <= MAX_FOLDER_BYTES and encoded not in taken:
            return encoded
    return "%h" + hashlib.sha256(data).hexdigest()


def _encoded(data: bytes) -> str:
    # A dot in front would hide the folder or leave the root. The reference takes the file of a model whose id ends like
    # a version for a version.
    unsafe = {0} if data.startswith(b".") else set()
    if found := _LIKE_A_VERSION.search(data):
        unsafe.add(found.start())
    return "".join(chr(byte) if byte in _PLAIN and at not in unsafe else f"%{byte:02X}" for at, byte in enumerate(data))


def may_be_encoded(folder: str) -> bool:
    """Whether a folder may have another name than its model."""
    return "%" in folder


def model_name(folder: str) -> str:
    """Return the name of a model's own blob."""
    return f"{folder}.yaml"


def info_name(folder: str, number: int) -> str:
    """Return the name of the blob that describes a version."""
    return f"{folder}-v{number:06d}.yaml"


def data_name(folder: str, number: int) -> str:
    """Return the name of the blob with a version's bytes."""
    return f"{folder}-v{number:06d}.data"


def last_name(folder: str) -> str:
    """Return the name of the blob with the highest number that was given."""
    return f"{folder}.last"


def owner_name(folder: str) -> str:
    """Return the name of the blob that says whose the model is."""
    return f"{folder}.owner"


def deleted_name(folder: str) -> str:
    """Return the name of the blob that marks a folder as deleted."""
    return f"{folder}.deleted"


@dataclass(slots=True)
class Contents:
    """What a folder has, by the names of its blobs.

    Attributes:
        deleted: the model was deleted, and not everything is gone yet.
        has_model: the model's own blob is there.
        has_owner: the blob with the owner is there.
        has_last: the blob with the highest number is there.
        infos: the versions whose description is there.
        data: the versions whose bytes are there.
    """

    deleted: bool = False
    has_model: bool = False
    has_owner: bool = False
    has_last: bool = False
    infos: set[int] = field(default_factory=set)
    data: set[int] = field(default_factory=set)


def contents_of(folder: str, names: list[str]) -> Contents:
    """Return what a folder has, by the names of its blobs; other names are ignored."""
    found = Contents()
    for name in names:
        if name == model_name(folder):
            found.has_model = True
        elif name == owner_name(folder):
            found.has_owner = True
        elif name == last_name(folder):
            found.has_last = True
        elif name == deleted_name(folder):
            found.deleted = True
        elif name.startswith(folder) and (match := _NUMBER.fullmatch(name, len(folder))):
            number = int(match[1])
            if 1 <= number <= MAX_NUMBER and match[1] == f"{number:06d}":
                (found.infos if match[2] == "yaml" else found.data).add(number)
    return found
