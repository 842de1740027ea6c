"""The archive on the disk: the reference layout read and written, restarts, losses of power, full and failing disks."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
import yaml
from trio.testing import MockClock

from tests.servers.model_registry.helpers import Harness, hash_of, open_harness, refused
from tests.servers.model_registry.losses import Journal, look, lose_power, operations_of
from trio_cogment.api.model_registry_pb2 import ModelInfo
from trio_cogment.base.errors import FailedPreconditionError, RpcError, StatusCode, UnavailableError
from trio_cogment.base.host.files import SystemFiles
from trio_cogment.servers.model_registry import LocalBlobs
from trio_cogment.servers.model_registry import _archive_layout as layout
from trio_cogment.servers.model_registry._archive import Archive
from trio_cogment.testing import SimDisk


def reference_version(root: Path, model_id: str, number: int, data: bytes) -> None:
    """Write a version as the reference does."""
    stem = root / model_id / f"{model_id}-v{number:06d}"
    Path(f"{stem}.yaml").write_text(
        f"model_id: {model_id}\nversion_number: {number}\ncreation_timestamp: 2022-05-04T03:02:01.000000{number:03d}Z\n"
        f"data_hash: {hash_of(data)}\ndata_size: {len(data)}\nuser_data:\n  k: v{number}\n"
    )
    Path(f"{stem}.data").write_bytes(data)


def reference_model(root: Path, model_id: str) -> None:
    (root / model_id).mkdir(parents=True)
    (root / model_id / f"{model_id}.yaml").write_text(f"model_id: {model_id}\nuser_data:\n  owner: {model_id}s\n")


async def test_an_archive_of_the_reference(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    for model_id in ("plain", "123", "foo-v1", "my model", "50%25", "empty"):
        reference_model(tmp_path, model_id)
        for number in (1, 2) if model_id != "empty" else ():
            reference_version(tmp_path, model_id, number, b"%s %d" % (model_id.encode(), number))
    reference_version(tmp_path, "plain", 1_000_000, b"late")
    # Versions that a kill has torn: no bytes, too few of them, or none at all of the description.
    reference_version(tmp_path, "plain", 1_000_001, b"")
    (tmp_path / "plain" / "plain-v1000001.data").unlink()
    reference_version(tmp_path, "plain", 1_000_002, b"torn")
    (tmp_path / "plain" / "plain-v1000002.data").write_bytes(b"to")
    (tmp_path / "plain" / "plain-v1000003.data").write_bytes(b"x")
    reference_version(tmp_path, "plain", 1_000_004, b"torn")
    (tmp_path / "plain" / "plain-v1000004.yaml").write_bytes(b"model_id: pl")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "read me.txt").write_text("keep")
    caplog.set_level(logging.ERROR)
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        assert (await one.models())[0] == ["123", "50%25", "empty", "foo-v1", "my model", "plain"]
        assert await one.numbers("foo-v1") == [1, 2]
        infos, _handle = await one.infos("50%25")
        assert [(info.model_id, dict(info.user_data)) for info in infos] == [
            ("50%25", {"k": "v1"}),
            ("50%25", {"k": "v2"}),
        ]
        assert infos[0].creation_timestamp == 1651633321000000001
        assert await one.data("my model", 2) == b"my model 2"
        # What is torn is not there, but its number is never given again.
        assert (await one.infos("plain", -1))[0][0].data_size == 4
        assert await one.numbers("plain") == [1, 2, 1_000_000]
        assert await one.data("plain") == b"late"
        assert await one.store("plain", b"ours") == 1_000_005
        assert [await one.store(model_id, b"ours") for model_id in ("foo-v1", "123", "50%25", "empty")] == [3, 3, 3, 1]
        # An id of ours whose folder the reference has given to another model.
        await one.create("50%")
        assert await one.store("50%", b"mine") == 1
        await one.create("notes")
        await one.store("notes", b"beside")
        assert await one.data("foo-v1", 1) == b"foo-v1 1"
    assert caplog.text.count("damaged") == 2
    async with open_harness(store=LocalBlobs(tmp_path)) as two:
        assert await two.numbers("foo-v1") == [1, 2, 3]
        assert await two.data("50%") == b"mine"
        assert await two.data("50%25", -1) == b"ours"
        assert await two.data("50%25", 1) == b"50%25 1"
        await two.delete("notes")
    assert not (tmp_path / "plain" / "plain-v1000001.yaml").exists()


async def test_plain_ids_are_written_as_the_reference_reads_them(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        await one.create("model_1", owner="me")
        await one.upload("model_1", b"data", user_data={"k": "1"}, creation_timestamp=1651633321000000001)
        await one.publish("model_1")
    files = SystemFiles()
    assert files.names(str(tmp_path)) == [".lock", "model_1"]
    folder = str(tmp_path / "model_1")
    assert files.names(folder) == ["model_1-v000001.data", "model_1-v000001.yaml", "model_1.last", "model_1.yaml"]
    assert yaml.safe_load(files.read(f"{folder}/model_1.yaml")) == {"model_id": "model_1", "user_data": {"owner": "me"}}
    assert files.read(f"{folder}/model_1-v000001.data") == b"data"
    assert files.read(f"{folder}/model_1-v000001.yaml").decode() == (
        "model_id: model_1\nversion_number: 1\ncreation_timestamp: 2022-05-04T03:02:01.000000001Z\n"
        f"data_hash: {hash_of(b'data')}\ndata_size: 4\nuser_data:\n  k: '1'\n"
    )


async def test_two_registries_do_not_share_a_root(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_harness(store=LocalBlobs(tmp_path)):
        with pytest.raises(FailedPreconditionError, match="in use"):
            async with open_harness(store=LocalBlobs(tmp_path)):
                pass
    async with open_harness(store=LocalBlobs(tmp_path)):
        pass


async def test_what_cannot_be_opened_is_named(tmp_path: Path, autojump_clock: MockClock) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match=rf"opening the archive: .*Not a directory \({tmp_path}/file/.lock\)"):
        async with open_harness(store=LocalBlobs(tmp_path / "file")):
            pass


async def test_damage_is_found_when_it_is_read(caplog: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    disk = SimDisk(random.Random(1))
    async with open_harness(disk, sent_version_chunk_bytes=10) as one:
        await one.create("m")
        await one.store("m", b"a" * 25)
        await one.store("m", b"b" * 25)
        rotten = disk.open("root/m/m-v000002.data")
        rotten.write(b"b" * 24 + b"c")
        with refused(StatusCode.DATA_LOSS, "version 2"):
            await one.data("m")
        rotten.write(b"more")
        assert await one.data("m") == b"a" * 25  # the newest there is
        assert await one.store("m") == 3
        for text in (b"[", b"model_id: [m]"):
            disk.open("root/m/m.yaml").write(text)
            assert await one.models("m") == (["m"], "1")
            assert "nothing is known of its user data" in caplog.text
            caplog.clear()
            disk.remove("root/m/m.yaml")
        assert await one.models("m") == (["m"], "1")
        assert "nothing is known of its user data" in caplog.text
    caplog.clear()
    async with open_harness(disk) as two:
        assert (await two.models())[0] == ["m"]
        assert await two.numbers("m") == [1, 3]
    disk.open("root/m/m.last").write(b"no number")
    async with open_harness(disk) as three:
        assert await three.store("m") == 4
    assert "expected a number in" in caplog.text


@pytest.mark.parametrize(("text", "next_number"), [("9999999999\n", 10**10), (" 7 ", 8), ("10000000000", 1), ("-7", 1)])
async def test_the_last_number_has_at_most_ten_digits(
    text: str, next_number: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reference_model(tmp_path, "m")
    (tmp_path / "m" / "m.last").write_text(text)
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        assert one.registry.models["m"].last == next_number - 1
    assert ("expected a number in" in caplog.text) == (next_number == 1)


async def test_a_folder_that_does_not_say_whose_it_is(autojump_clock: MockClock) -> None:
    disk = SimDisk(random.Random(1))
    async with open_harness(disk) as one:
        for model_id in ("a/b", "x" * 500):
            await one.create(model_id)
            await one.store(model_id, b"1")
    for folder in disk.folders("root"):
        disk.remove(f"root/{folder}/{folder}.yaml")
    async with open_harness(disk) as two:
        assert (await two.models())[0] == ["a/b", "x" * 500]  # its versions say it
        await two.create("a/b", k="v")
        assert await two.store("a/b") == 2
    # The same model twice, as after the reference has worked on it: one counts.
    disk.make_folder("root/a%2Fb copy")
    file = disk.open("root/a%2Fb copy/a%2Fb copy.yaml")
    file.write(b"model_id: a/b\n")
    async with open_harness(disk) as three:
        assert await three.numbers("a/b") == [1, 2]


# Losses of power


async def test_the_power_goes_at_every_operation_of_uploads(autojump_clock: MockClock) -> None:
    """Nothing that was acknowledged is lost, nothing is torn, no number is used twice."""
    points = await operations_of([Journal()])
    assert points >= 80
    unacknowledged = 0
    for point in range(points + 1):
        for seed in range(3):
            disk = SimDisk(random.Random(1000 * seed + point))
            journals = [Journal()]
            await lose_power(disk, point, journals)
            unacknowledged += await look(disk, journals) - len(journals[0].versions)
    assert unacknowledged > 0, "no version was there before it was acknowledged: the points were not what they seem"


async def test_the_power_goes_at_every_operation_of_a_deletion(autojump_clock: MockClock) -> None:
    """A model is there whole, or not at all; its successor has nothing of it."""

    async def delete(disk: SimDisk, told: list[str]) -> None:
        async with open_harness(disk) as one:
            await one.create("m")
            await one.store("m", b"1" * 1500)
            await one.store("m", b"2" * 1500)
            await one.publish("m")
            told.append("stored")
            await one.delete("m")
            told.append("deleted")

    dry = SimDisk(random.Random(0))
    async with open_harness(dry) as one:
        await one.create("m")
        await one.store("m", b"1" * 1500)
        await one.store("m", b"2" * 1500)
        await one.publish("m")
        start = dry.operations
    whole = SimDisk(random.Random(0))
    await delete(whole, [])
    outcomes = set()
    for point in range(start, whole.operations + 1):
        for seed in range(6):
            disk = SimDisk(random.Random(1000 * seed + point))
            disk.crash_at(point)
            told: list[str] = []
            try:
                await delete(disk, told)
                disk.crash()
            except RpcError:
                pass
            disk.restart()
            async with open_harness(disk) as after:
                models, _handle = await after.models()
                outcomes.add((bool(models), "deleted" in told))
                if models:
                    assert "deleted" not in told
                    assert await after.numbers("m") == [1, 2]
                    assert await after.data("m", 1) == b"1" * 1500
                    assert await after.store("m") == 4
                else:
                    assert snapshot(disk) == {}
                    await after.create("m")
                    assert await after.numbers("m") == []
                    assert await after.store("m") == 1
    assert outcomes >= {(True, False), (False, True)}


# Full and failing disks


@pytest.mark.parametrize("archived", [False, True])
async def test_a_full_disk_changes_nothing_and_is_got_over(archived: bool, autojump_clock: MockClock) -> None:
    disk = SimDisk(random.Random(1))
    async with open_harness(disk) as one:
        await one.create("m", k="old")
        await one.upload("m", b"x" * 1000, archived=archived)
        before = snapshot(disk)
        disk.capacity_bytes = 0
        for _ in range(3):
            with refused(StatusCode.RESOURCE_EXHAUSTED, "no room"):
                await one.upload("m", b"y" * 300_000, archived=archived)
            with refused(StatusCode.RESOURCE_EXHAUSTED, "no room"):
                await one.create("m", k="new")
            with refused(StatusCode.RESOURCE_EXHAUSTED, "no room"):
                await one.create("other")
        assert snapshot(disk) == before
        assert await one.data("m") == b"x" * 1000
        disk.capacity_bytes = 1 << 40
        assert (await one.upload("m", b"y" * 300_000, archived=archived)).version_number > 1
        await one.create("other")
        await one.delete("m")
        assert (await one.models())[0] == ["other"]


def snapshot(disk: SimDisk) -> dict[str, bytes]:
    paths = [f"root/{folder}/{name}" for folder in disk.folders("root") for name in disk.names(f"root/{folder}")]
    return {path: disk.read(path) for path in paths}


async def test_room_for_any_part_of_an_upload(autojump_clock: MockClock) -> None:
    """However much room there is, there is no half of a version."""
    outcomes = set()
    for room in range(0, 3000, 97):
        disk = SimDisk(random.Random(1))
        async with open_harness(disk) as one:
            await one.create("m")
            disk.capacity_bytes = sum(map(len, snapshot(disk).values())) + room
            try:
                number = await one.store("m", b"x" * 1500)
                outcomes.add(StatusCode.OK)
            except RpcError as error:
                outcomes.add(error.code)
                assert await one.numbers("m") == []
                assert disk.names("root") == [".lock", "m"]
                assert disk.names("root/m") == ["m.yaml"]
            else:
                assert await one.numbers("m") == [number]
    assert outcomes == {StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.parametrize("archived", [False, True])
async def test_failing_syncs_are_told_and_got_over(archived: bool, autojump_clock: MockClock) -> None:
    async def try_upload(one: Harness) -> RpcError | None:
        try:
            told.append((await one.upload("m", b"x" * 1500, archived=archived)).version_number)
        except RpcError as error:
            return error
        return None

    for count in range(1, 8):
        disk = SimDisk(random.Random(count))
        told: list[int] = []
        async with open_harness(disk) as one:
            await one.create("m")
            disk.fail_syncs(count)
            failures = 0
            while error := await try_upload(one):
                assert error.code is StatusCode.UNAVAILABLE
                assert "Input/output error" in error.message
                failures += 1
            assert failures >= 1
            assert await try_upload(one) is None
            assert await one.numbers("m") == told
        disk.crash()
        disk.restart()
        async with open_harness(disk) as two:
            assert set(told) <= set(await two.numbers("m")) or not archived
            assert await two.store("m") > max(told)


async def test_a_number_that_may_be_on_the_disk_is_not_given_again(autojump_clock: MockClock) -> None:
    class LastSyncFails(SimDisk):
        failing = False

        def sync_folder(self, folder: str) -> None:
            if self.failing and any(name.endswith(".data") for name in self.names(folder)):
                raise OSError(5, "Input/output error")
            super().sync_folder(folder)

    disk = LastSyncFails(random.Random(1))
    async with open_harness(disk) as one:
        await one.create("m")
        disk.failing = True
        for _ in range(2):
            with refused(StatusCode.UNAVAILABLE):
                await one.store("m", b"1")
        disk.failing = False
        assert await one.numbers("m") == []
        assert await one.store("m", b"3") == 3


async def test_a_higher_number_that_was_given_is_kept_when_an_upload_was_interrupted(tmp_path: Path) -> None:
    reference_model(tmp_path, "m")
    for number in (1, 5):
        reference_version(tmp_path, "m", number, b"x")
    (tmp_path / "m" / "m-v000005.data").unlink()
    (tmp_path / "m" / "m.last").write_text("9\n")
    for _ in range(2):
        async with open_harness(store=LocalBlobs(tmp_path)) as one:
            assert await one.numbers("m") == [1]
            assert one.registry.models["m"].last == 9


async def test_the_first_document_that_says_it_says_whose_a_folder_is(tmp_path: Path) -> None:
    folder = tmp_path / "a%2Fb"
    folder.mkdir()
    (folder / "a%2Fb.yaml").write_text("model_id: ''\n")
    for number, text in enumerate(("no mapping", "model_id: ''\n", "model_id: a/b\n", "model_id: other\n"), 1):
        (folder / f"a%2Fb-v{number:06d}.yaml").write_text(text)
        (folder / f"a%2Fb-v{number:06d}.data").write_bytes(b"")
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        assert list(one.registry.models) == ["a/b"]


def test_what_is_not_there_takes_nothing() -> None:
    archive = Archive(LocalBlobs("root", files=SimDisk(random.Random(1))))
    archive.open()
    assert archive.measure("nobody", [1, 2]) == 0
    folder, size = archive.create(ModelInfo(model_id="m"), ())
    assert archive.measure(folder, [1]) == size > 0
    archive.store.delete(folder, [layout.model_name(folder)])
    assert archive.update(folder, ModelInfo(model_id="m")) == size
    archive.close()


async def test_a_description_without_bytes_keeps_its_number(tmp_path: Path) -> None:
    reference_model(tmp_path, "m")
    reference_version(tmp_path, "m", 1, b"1")
    reference_version(tmp_path, "m", 5, b"5")
    (tmp_path / "m" / "m-v000005.data").unlink()
    for _ in range(2):  # the second start does not see it any more
        async with open_harness(store=LocalBlobs(tmp_path)) as one:
            assert await one.numbers("m") == [1]
            assert one.registry.models["m"].last == 5
        assert not (tmp_path / "m" / "m-v000005.yaml").exists()
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        assert await one.store("m", b"6") == 6


async def test_a_deletion_that_fails_has_changed_nothing_or_is_done_later(
    autojump_clock: MockClock,
) -> None:
    codes = set()
    for failing in range(1, 8):
        disk = SimDisk(random.Random(1))
        async with open_harness(disk) as one:
            await one.create("m")
            await one.store("m", b"1")
            disk.fail_syncs(failing)
            try:
                await one.delete("m")
            except RpcError as error:
                codes.add(error.code)
                assert await one.data("m") == b"1"
                disk.fail_syncs(0)
                await one.delete("m")
            disk.fail_syncs(0)
            assert (await one.models())[0] == []
            await one.create("m")
            assert await one.numbers("m") == []
        async with open_harness(disk) as two:
            assert (await two.models())[0] == ["m"]
            assert await two.numbers("m") == []
    assert codes == {StatusCode.UNAVAILABLE}


async def test_a_deletion_that_failed_is_not_made_up_for_by_a_restart(autojump_clock: MockClock) -> None:
    """Its caller was told that the model is still there."""

    class Slow(SimDisk):
        failing = False

        def sync_folder(self, folder: str) -> None:
            if self.failing and self.names(folder).count("m.deleted"):
                self.failing = False
                raise OSError(5, "Input/output error")
            super().sync_folder(folder)

    disk = Slow(random.Random(1))
    async with open_harness(disk) as one:
        await one.create("m")
        await one.store("m", b"1")
        disk.failing = True
        with refused(StatusCode.UNAVAILABLE, "deleting model 'm'"):
            await one.delete("m")
        assert not disk.failing
        assert await one.data("m") == b"1"
    async with open_harness(disk) as two:
        assert await two.data("m") == b"1"


async def test_an_archive_that_cannot_be_read_is_left_open_for_others(autojump_clock: MockClock) -> None:
    class Torn(SimDisk):
        torn = False

        def names(self, folder: str) -> list[str]:
            if self.torn and folder.endswith("m"):
                raise OSError(5, "Input/output error")
            return super().names(folder)

    disk = Torn(random.Random(1))
    async with open_harness(disk) as one:
        await one.create("m")
        await one.store("m", b"1")
    disk.torn = True
    with pytest.raises(Exception, match="opening the archive: the storage failed"):
        async with open_harness(disk):
            raise AssertionError("opened")
    disk.torn = False
    async with open_harness(disk) as two:
        assert await two.data("m") == b"1"


async def test_whose_a_folder_s_versions_are(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Without a description of the model they say it; with one, it does, whatever they say."""
    (tmp_path / "alone").mkdir()
    reference_version(tmp_path, "alone", 1, b"alone")
    document = tmp_path / "alone" / "alone-v000001.yaml"
    document.write_text(document.read_text().replace("model_id: alone", "model_id: other"))
    reference_model(tmp_path, "moved")
    reference_version(tmp_path, "moved", 3, b"moved")
    document = tmp_path / "moved" / "moved-v000003.yaml"
    document.write_text(document.read_text().replace("version_number: 3", "version_number: 7").replace("moved", "old"))
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        assert (await one.models())[0] == ["moved", "other"]
        assert await one.data("other") == b"alone"
        ((info,), _) = await one.infos("moved")
        assert (info.model_id, info.version_number) == ("moved", 3)
        assert await one.data("moved", 3) == b"moved"


