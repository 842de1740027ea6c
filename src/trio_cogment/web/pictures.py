"""Pictures that pages show: the types that browsers know and that cannot run anything, by how their bytes begin.

Whatever a participant sends may claim to be a picture, so only these are handed to a browser as one.
"""

from __future__ import annotations

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
PICTURES = frozenset(_SIGNATURES.values())


def picture_type(content: bytes) -> str:
    """Return the media type of a picture; empty: it is none."""
    for begin, media_type in _SIGNATURES.items():
        # RIFF is for sounds and films, too.
        if content.startswith(begin) and (begin != b"RIFF" or content[8:12] == b"WEBP"):
            return media_type
    return ""
