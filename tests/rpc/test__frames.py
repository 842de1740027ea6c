"""The numbers of HTTP/2: those that h2 and hyperframe have found in the same RFC."""

from __future__ import annotations

import h2.errors
import h2.settings
import hyperframe.frame
import pytest

from trio_cogment.rpc import _frames
from trio_cogment.rpc._frames import HEADER, MESSAGE_HEADER, WINDOW_UPDATE_WORD, ErrorCode

FRAMES = {
    "DATA": hyperframe.frame.DataFrame,
    "HEADERS": hyperframe.frame.HeadersFrame,
    "PRIORITY": hyperframe.frame.PriorityFrame,
    "RST_STREAM": hyperframe.frame.RstStreamFrame,
    "SETTINGS": hyperframe.frame.SettingsFrame,
    "PUSH": hyperframe.frame.PushPromiseFrame,
    "PING": hyperframe.frame.PingFrame,
    "GOAWAY": hyperframe.frame.GoAwayFrame,
    "WINDOW_UPDATE": hyperframe.frame.WindowUpdateFrame,
    "CONTINUATION": hyperframe.frame.ContinuationFrame,
}
FLAGS = {"END_STREAM": "END_STREAM", "END_HEADERS": "END_HEADERS", "PADDED": "PADDED", "PRIORITIZED": "PRIORITY"}


def test_error_codes() -> None:
    assert {code.name: int(code) for code in ErrorCode}.items() <= {
        code.name: int(code) for code in h2.errors.ErrorCodes
    }.items()
    assert len({int(code) for code in ErrorCode}) == len(ErrorCode.__members__) == 10


@pytest.mark.parametrize("name", FRAMES)
def test_types_of_frames(name: str) -> None:
    assert getattr(_frames, name) == FRAMES[name].type


@pytest.mark.parametrize("name", FLAGS)
def test_flags(name: str) -> None:
    defined = {flag.name: flag.bit for flag in hyperframe.frame.HeadersFrame.defined_flags}
    assert getattr(_frames, name) == defined[FLAGS[name]]


def test_other_numbers() -> None:
    assert {flag.name: flag.bit for flag in hyperframe.frame.SettingsFrame.defined_flags} == {"ACK": _frames.ACK}
    assert h2.settings.SettingCodes.ENABLE_PUSH == _frames.ENABLE_PUSH
    assert h2.settings.Settings(client=True).initial_window_size == _frames.INITIAL_WINDOW
    frame = hyperframe.frame.WindowUpdateFrame(1, window_increment=_frames.MAX_WINDOW)
    assert frame.serialize()[9:] == b"\x7f\xff\xff\xff"


def test_layouts() -> None:
    """A frame's header, and the same with what a message begins with."""
    data = hyperframe.frame.DataFrame(7, b"\0\0\0\1\2hello", flags=["END_STREAM"]).serialize()
    high, low, kind, flags, number = HEADER.unpack_from(data)
    assert (high << 8 | low, kind, flags, number) == (10, 0, 1, 7)
    assert MESSAGE_HEADER.unpack_from(data) == (10 << 8, 1, 7, 0, 258)
    update = hyperframe.frame.WindowUpdateFrame(7, window_increment=1).serialize()
    assert int.from_bytes(update[:4], "big") == WINDOW_UPDATE_WORD