async def test_opening_a_failing_disk(autojump_clock: MockClock) -> None:
    disk = SimDisk(random.Random(1))
    disk.fail_syncs(1)
    with pytest.raises(Exception, match="opening the archive: the storage failed: Input/output error"):
        async with open_harness(disk):
            pass
    async with open_harness(disk) as one:
        await one.create("m")


async def test_leftovers_of_a_deletion_are_not_the_successors(
    autojump_clock: MockClock,
) -> None:
    class Stubborn(SimDisk):
        stubborn = False

        def remove(self, path: str) -> None:
            if self.stubborn and path.endswith(".data"):
                raise OSError(5, "Input/output error")
            super().remove(path)

    disk = Stubborn(random.Random(1))
    async with open_harness(disk) as one:
        await one.create("m")
        await one.store("m", b"1")
        disk.stubborn = True
        await one.delete("m")
        assert (await one.models())[0] == []
        with refused(StatusCode.UNAVAILABLE):
            await one.create("m")
        disk.stubborn = False
        await one.create("m")
        assert await one.numbers("m") == []
        await one.store("m", b"new")
        disk.stubborn = True
        await one.delete("m")
        disk.stubborn = False
    async with open_harness(disk) as two:
        assert (await two.models())[0] == []
    assert disk.names("root") == [".lock"]


async def test_an_owner_that_cannot_be_read_is_somebody_all_the_same(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_harness(store=LocalBlobs(tmp_path)) as one:
        await one.create("model_1")
    (tmp_path / "model_1" / "model_1.owner").write_bytes(b"ann\xff")
    async with open_harness(store=LocalBlobs(tmp_path)) as again:
        assert again.registry.models["model_1"].owner == "ann\N{REPLACEMENT CHARACTER}"


async def test_a_root_may_be_given_as_the_folder_s_bare_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_harness(store=LocalBlobs("models")) as one:
        await one.create("m")
        assert await one.store("m", b"data") == 1
    assert (tmp_path / "models" / "m").is_dir()
