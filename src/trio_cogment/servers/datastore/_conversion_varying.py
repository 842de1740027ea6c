"""The fast path of the conversion for samples whose payloads vary in length.

A sample is taken apart: its payloads, and the lengths that depend on theirs, are cut out of the bytes that protobuf has
serialised it to. What is left has the same length from tick to tick, so a template (`_conversion_templates`) tells
whether it is like an earlier one. A `Way` knows how many bytes are between two payloads; that they are the right ones
says the template, for which they have to be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.shared_message import field_tag
from trio_cogment.servers.datastore._chunk_layouts import checkpoint_field, joined
from trio_cogment.servers.datastore._conversion_templates import Deliveries, Template, Templates, places_of
from trio_cogment.servers.datastore._protobuf_wire import Place, number_of
from trio_cogment.servers.datastore.storage import SampleWrite

#: So many ways of a trial are known: the ticks of actions, whose length varies, are between two payloads.
_MAX_WAYS = 4
#: Larger ones have no templates: this many bytes, as they came and as they are stored, without payloads.
_MAX_BYTES = 16 * 1024
#: Limits the time that is spent on samples without a template: learning costs `_LEARN`, and each sample earns 1, up to
#: `_MAX_CREDIT`.
_MAX_CREDIT = 256
_LEARN = 32
#: A length has no more bytes than this.
_MOST_DIGITS = 5
_new = tuple.__new__
#: The last field of an observation set; few have it.
_CHECKPOINT = field_tag(ObservationSet, "checkpoint")


class Apart(NamedTuple):
    """A serialised sample that is taken apart.

    Attributes:
        rest: what is left of it.
        payloads: of its observations, then of its actions.
        size: how many bytes a stored sample has for its payloads and its checkpoint.
        checkpoint: see `checkpoint_field`.
    """

    rest: bytes
    payloads: list[bytes]
    size: int
    checkpoint: bytes


class Way:
    """How samples are taken apart that have as many payloads, and as many bytes between them.

    Args:
        data: one of them, serialised, without a checkpoint.
        places: where its fields are.

    Attributes:
        messages: for each message that may have payloads: how many bytes are before its length, from the payload before
            it on; how many before the length of each of its payloads; how many behind the last one.
        places: where the other fields are in what is left.
    """

    __slots__ = ("messages", "places")

    def __init__(self, data: bytes, places: Sequence[Place]) -> None:
        self.messages: list[tuple[int, tuple[int, ...], int]] = []
        self.places: list[Place] = []
        behind = removed = end = 0
        for place in places:
            if place.what not in ("message", "payload"):
                self.places.append(Place(place.what, place.start - removed, place.end - removed))
                continue
            begin = _begin_of_length(data, place.start)
            if place.what == "message":
                end = place.start + number_of(data[begin : place.start])
                self.messages.append((begin - behind, (), end - place.end))
            else:
                before, gaps, _ = self.messages[-1]
                self.messages[-1] = before, (*gaps, begin - behind), end - place.end
            removed += place.end - begin
            behind = place.end

    def take_apart(self, data: bytes) -> Apart | None:
        """Take a serialised sample apart; None: it goes another way."""
        rest, payloads, checkpoint = list[bytes](), list[bytes](), b""
        at = size = 0
        try:
            for before, gaps, tail in self.messages:
                place = at + before
                rest.append(data[at:place])
                # The lengths that most have are read here, without a call for each.
                length, at = data[place], place + 1
                if length > 127:
                    more, at = data[at], at + 1
                    if more > 127:
                        at, length = _long_length(data, place)
                    else:
                        length += (more << 7) - 128
                end = at + length
                for gap in gaps:
                    place = at + gap
                    rest.append(data[at:place])
                    length, begin = data[place], place + 1
                    if length > 127:
                        more, begin = data[begin], begin + 1
                        if more > 127:
                            begin, length = _long_length(data, place)
                        else:
                            length += (more << 7) - 128
                    at = begin + length
                    payloads.append(data[begin:at])
                    size += at - place + 1
                place = at + tail
                if place != end:
                    begin, length = _long_length(data, place + len(_CHECKPOINT))
                    if checkpoint or not data.startswith(_CHECKPOINT, place) or begin + length != end:
                        return None
                    checkpoint = checkpoint_field(data[begin:end])
                    size += len(checkpoint)
                    data = data[:place] + data[end:]
        except IndexError:
            return None
        if at > len(data):
            return None
        rest.append(data[at:])
        return _new(Apart, (b"".join(rest), payloads, size, checkpoint))


def _begin_of_length(data: bytes, end: int) -> int:
    """Return where the length begins that ends there, behind a tag of one byte."""
    begin = end - 1
    while data[begin - 1] > 127:
        begin -= 1
    return begin


def _long_length(data: bytes, at: int) -> tuple[int, int]:
    """Return where a length ends, and the length."""
    for end in range(at + 1, at + 1 + _MOST_DIGITS):
        if data[end - 1] < 128:
            return end, number_of(data[at:end])
    raise IndexError("no length")


class VaryingTemplates:
    """The ways of a trial's samples, each with the templates of what is left of them.

    Attributes:
        wanted: the last sample that was looked up has no template and may become one.
    """

    def __init__(self) -> None:
        self._known: list[tuple[Way, Templates]] = []
        self._credit = _MAX_CREDIT
        self.wanted = False

    def convert(self, data: bytes) -> SampleWrite | None:
        """Convert a serialised sample; None: there is no template for it."""
        self.wanted = False
        if self._credit < _MAX_CREDIT:
            self._credit += 1
        for number, (way, templates) in enumerate(self._known):
            apart = way.take_apart(data)
            write = apart and templates.convert(*apart)
            if write:
                if number:
                    self._known.insert(0, self._known.pop(number))
                return write
        self.wanted = self._credit >= _LEARN
        return None

    def learn(self, sample: DatalogSample, write: SampleWrite, deliveries: Deliveries) -> None:
        """Make a template of a sample, if there can be one.

        Args:
            sample: one with `info` and without messages, user data, and a checkpoint.
            write: its full conversion.
            deliveries: who received and sent its rewards.
        """
        self._credit -= _LEARN
        data = sample.SerializeToString()
        try:
            way = Way(data, places_of(data))
        except (ValueError, LookupError):
            return  # it has something that is not usual
        apart = way.take_apart(data)
        if apart is None or len(apart.rest) + len(joined(write.data)) - apart.size > _MAX_BYTES:
            return
        templates = next((templates for known, templates in self._known if known.messages == way.messages), None)
        if templates is None:
            templates = Templates()
            self._known.insert(0, (way, templates))
            del self._known[_MAX_WAYS:]
        rest, payloads, *_ = apart
        templates.learn_from(lambda: Template(rest, way.places, write, deliveries, payloads), apart, write)
