"""The reference's file of samples: what we write is what the framing says, and what we read may come in any pieces."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample, TrialSamplesFileHeader
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk._export_import import MAGIC, MAX_FRAME_BYTES, SampleFileReader, encode_header, encode_sample

PARAMS = {"one": TrialParams(max_steps=3), "two": TrialParams()}


def frame(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def by_hand(*samples: StoredTrialSample) -> bytes:
    """A file from the documented framing, with nothing of ours."""
    header = TrialSamplesFileHeader(export_timestamp=7)
    header.version_info.versions.add(name="cogment", version="2.22.0")
    for trial_id, params in PARAMS.items():
        header.trial_params[trial_id].CopyFrom(params)
    content = b"COGMENTTRIALS001" + frame(header.SerializeToString())
    return content + b"".join(frame(sample.SerializeToString()) for sample in samples)


SAMPLES = [
    StoredTrialSample(trial_id="one", tick_id=0, payloads=[b"x" * 300]),
    StoredTrialSample(trial_id="two", tick_id=0),
    StoredTrialSample(trial_id="one", tick_id=1, state=TrialState.ENDED),
]


def read(content: bytes, cuts: list[int]) -> tuple[TrialSamplesFileHeader, list[StoredTrialSample]]:
    reader = SampleFileReader()
    places = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    found = [sample for start, end in pairwise(places) for sample in reader.feed(content[start:end])]
    assert reader.samples == len(found)
    return reader.finish(), found


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_a_file_by_hand_is_read_in_pieces_of_any_size(cuts: list[int]) -> None:
    header, samples = read(by_hand(*SAMPLES), cuts)
    assert samples == SAMPLES
    assert dict(header.trial_params) == PARAMS
    assert header.export_timestamp == 7


@pytest.mark.parametrize("shown", [5, 3])
def test_where_a_file_is_broken_or_cut_off_is_told(shown: int) -> None:
    content = by_hand(*SAMPLES[:2])
    reader = SampleFileReader()

    def feed() -> None:
        list(reader.feed(content + frame(b"\x08")[:shown]))
        reader.finish()

    with pytest.raises(InvalidArgumentError, match=rf"byte {len(content)}\b") as caught:
        feed()
    assert "sample 2" in str(caught.value)


@pytest.mark.parametrize("size", [0, 5, len(MAGIC)])
def test_a_file_that_ends_before_its_header_is_cut_off(size: int) -> None:
    reader = SampleFileReader()
    assert list(reader.feed(MAGIC[:size])) == []
    left, place = (0, size) if size == len(MAGIC) else (size, 0)
    expected = f"^the file is cut off: it ends {left} bytes after byte {place}, in the middle of its header$"
    with pytest.raises(InvalidArgumentError, match=expected):
        reader.finish()


def test_what_we_write_is_the_documented_framing() -> None:
    written = encode_header(PARAMS, version="2.22.0", timestamp=7) + b"".join(map(encode_sample, SAMPLES))
    expected = by_hand(*SAMPLES)
    assert written[:16] == expected[:16]
    # The order of a map's entries on the wire is free; everything else is not.
    assert len(written) == len(expected)
    assert read(written, []) == read(expected, [])


ENDS = [len(by_hand(*SAMPLES[:count])) for count in range(len(SAMPLES))]


@given(st.integers(0, len(by_hand(*SAMPLES)) - 1).filter(lambda size: size not in ENDS))
def test_a_file_cut_off_in_the_middle_of_a_sample_is_noticed(size: int) -> None:
    """Or of the header, or of a frame's length."""
    reader = SampleFileReader()
    samples = list(reader.feed(by_hand(*SAMPLES)[:size]))
    assert samples == SAMPLES[: len(samples)]
    with pytest.raises(InvalidArgumentError, match="cut off"):
        reader.finish()


@pytest.mark.parametrize("count", range(len(SAMPLES)))
def test_a_file_cut_off_between_two_samples_looks_whole(count: int) -> None:
    """The form has no end mark, and the last sample of a trial that was running says nothing of an end."""
    header, samples = read(by_hand(*SAMPLES)[: ENDS[count]], [])
    assert samples == SAMPLES[:count]
    assert dict(header.trial_params) == PARAMS


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"PK\x03\x04", "not a file of trial samples: expected it to begin with COGMENTTRIALS001"),
        (b"COGMENTTRIALS002" + bytes(8), "not a file of trial samples"),
        (
            b"COGMENTTRIALS001" + b"\xff" * 8,
            f"at byte 16: expected a length of at most {MAX_FRAME_BYTES}, got 4294967295",
        ),
        (b"COGMENTTRIALS001" + frame(b"\xff\xff"), r"header \(at byte 16\): 2 bytes that cannot be parsed"),
        (by_hand() + frame(b"\x0a\xff"), r"sample 0 \(at byte \d+\): 2 bytes that cannot be parsed"),
        (
            by_hand(SAMPLES[0], StoredTrialSample(trial_id="three")),
            r"sample 1 \(at byte \d+\): its trial 'three' is not in the header",
        ),
    ],
    # The order of a map's entries differs between processes, and with it some of these bytes.
    ids=["another-form", "another-version", "endless-header", "broken-header", "broken-sample", "unknown-trial"],
)
def test_what_is_no_such_file_is_refused(content: bytes, text: str) -> None:
    reader = SampleFileReader()
    with pytest.raises(InvalidArgumentError, match=text):
        list(reader.feed(content))


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read_never_worse(garbage: bytes) -> None:
    reader = SampleFileReader()
    try:
        samples = list(reader.feed(b"COGMENTTRIALS001" + garbage))
        reader.finish()
    except InvalidArgumentError:
        return
    assert len(samples) == reader.samples
