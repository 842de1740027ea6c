"""Header blocks are put together here: a HEADERS frame and the CONTINUATION frames that follow it.

A block is one unit for HPACK, and nothing may come between its frames (RFC 9113, 4.3 and 6.10). So at most one is
unfinished at any time, and while there is one the frame parser lets nothing else through.
"""

from __future__ import annotations

from trio_cogment.rpc._frames import END_HEADERS, END_STREAM, PADDED, PRIORITIZED, ConnectionFaultError, ErrorCode


class HeaderBlocks:
    """Puts one header block after another together.

    Args:
        max_bytes: the largest block. A peer can send CONTINUATION frames without end, and without making the call that
            would count against a limit (the CONTINUATION flood, CVE-2024-27316). Beyond this the connection ends.

    Attributes:
        unfinished: the stream whose CONTINUATION must come next; 0 if there is none.
        ends_stream: whether the block that was last begun has END_STREAM.
    """

    def __init__(self, max_bytes: int) -> None:
        self.unfinished = 0
        self.ends_stream = False
        self._max_bytes = max_bytes
        self._size = 0
        self._pieces: list[bytes] = []

    def begin(self, frame: bytes, flags: int, stream_id: int) -> bytes | None:
        """Take a HEADERS frame; return the block if it is whole.

        Raises:
            ConnectionFaultError: its padding or its priority is malformed.
        """
        start, stop = 9, len(frame)  # without the frame's header
        if flags & (PADDED | PRIORITIZED):
            fields = (1 if flags & PADDED else 0) + (5 if flags & PRIORITIZED else 0)
            if stop < start + fields:
                raise ConnectionFaultError(ErrorCode.FRAME_SIZE_ERROR, "malformed HEADERS")
            if flags & PADDED:
                stop -= frame[9]
            start += fields  # priorities mean nothing any more (RFC 9113, 5.3.2)
            if stop < start:
                raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
        self.ends_stream = bool(flags & END_STREAM)
        if flags & END_HEADERS:
            return frame[start:stop]
        self.unfinished = stream_id
        self._pieces = [frame[start:stop]]
        self._size = stop - start
        return None

    def go_on(self, frame: bytes, flags: int) -> bytes | None:
        """Take a CONTINUATION frame of the unfinished block; return the block if it is whole now.

        Raises:
            ConnectionFaultError: no block is unfinished, or it has become too large.
        """
        if not self.unfinished:
            raise ConnectionFaultError(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        # The size is checked before anything is decoded, and whatever stream it is for: one that is over as well.
        self._pieces.append(frame[9:])
        self._size += len(frame) - 9
        if self._size > self._max_bytes:
            raise ConnectionFaultError(ErrorCode.ENHANCE_YOUR_CALM, "header block without end")
        if not flags & END_HEADERS:
            return None
        self.unfinished = 0
        block = b"".join(self._pieces)
        self._pieces.clear()
        return block
