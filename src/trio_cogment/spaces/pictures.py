"""Rendered frames of environments: pictures as PNG, drawings of characters as text."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from trio_cogment.spaces import Frame
from trio_cogment.spaces._numpy import np

#: The modes in which an environment returns what it renders; others show it in a window, or nowhere.
RETURNING_MODES = frozenset({"rgb_array", "rgb_array_list", "ansi", "ansi_list"})
TEXT_MEDIA_TYPE = "text/plain; charset=utf-8"

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: PNG's colour types by the number of channels.
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
#: Frames are made at every step for people who watch: speed counts for more than size.
_LEVEL = 1


def frame_of(rendered: Any) -> Frame | None:
    """Return what `render` of Gymnasium or PettingZoo returned as a frame; None if it is not a picture.

    Of a list, which some modes return, the last picture counts.
    """
    if isinstance(rendered, list):
        rendered = rendered[-1] if rendered else None
    if isinstance(rendered, str):
        return Frame(rendered.encode("utf-8", "replace"), TEXT_MEDIA_TYPE)
    if not isinstance(rendered, np.ndarray) or rendered.dtype != np.uint8:
        return None
    if rendered.ndim not in (2, 3) or not rendered.size or rendered.shape[2:] not in ((), (1,), (2,), (3,), (4,)):
        return None
    return Frame(png_of(rendered))


def png_of(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """Return a picture, an array of bytes (height, width[, channels]), as PNG."""
    height, width = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    # Before each row comes the number of its filter: 0, none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = array.reshape(height, width * channels)
    return (
        _SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(rows.tobytes(), _LEVEL))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
