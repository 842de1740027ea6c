"""Pictures by their first bytes."""

from __future__ import annotations

import pytest

from trio_cogment.web.pictures import PICTURES, picture_type


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"RIFFxxxxWEBP", "image/webp"),
        (b"RIFFxxxxWAVE", ""),
        (b"", ""),
    ],
)
def test_pictures_are_known_by_their_first_bytes(content: bytes, media_type: str) -> None:
    assert picture_type(content) == media_type
    assert not media_type or media_type in PICTURES
