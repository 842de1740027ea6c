"""A conformance kit for stores of blobs: what a model registry needs of the store that keeps its versions.

`check_blobs` runs every case against a fresh store. A case is a plain function that takes a `BlobStore` that is open
and empty; it asserts, and says nothing when all is well. Losses of power are not among the cases: those need a
simulated disk, as `trio_cogment.testing.SimDisk`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from trio_cogment.servers.model_registry.blobs import BlobStore, Upload, put

MakeStore = Callable[[], AbstractContextManager[BlobStore]]
"""Makes a fresh store, empty and not open yet; removes it when the block is left."""

LONG_NAME = "n" * 200
LARGE = bytes(range(256)) * 1024 * 20  # 5 MiB
_THREADS = 8


def refused(kind: type[Exception], function: Callable[..., object], *args: object, **options: object) -> None:
    """Assert that a call raises."""
    try:
        function(*args, **options)
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}")


def finished(store: BlobStore, pieces: Iterable[bytes]) -> Upload:
    """Return an upload that only lacks its name."""
    upload = store.upload()
    for piece in pieces:
        upload.write(piece)
    upload.finish()
    return upload


def nothing_there(store: BlobStore) -> None:
    """An empty store has nothing, and says so."""
    assert store.folders() == []
    assert store.names("folder") == []
    refused(FileNotFoundError, store.read, "folder", "name")
    refused(FileNotFoundError, store.open_blob, "folder", "name")
    store.delete("folder", ["name"])
    store.delete("folder", [])


def written_and_read(store: BlobStore) -> None:
    """What was written in pieces comes back whole, and in ranges."""
    upload = finished(store, [b"one", b"", b" two", LARGE])
    upload.commit("folder", "name")
    upload.abort()
    whole = b"one two" + LARGE
    assert store.read("folder", "name") == whole
    blob = store.open_blob("folder", "name")
    assert blob.size == len(whole)
    assert blob.read(0, 3) == b"one"
    assert blob.read(4, 3) == b"two"
    assert blob.read(7, len(LARGE)) == LARGE
    assert blob.read(len(whole) - 2, 100) == whole[-2:]
    assert blob.read(len(whole), 100) == b""
    blob.close()
    blob.close()


def no_bytes(store: BlobStore) -> None:
    """A blob may be empty."""
    put(store, "folder", "name", b"")
    assert store.read("folder", "name") == b""
    blob = store.open_blob("folder", "name")
    assert (blob.size, blob.read(0, 10)) == (0, b"")
    blob.close()


def names_and_folders(store: BlobStore) -> None:
    """Every name of the grammar, listed in order; a folder is there as long as something is in it."""
    names = sorted(["%41", "A", "a", "a.b", "-", "_", ".dot", "%", "a-v000001.data", LONG_NAME])
    for name in names:
        put(store, "folder", name, name.encode())
        if not name.startswith("."):
            put(store, name, "x", b"")
    assert store.names("folder") == names
    assert [store.read("folder", name) for name in names] == [name.encode() for name in names]
    folders = sorted(["folder", *(name for name in names if not name.startswith("."))])
    assert store.folders() == folders
    store.delete("A", ["x", "y"])
    assert store.folders() == [folder for folder in folders if folder != "A"]
    put(store, "A", "z", b"again")
    assert store.names("A") == ["z"]
    store.delete("folder", names[:3])
    assert store.names("folder") == names[3:]


def invisible_before_commit(store: BlobStore) -> None:
    """Nothing is seen of an upload before its commit, nor ever of one that was aborted."""
    upload = store.upload()
    upload.write(LARGE)
    assert store.folders() == []
    upload.finish()
    assert store.folders() == []
    upload.abort()
    upload.abort()
    assert store.folders() == []
    unfinished = store.upload()
    unfinished.write(b"x")
    unfinished.abort()
    assert store.folders() == []


def only_if_absent(store: BlobStore) -> None:
    """A name is given once, unless it shall be replaced; who comes too late can take another one."""
    put(store, "folder", "name", b"first")
    late = finished(store, [b"second"])
    refused(FileExistsError, late.commit, "folder", "name")
    assert store.read("folder", "name") == b"first"
    late.commit("folder", "other")
    assert store.read("folder", "other") == b"second"
    put(store, "folder", "name", b"third", replace=True)
    put(store, "folder", "new", b"fourth", replace=True)
    assert [store.read("folder", name) for name in store.names("folder")] == [b"third", b"fourth", b"second"]


def one_gets_the_name(store: BlobStore) -> None:
    """Of several threads that want one name at the same time one gets it, and what is there is that one's, whole."""
    for turn in range(10):
        uploads = [finished(store, [b"%d" % number * 1000]) for number in range(_THREADS)]
        barrier = threading.Barrier(_THREADS)
        winners: list[int] = []

        def commit(
            number: int, upload: Upload, name: str, barrier: threading.Barrier = barrier, winners: list[int] = winners
        ) -> None:
            barrier.wait()
            try:
                upload.commit("folder", name)
                winners.append(number)
            except FileExistsError:
                upload.abort()

        threads = [
            threading.Thread(target=commit, args=(number, upload, f"name-{turn}"))
            for number, upload in enumerate(uploads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1
        assert store.read("folder", f"name-{turn}") == b"%d" % winners[0] * 1000
    assert store.names("folder") == sorted(f"name-{turn}" for turn in range(10))


def replaced_whole(store: BlobStore) -> None:
    """Who reads while a blob is replaced sees the old or the new."""
    put(store, "folder", "name", b"0" * 10_000)
    seen: set[bytes] = set()
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(store.read("folder", "name"))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(20):
        put(store, "folder", "name", b"%d" % (turn % 10) * 10_000, replace=True)
    done.set()
    reader.join()
    assert all(len(set(content)) == 1 and len(content) == 10_000 for content in seen)


def reading_outlives_change(store: BlobStore) -> None:
    """An open blob is the one that it was, or reading it fails: never another one."""
    put(store, "folder", "name", b"old" * 1000)
    blob = store.open_blob("folder", "name")
    other = store.open_blob("folder", "name")
    put(store, "folder", "name", b"new" * 1000, replace=True)
    store.delete("folder", ["name"])
    put(store, "folder", "name", b"NEW" * 1000)
    for one in (blob, other):
        try:
            assert one.read(300, 30) == b"old" * 10
        except OSError:
            pass
        one.close()


def nobody_else(store: BlobStore) -> None:
    """What is there stays when the store is closed and opened; interrupted uploads leave nothing."""
    put(store, "folder", "name", b"kept")
    upload = store.upload()
    upload.write(b"interrupted")
    store.close()
    store.close()
    store.open()
    upload.abort()
    assert store.folders() == ["folder"]
    assert store.read("folder", "name") == b"kept"
    put(store, "folder", "other", b"more")
    assert store.names("folder") == ["name", "other"]


CASES: tuple[Callable[[BlobStore], None], ...] = (
    nothing_there,
    written_and_read,
    no_bytes,
    names_and_folders,
    invisible_before_commit,
    only_if_absent,
    one_gets_the_name,
    replaced_whole,
    reading_outlives_change,
    nobody_else,
)


def check_blobs(make: MakeStore) -> None:
    """Run every case, each on a store of its own.

    Raises:
        AssertionError: the implementation does not conform; a note names the case.
    """
    for case in CASES:
        with make() as store:
            store.open()
            try:
                case(store)
            except Exception as error:
                error.add_note(f"check_blobs: case {case.__name__}")
                raise
            finally:
                store.close()
