"""The directory as a whole: registering, asking, looking, on a clock of its own."""

from __future__ import annotations

import errno
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import trio

from tests.access.keys import KEYS, NOW, control, grant, token_text
from tests.access.keys import Clock as WallClock
from tests.servers.directory.bench import (
    ENVIRONMENT,
    METHODS,
    OTHER,
    Directory,
    Net,
    Told,
    directory,
    new_server,
    registration,
)
from trio_cogment.access import EVERYTHING, AccessControl, Grant, Identity, Revoked, Role, Rules, Source, Sources, Token
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest
from trio_cogment.api.directory_pb2 import (
    DeregisterReply,
    DeregisterRequest,
    InquireRequest,
    RegisterReply,
    RegisterRequest,
    ServiceDetails,
    ServiceEndpoint,
)
from trio_cogment.base.config import DirectoryServerConfig, OutgoingConfig
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    RpcError,
    StatusCode,
    UnavailableError,
)
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc import InProcessChannel
from trio_cogment.rpc.outgoing import Outgoing
from trio_cogment.servers.directory import DirectoryServer, Inquiry, _server, directory_services
from trio_cogment.servers.directory._requests import service_of
from trio_cogment.testing import SimDisk

T = TypeVar("T")

Clock = trio.testing.MockClock
GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "directory.md").read_text()
OK, FAILED = RegisterReply.OK, RegisterReply.FAILED


async def test_registered_found_and_taken_back(autojump_clock: Clock) -> None:
    async with directory() as at:
        at.net.host("one")
        [reply] = await at.register(registration("one", {"a": "1"}), token="t")
        assert reply.status == OK
        assert not reply.error_msg
        assert 0 < reply.service_id < 2**63
        assert re.fullmatch("[0-9a-f]{32}", reply.secret)
        for inquiry in (
            InquireRequest(service_id=reply.service_id),
            InquireRequest(details=ServiceDetails()),
            InquireRequest(details=ServiceDetails(type=ENVIRONMENT, properties={"a": "1"})),
        ):
            [data] = await at.inquire(inquiry, token="t")
            assert data.service_id == reply.service_id
            assert data.endpoint == ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host="one", port=9000)
            assert data.details == ServiceDetails(type=ENVIRONMENT, properties={"a": "1"})
            assert not data.permanent
            assert await at.inquire(inquiry) == []
        wrong = DeregisterRequest(service_id=reply.service_id, secret="guess")
        right = DeregisterRequest(service_id=reply.service_id, secret=reply.secret)
        [refused] = await at.deregister(right)
        assert refused.status == DeregisterReply.FAILED
        replies = await at.deregister(wrong, right, right, token="t")
        assert [one.status for one in replies] == [DeregisterReply.FAILED, DeregisterReply.OK, DeregisterReply.FAILED]
        assert "no service" in replies[0].error_msg
        assert at.server.count == 0


async def test_what_is_nobody_s_any_more_is_forgotten_durably(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with directory(disk=disk, path="state") as at:
        for name in ("one", "two", "three"):
            at.net.host(name)
        await at.register(registration("one"), registration("two"), registration("one"), token="t")
        await at.register(registration("three"))
        written = disk.operations
        assert await at.server.forget(lambda service: service.host == "nobody") == 0
        assert disk.operations == written
        assert await at.server.forget(lambda service: service.host == "one") == 2
        disk.crash()
        disk.restart()
        [kept, other] = json.loads(disk.read("state"))["services"]
        assert (kept["host"], other["host"]) == ("two", "three")
        assert at.server.count == 2
        at.server.stop()
        with pytest.raises(UnavailableError, match="stopping"):
            await at.server.forget(lambda service: True)


async def test_the_newest_first(autojump_clock: Clock) -> None:
    async with directory() as at:
        for name in ("one", "two", "three"):
            at.net.host(name)
            await at.register(registration(name))
        assert await at.hosts() == ["three", "two", "one"]


BAD = [
    RegisterRequest(),
    RegisterRequest(endpoint=ServiceEndpoint(protocol=ServiceEndpoint.GRPC, host="h", port=1)),
    RegisterRequest(details=ServiceDetails(type=ENVIRONMENT)),
    registration("", permanent=True),
    registration("h", port=0),
    registration("h", port=65536),
    registration("h", protocol=0),
    registration("h", protocol=7),
    registration("h", kind=0),
    registration("h", kind=99),
    registration("h", {"a": "x" * 20_000}),
    registration("h", {str(number): "" for number in range(10_000)}),
]


async def test_what_is_wrong_is_told_and_the_stream_goes_on(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with directory(disk=disk, path="state") as at:
        at.net.host("good")
        before = disk.operations
        replies = await at.register(*BAD)
        assert disk.operations == before  # nothing of it was written
        assert at.server.count == 0
        assert at.net.dialled == []
        assert [reply.status for reply in replies] == [FAILED] * len(BAD)
        for reply in replies:
            assert re.match(r"(endpoint|details)[.a-z, ]*: expected", reply.error_msg)
            assert not reply.service_id
            assert not reply.secret
        replies = await at.register(BAD[0], registration("good"), BAD[1])
        assert [reply.status for reply in replies] == [FAILED, OK, FAILED]
        assert await at.hosts() == ["good"]


@pytest.mark.parametrize(
    "inquiry",
    [InquireRequest(), InquireRequest(details=ServiceDetails(type=42))],  # type: ignore[arg-type]  # the point
)
async def test_bad_inquiries(inquiry: InquireRequest, autojump_clock: Clock) -> None:
    async with directory() as at:
        with pytest.raises(RpcError) as caught:
            await at.inquire(inquiry)
        assert caught.value.code is StatusCode.INVALID_ARGUMENT


async def test_nothing_found_is_no_error(autojump_clock: Clock) -> None:
    async with directory() as at:
        for inquiry in (InquireRequest(service_id=0), InquireRequest(service_id=7), None):
            assert await at.inquire(inquiry) == []


async def test_a_flood_of_registrations_on_one_stream(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(max_entries=20)) as at:
        requests = [registration("client", {"number": str(number)}, protocol=3, port=0, kind=3) for number in range(50)]
        replies = await at.register(*requests)
        assert [reply.status for reply in replies] == [OK] * 20 + [FAILED] * 30
        assert replies[-1].error_msg == "the directory has 20 registrations and takes no more"
        assert len(await at.hosts()) == at.server.count == 20
        gone = DeregisterRequest(service_id=replies[0].service_id, secret=replies[0].secret)
        await at.deregister(gone)
        [reply] = await at.register(requests[0])
        assert reply.status == OK


async def test_status_and_version(autojump_clock: Clock) -> None:
    for balancing in (False, True):
        async with directory(DirectoryServerConfig(load_balancing=balancing)) as at:
            await at.register(registration("dead", permanent=True), registration("h", kind=OTHER))
            reply: StatusReply = await at.channel.unary(METHODS["Status"], StatusRequest(names=["*"]))
            assert reply.statuses.keys() == {"overall_load", "nb_entries", "load_balancing"}
            assert reply.statuses["nb_entries"] == "2"  # those that are not shown, too
            assert reply.statuses["load_balancing"] == ("enabled" if balancing else "disabled")
            assert reply.statuses["overall_load"].isdigit()
            assert not (await at.channel.unary(METHODS["Status"], StatusRequest())).statuses
            version: VersionInfo = await at.channel.unary(METHODS["Version"], VersionRequest())
            assert "trio-cogment" in {entry.name for entry in version.versions}


# Permanent registrations


async def test_permanent_ones_are_shown_unseen_and_updated_in_place(autojump_clock: Clock) -> None:
    async with directory() as at:
        first, _other, second = await at.register(
            registration("one", {"a": "1"}, permanent=True),
            registration("other", {"b": "1"}, permanent=True),
            registration("two", {"a": "1"}, permanent=True),
        )
        assert (first.status, second.status) == (OK, OK)
        assert second.service_id == first.service_id
        assert await at.hosts() == ["other", "two"]
        assert all(data.permanent for data in await at.inquire())
        await trio.sleep(1000)
        assert at.net.dialled == []
        replies = await at.deregister(
            DeregisterRequest(service_id=first.service_id, secret=first.secret),
            DeregisterRequest(service_id=second.service_id, secret=second.secret),
        )
        assert [reply.status for reply in replies] == [DeregisterReply.FAILED, DeregisterReply.OK]
        assert await at.hosts() == ["other"]


async def test_a_permanent_one_leaves_others_alone(autojump_clock: Clock) -> None:
    """Those that are not permanent, and those of another token."""
    async with directory() as at:
        at.net.host("mortal")
        await at.register(registration("mortal"))
        await at.register(registration("theirs", permanent=True), token="theirs")
        await at.register(registration("ours", permanent=True))
        assert await at.hosts() == ["ours", "mortal"]
        assert await at.hosts("theirs") == ["theirs"]
        assert [data.permanent for data in await at.inquire()] == [True, False]


async def test_force_permanent(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(force_permanent=True)) as at:
        one, two = await at.register(registration("one"), registration("two"))
        assert one.service_id == two.service_id
        [data] = await at.inquire()
        assert data.permanent
        assert data.endpoint.host == "two"
        assert at.net.dialled == []


# Looks


async def test_dead_hidden_back_and_forgotten(autojump_clock: Clock) -> None:
    async with directory() as at:
        at.net.host("one")
        await at.register(registration("one"))
        await trio.sleep(35)
        assert await at.hosts() == ["one"]
        at.net.hosts.clear()
        died = trio.current_time()
        await at.until(lambda hosts: not hosts)
        assert trio.current_time() - died <= 11.5  # interval and scan
        await trio.sleep(60)
        at.net.host("one")
        back = trio.current_time()
        await at.until(lambda hosts: hosts == ["one"])
        assert trio.current_time() - back <= 11.5
        at.net.hosts.clear()
        died = trio.current_time()
        await at.until(lambda _: at.server.count == 0)
        assert 120 <= trio.current_time() - died <= 120 + 3 * 11.5


@pytest.mark.parametrize(("how", "seconds"), [("refuses", 11), ("dead", 14), ("silent", 21)])
async def test_the_documented_time_until_nobody_is_sent_there(how: str, seconds: int, autojump_clock: Clock) -> None:
    """And the other one is offered all the time."""
    assert re.search(rf"\| .*{how}.* \| {seconds} s \|", GUIDE)
    longest = 0.0
    for phase in (0.1, 3.4, 6.7, 9.9):
        async with directory() as at:
            at.net.host("other")
            at.net.host("it")
            await at.register(registration("other"), registration("it"))
            await trio.sleep(20 + phase)
            del at.net.hosts["it"]
            if how != "refuses":
                getattr(at.net, how).add("it")
            died = trio.current_time()
            await at.until(lambda hosts: hosts == ["other"])
            longest = max(longest, trio.current_time() - died)
    assert seconds - 4 < longest <= seconds + 0.5  # a quarter of a second for our own look


async def test_three_failures_even_when_time_does_not_matter(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(forget_seconds=0)) as at:
        await at.register(registration("nobody"))
        early = len(at.net.dialled)
        assert early > 5  # it might have been starting: together one failure
        await at.until(lambda _: at.server.count == 0)
        assert at.net.dialled == ["nobody"] * (early + 2)


async def test_a_service_that_listens_a_moment_later_is_shown_by_the_reply(autojump_clock: Clock) -> None:
    for late in (0.01, 0.3, 1.0, 1.9):
        async with directory() as at, trio.open_nursery() as nursery:
            began = trio.current_time()

            async def come(at: Directory = at, late: float = late) -> None:
                await trio.sleep(late)
                at.net.host("late")

            nursery.start_soon(come)
            [reply] = await at.register(registration("late"))
            assert reply.status == OK
            assert late <= trio.current_time() - began <= late + 0.4
            assert await at.hosts() == ["late"]


async def test_services_that_start_with_their_directory_are_shown_soon(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with directory(disk=disk, path="state") as at:
        at.net.host("one")
        await at.register(registration("one"))
    disk.restart()
    async with directory(disk=disk, path="state") as at:
        await trio.sleep(1)
        assert await at.hosts() == []
        at.net.host("one")
        await trio.sleep(0.5)
        assert await at.hosts() == ["one"]


async def test_looking_for_one_that_is_starting_ends_with_its_registration(autojump_clock: Clock) -> None:
    async with directory() as at, trio.open_nursery() as nursery:
        nursery.start_soon(at.register, registration("nobody"))
        await trio.sleep(0.2)
        nursery.cancel_scope.cancel()
    async with directory() as at:
        service = service_of(registration("nobody"), max_bytes=1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.server.register, service)
            await trio.sleep(0.2)
            assert await at.server.forget(lambda _: True) == 1
        seen = len(at.net.dialled)
        await trio.sleep(10)
        assert len(at.net.dialled) == seen


async def test_silent_crowds_hold_up_nobody_who_answers(autojump_clock: Clock) -> None:
    config = DirectoryServerConfig(max_concurrent_checks=2, registration_wait_seconds=0)
    async with directory(config) as at:
        good = Told()
        at.net.host("good", good)
        await at.register(registration("good"))
        await trio.sleep(1)
        at.net.silent.add("silent")
        await at.register(*[registration("silent", port=port) for port in range(1, 101)])
        asked = good.asked
        await trio.sleep(100)
        assert good.asked - asked >= 9
        assert await at.hosts() == ["good"]
        assert at.net.dialled.count("silent") <= 2 * 100 / 10 + 2


async def test_checks_are_bounded(autojump_clock: Clock) -> None:
    running, most = 0, 0

    async def dial(_host: str, _port: int) -> trio.abc.Stream:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(0.5)
        running -= 1
        raise OSError

    config = DirectoryServerConfig(max_concurrent_checks=3, registration_wait_seconds=0)
    async with directory(config, connect=dial) as at:
        await at.register(*[registration("it", port=port) for port in range(1, 31)])
        await trio.sleep(60)
    assert most == 3


async def test_one_that_is_taken_back_is_checked_at_no_more(autojump_clock: Clock) -> None:
    config = DirectoryServerConfig(max_concurrent_checks=1, registration_wait_seconds=0)
    async with directory(config) as at:
        at.net.silent.add("silent")
        await at.register(registration("silent"))
        [waits] = await at.register(registration("later"))
        await at.deregister(DeregisterRequest(service_id=waits.service_id, secret=waits.secret))
        await trio.sleep(100)
        assert set(at.net.dialled) == {"silent"}


async def test_a_service_that_answers_just_before_it_would_be_forgotten(autojump_clock: Clock) -> None:
    """The file is slow: by the time it could be written, the service is back."""
    slow: dict[str, float] = {}

    async def slowly(function: Callable[..., T], *args: object) -> T:
        await trio.sleep(slow.get("seconds", 0))
        return function(*args)

    config = DirectoryServerConfig(forget_seconds=0, max_failures=1, recheck_initial_seconds=1)
    async with directory(config, disk=SimDisk(random.Random(0)), runner=lambda _threads: slowly, path="state") as at:
        at.net.host("flaky")
        at.net.host("other")
        await at.register(registration("flaky"))
        at.net.hosts.pop("flaky")
        slow["seconds"] = 60  # a registration that takes its time blocks the forgetting
        async with trio.open_nursery() as nursery:
            nursery.start_soon(at.register, registration("other"))
            await trio.sleep(20)
            assert await at.hosts() == []
            at.net.host("flaky")
        slow.clear()
        await trio.sleep(30)
        assert sorted(await at.hosts()) == ["flaky", "other"]


async def test_a_check_that_fails_affects_no_other(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async def dial(host: str, port: int) -> trio.abc.Stream:
        if host == "strange" and not mended:
            raise RuntimeError("a bug")
        return await net.dial(host, port)

    mended = False
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        net.host("good")
        net.host("strange")
        async with directory(connect=dial) as at:
            requests = [registration("good", kind=OTHER), registration("strange", kind=OTHER)]
            assert [reply.status for reply in await at.register(*requests)] == [OK, OK]
            assert await at.hosts() == ["good"]
            mended = True
            await trio.sleep(3)
            assert await at.hosts() == ["strange", "good"]
        nursery.cancel_scope.cancel()
    assert "the health check of service" in caplog.text


# check_on_inquire


async def test_checks_before_an_answer(autojump_clock: Clock) -> None:
    config = DirectoryServerConfig(check_on_inquire=True, check_interval_seconds=1000)
    async with directory(config) as at:
        services = {name: Told() for name in ("good", "bad", "slow")}
        for name, service in services.items():
            at.net.host(name, service)
            await at.register(registration(name))
        await at.register(registration("client", protocol=3, port=0, kind=3))
        await trio.sleep(10)
        asked = services["good"].asked
        del at.net.hosts["bad"], at.net.hosts["slow"]
        at.net.silent.add("slow")
        began = trio.current_time()
        assert await at.hosts() == ["client", "good"]
        assert trio.current_time() - began == pytest.approx(2)
        assert services["good"].asked == asked + 1
        # What was looked at just now is not looked at again; "slow" still is.
        asked_again = at.net.dialled.count("slow")
        await at.hosts()
        assert at.net.dialled.count("slow") == asked_again
        at.net.host("good", good := Told())
        await trio.sleep(1)
        await at.hosts()
        assert good.asked == 1
        assert trio.current_time() - began < 12


async def test_fresh_checks_are_not_repeated(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(check_on_inquire=True, fresh_check_seconds=5)) as at:
        at.net.host("one", service := Told())
        await at.register(registration("one"))
        for _ in range(5):
            assert await at.hosts() == ["one"]
        assert service.asked == 1


# registration_lag


async def test_an_inquiry_waits_for_somebody_to_come(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(registration_lag_seconds=30)) as at:
        found: list[tuple[list[str], Any]] = []

        async def ask() -> None:
            hosts = await at.hosts()
            found.append((hosts, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(10)
            at.net.host("late")
            await at.register(registration("late"))
        assert found == [(["late"], pytest.approx(10, abs=0.5))]
        began = trio.current_time()
        assert await at.inquire(token="other") == []
        assert trio.current_time() - began == pytest.approx(30)
        # Nobody will ever have this number.
        assert await at.inquire(InquireRequest(service_id=0)) == []
        assert trio.current_time() - began == pytest.approx(30)


async def test_an_inquiry_by_number_waits_for_one_that_is_hidden(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(registration_lag_seconds=30)) as at:
        [reply] = await at.register(registration("late"))
        began = trio.current_time()
        at.net.host("late")
        [data] = await at.inquire(InquireRequest(service_id=reply.service_id))
        assert data.endpoint.host == "late"
        assert trio.current_time() - began < 2


async def test_waiting_inquiries_end_with_their_callers_and_with_us(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(registration_lag_seconds=1000)) as at:
        with trio.move_on_after(5):
            await at.inquire()
        assert trio.current_time() == 5
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(RpcError) as caught:
                    await at.inquire()
                assert caught.value.code is StatusCode.UNAVAILABLE

            nursery.start_soon(ask)
            await trio.sleep(1)
            at.server.stop()
        assert trio.current_time() < 7


# startup_lag


async def test_a_directory_that_has_just_started_waits_before_it_says_that_there_is_nothing(
    autojump_clock: Clock,
) -> None:
    async with directory(DirectoryServerConfig(startup_lag_seconds=5)) as at:
        found: list[tuple[list[str], Any]] = []

        async def ask() -> None:
            hosts = await at.hosts()
            found.append((hosts, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(1)
            at.net.host("late")
            await at.register(registration("late"))
        assert found == [(["late"], pytest.approx(1, abs=0.5))]
        assert await at.inquire(token="other") == []
        assert trio.current_time() == pytest.approx(5)
        assert await at.inquire(token="other") == []
        assert trio.current_time() == pytest.approx(5)


async def test_an_unknown_number_is_answered_at_once_after_the_start(autojump_clock: Clock) -> None:
    async with directory() as at:
        assert await at.inquire(InquireRequest(service_id=7)) == []
        assert trio.current_time() == pytest.approx(0)


async def test_the_longer_of_the_two_waits_counts(autojump_clock: Clock) -> None:
    async with directory(DirectoryServerConfig(startup_lag_seconds=5, registration_lag_seconds=30)) as at:
        assert await at.inquire() == []
        assert trio.current_time() == pytest.approx(30)


async def test_a_restarted_directory_waits_for_the_first_checks_of_what_it_has_read(autojump_clock: Clock) -> None:
    options: dict[str, Any] = {"disk": SimDisk(random.Random(0)), "path": "state"}
    async with directory(**options) as at:
        at.net.host("here")
        await at.register(registration("here"))
    async with directory(**options) as at:
        at.net.host("here")
        assert await at.hosts() == ["here"]


# The file, and the end


async def test_registrations_outlive_the_directory(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    options: dict[str, Any] = {"disk": disk, "path": "state"}
    async with directory(**options) as at:
        at.net.host("one")
        at.net.host("two")
        replies = await at.register(
            registration("one"),
            registration("two"),
            registration("gone"),
            registration("permanent", permanent=True),
            registration("client", protocol=3, port=0, kind=3),
            token="t",
        )
    disk.crash()
    disk.restart()
    async with directory(**options) as at:
        at.net.host("two")
        # What nobody has looked at yet is not shown.
        assert await at.hosts("t") == ["client", "permanent"]
        await trio.sleep(0.1)
        assert await at.hosts("t") == ["client", "permanent", "two"]
        at.net.host("one")
        await trio.sleep(2)
        assert await at.hosts("t") == ["client", "permanent", "two", "one"]
        assert await at.hosts() == []
        requests = [DeregisterRequest(service_id=reply.service_id, secret=reply.secret) for reply in replies]
        assert {reply.status for reply in await at.deregister(*requests, token="t")} == {DeregisterReply.OK}
    async with directory(**options) as at:
        assert at.server.count == 0


async def test_a_full_disk_refuses_and_recovers(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with directory(disk=disk, path="state") as at:
        at.net.host("one")
        at.net.host("two")
        [one] = await at.register(registration("one"))
        disk.capacity_bytes = 0
        [two] = await at.register(registration("two"))
        assert two.status == FAILED
        assert not two.service_id
        assert two.error_msg == "the directory cannot write its file: [Errno 28] No space left on device"
        gone = DeregisterRequest(service_id=one.service_id, secret=one.secret)
        assert (await at.deregister(gone))[0].status == DeregisterReply.FAILED
        assert await at.hosts() == ["one"]
        assert at.net.dialled == ["one"]
        disk.capacity_bytes = 1 << 20
        [two] = await at.register(registration("two"))
        assert two.status == OK
        assert await at.hosts() == ["two", "one"]
        disk.fail_syncs()
        assert (await at.register(registration("three")))[0].status == FAILED
    disk.crash()
    disk.restart()
    async with directory(disk=disk, path="state", net=at.net) as at:
        assert at.server.count == 2


async def test_a_directory_that_starts_on_a_full_disk_answers(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0), capacity_bytes=0)
    async with directory(disk=disk, path="state") as at:
        assert await at.hosts() == []
        assert (await at.register(registration("h", permanent=True)))[0].status == FAILED
        disk.capacity_bytes = 1 << 20
        assert (await at.register(registration("h", permanent=True)))[0].status == OK


async def test_after_the_end_nothing_is_done(autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        server = new_server(net)
        async with InProcessChannel(directory_services(server)) as channel:
            at = Directory(server, channel, net)
            async with server:
                await at.register(registration("h", permanent=True))
                server.stop()
                for call in (at.register(registration("h")), at.deregister(DeregisterRequest()), at.inquire()):
                    with pytest.raises(RpcError) as caught:
                        await call
                    assert caught.value.code is StatusCode.UNAVAILABLE
                    assert caught.value.message == "the directory is stopping"
            with pytest.raises(UnavailableError):
                await server.find(Inquiry())
        assert net.dialled == []


async def test_an_error_of_the_block_comes_out_as_it_is(autojump_clock: Clock) -> None:
    with pytest.raises(KeyError):
        async with new_server(Net.__new__(Net)):
            raise KeyError("mine")


async def test_a_source_of_ids_that_is_broken(autojump_clock: Clock) -> None:
    async with directory(secret_bytes=bytes) as at:
        [reply] = await at.register(registration("h", permanent=True))
        assert reply.status == FAILED
        assert "is the source of ids broken?" in reply.error_msg


async def test_a_source_of_ids_is_asked_a_hundred_times(autojump_clock: Clock) -> None:
    asked: list[int] = []

    def source(count: int) -> bytes:
        if count == 8:
            asked.append(count)
        return bytes(count)

    async with directory(secret_bytes=source) as at:
        [reply] = await at.register(registration("h", permanent=True))
        assert "every one of 100 new ids is taken" in reply.error_msg
    assert len(asked) == 100


async def test_without_a_token_nothing_but_the_secret_is_needed(autojump_clock: Clock) -> None:
    """In the process of the directory, too."""
    async with directory() as at:
        service = service_of(registration("h", kind=OTHER, permanent=True), max_bytes=1000)
        service_id, secret = await at.server.register(service, permanent=True)
        assert [entry.service_id for entry in await at.server.find(Inquiry())] == [service_id]
        await at.server.deregister(service_id, secret)
        assert await at.server.find(Inquiry(service_id=service_id)) == []


async def test_whatever_is_called_lets_others_run(autojump_clock: Clock) -> None:
    async with directory() as at:
        service = service_of(registration("h", kind=OTHER, permanent=True), max_bytes=1000)
        with trio.testing.assert_checkpoints():
            service_id, secret = await at.server.register(service, permanent=True)
        with trio.testing.assert_checkpoints():
            await at.server.find(Inquiry())
        with trio.testing.assert_checkpoints():
            assert await at.server.forget(lambda service: False) == 0
        with trio.testing.assert_checkpoints():
            await at.server.deregister(service_id, secret)
        with trio.testing.assert_checkpoints():
            await at.server.farewell()


async def test_who_waits_searches_five_times_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """Many that wait would search at every change."""
    config = DirectoryServerConfig(registration_lag_seconds=10, startup_lag_seconds=0)
    async with directory(config) as at, trio.open_nursery() as nursery:
        searched: list[float] = []
        shown = at.server._monitored.shown

        def noted(*args: Any) -> Any:
            searched.append(trio.current_time())
            return shown(*args)

        monkeypatch.setattr(at.server._monitored, "shown", noted)
        nursery.start_soon(at.server.find, Inquiry(kind=ENVIRONMENT))
        began = trio.current_time()
        for port in range(1, 41):
            await trio.sleep(0.025)
            await at.register(registration("h", kind=OTHER, permanent=True, port=port))
        assert [round(time - began, 3) for time in searched] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0], abs=0.026)
        nursery.cancel_scope.cancel()


async def test_a_file_has_one_directory_for_all_of_its_time(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with directory(disk=disk, path="state") as at:
        await at.register(registration("h", permanent=True))
        with pytest.raises(FailedPreconditionError, match="it is in use by another directory"):
            await new_server(None, path="state", disk=disk).__aenter__()
        await at.register(registration("h", permanent=True, port=1))
    async with directory(disk=disk, path="state") as at:
        assert at.server.count == 1


async def test_a_file_that_cannot_be_read_is_left_open_for_others(autojump_clock: Clock) -> None:
    class Unreadable(SimDisk):
        broken = True

        def read(self, path: str) -> bytes:
            if self.broken:
                raise OSError(errno.EIO, "Input/output error", path)
            return super().read(path)

    disk = Unreadable(random.Random(0))
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match="Input/output error"):
            await new_server(None, path="state", disk=disk).__aenter__()
    disk.broken = False
    async with directory(disk=disk, path="state") as at:
        await at.register(registration("h", permanent=True))
        assert at.server.count == 1


def test_it_connects_as_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[object, float]] = []

    def outgoing(config: OutgoingConfig, _host: Host, seconds: float) -> Outgoing:
        given.append((config, seconds))
        return Outgoing(config, _host, seconds)

    monkeypatch.setattr(_server, "Outgoing", outgoing)
    config, limits = OutgoingConfig(), DirectoryServerConfig(connect_timeout_seconds=7)
    DirectoryServer(host=Host(runner=inline_runner), config=limits, outgoing=config)
    DirectoryServer(host=Host(runner=inline_runner))
    first, second = given
    assert first[0] is config
    assert first[1] == 7
    assert second == (OutgoingConfig(), DirectoryServerConfig().connect_timeout_seconds)


@pytest.mark.parametrize("local", [False, True])
async def test_who_is_on_this_machine_takes_over_what_is_nobodys(local: bool, autojump_clock: Clock) -> None:
    """What was registered before there were owners. From elsewhere that would replace what is not one's own."""
    async with directory() as at:
        service = service_of(registration("h", kind=OTHER, permanent=True), max_bytes=1000)
        unknown = Identity(account="unknown", local=True, grant=EVERYTHING)
        ann = Identity(account="token:ann", local=local, grant=EVERYTHING)
        first, _ = await at.server.register(service, permanent=True, token="t", caller=unknown)
        second, _ = await at.server.register(service, permanent=True, token="t", caller=ann)
        assert (first == second) is local
        assert at.server.count == (1 if local else 2)


def _revoking(*entries: str) -> Rules:
    return Rules(keys=KEYS, revoked=Revoked.parse("\n".join(entries)))


@pytest.mark.parametrize("revoked", [["ann1"], ["name=ann"], ["ann1", "seat"]])
async def test_a_registration_ends_with_its_token_and_with_what_that_was_derived_from(
    revoked: list[str], autojump_clock: Clock
) -> None:
    clock, disk = WallClock(), SimDisk(random.Random(0))
    access = control(clock=clock)
    derived = KEYS.sign(
        Token(
            token_id="seat",
            grant=grant(Role.DIRECTORY),
            expires_at=NOW + 60,
            sources=(Source("ann1", "ann", "", NOW + 60),),
        )
    )
    callers = [
        access.verified(text, local=False)
        for text in (
            token_text(grant(Role.DIRECTORY, name="ann"), token_id="ann1"),
            derived,
            token_text(grant(Role.DIRECTORY, name="bob"), token_id="bob1"),
        )
    ]
    async with directory(disk=disk, path="state", access=access) as at:
        for name, caller in zip(["own", "derived", "bob"], callers, strict=True):
            service = service_of(registration(name, kind=OTHER, permanent=True), max_bytes=1000)
            await at.server.register(service, permanent=True, caller=caller)
        service = service_of(registration("open", kind=OTHER, permanent=True), max_bytes=1000)
        await at.server.register(service, permanent=True)
        clock.seconds += 10_000  # an expiry ends nothing: services that serve on are still found
        await trio.sleep(60)
        assert sorted(await at.hosts()) == ["bob", "derived", "open", "own"]
        access.adopt(_revoking(*revoked))
        await trio.sleep(5.1)
        assert sorted(await at.hosts()) == ["bob", "open"]
        # Whoever looks into the file finds neither.
        assert [one["host"] for one in json.loads(disk.read("state"))["services"]] == ["bob", "open"]
        written = disk.operations
        await trio.sleep(60)
        assert disk.operations == written


async def test_a_token_that_was_revoked_while_the_directory_was_away(autojump_clock: Clock) -> None:
    access, disk = control(), SimDisk(random.Random(0))
    caller = access.verified(token_text(grant(Role.DIRECTORY)), local=False)
    service = service_of(registration("h", kind=OTHER, permanent=True), max_bytes=1000)
    async with directory(disk=disk, path="state", access=access) as at:
        await at.server.register(service, permanent=True, caller=caller)
    async with directory(disk=disk, path="state", access=control()) as at:
        await trio.sleep(60)
        assert await at.hosts() == ["h"]
    async with directory(disk=disk, path="state", access=control(_revoking("t1"))) as at:
        await at.until(lambda hosts: not hosts)
        assert not json.loads(disk.read("state"))["services"]


async def test_a_disk_that_fails_delays_the_end_of_a_registration_alone(autojump_clock: Clock) -> None:
    access, disk = control(), SimDisk(random.Random(0))
    caller = access.verified(token_text(grant(Role.DIRECTORY)), local=False)
    service = service_of(registration("h", kind=OTHER, permanent=True), max_bytes=1000)
    async with directory(disk=disk, path="state", access=access) as at:
        await at.server.register(service, permanent=True, caller=caller)
        disk.fail_syncs(2)
        access.adopt(_revoking("t1"))
        await trio.sleep(5.1)
        assert await at.hosts() == ["h"]
        await at.until(lambda hosts: not hosts)


async def test_where_no_file_is_named_there_is_none(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with DirectoryServer(host=Host(files=disk, runner=inline_runner)) as server:
        service = service_of(registration("h", kind=OTHER, permanent=True), max_bytes=1000)
        await server.register(service, permanent=True)
        assert disk.operations == 0


async def test_a_client_that_stays_may_be_anywhere(autojump_clock: Clock) -> None:
    """Nobody connects to one: it is not a place to be led to."""
    async with directory() as at:
        service = service_of(registration("a.name", protocol=ServiceEndpoint.COGMENT, kind=3), max_bytes=1000)
        await at.server.register(service, permanent=True, reach="203.0.113.7")
        assert at.server.count == 1


async def test_refusals_are_counted_and_logged(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trio_cogment.servers.directory._service")
    async with directory() as at:
        await at.register(registration(""))
        await at.deregister(DeregisterRequest(service_id=7, secret="x"))
        assert refusals().counts == {"refused registrations": 1, "refused deregistrations": 1}
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert "could not register: endpoint.host: expected a name" in said[0]
    assert "could not deregister: service_id: no service 7 is registered" in said[1]


async def test_the_file_has_one_thread_and_checks_a_token_of_an_hour() -> None:
    threads: list[int] = []
    asked: list[tuple[str, float]] = []

    def runner(count: int) -> Any:
        threads.append(count)
        return inline_runner(count)

    class Access:
        def source(self, grant: Grant, seconds: float, *, sources: Sources) -> Any:
            asked.append((grant.name, seconds))
            assert not grant.roles
            assert sources == ()
            return lambda: "token"

    DirectoryServer(host=Host(runner=runner), access=cast("AccessControl", Access()))
    assert threads == [1]
    assert asked == [("server:directory", 3600)]


async def test_ids_are_never_those_of_others(autojump_clock: Clock) -> None:
    rng = random.Random(0)

    def narrow(count: int) -> bytes:
        return bytes([0] * 7 + [rng.choice([0, 2, 4])]) if count == 8 else rng.randbytes(count)

    async with directory(secret_bytes=narrow) as at:
        replies = await at.register(*[registration("h", kind=OTHER)] * 2)
        assert {reply.service_id for reply in replies} == {1, 2}


async def test_real_files_and_threads(tmp_path: Path) -> None:
    path = tmp_path / "state"
    async with trio.open_nursery() as nursery:
        net = Net(nursery)
        for expected in (0, 20):
            async with (
                new_server(net, path=str(path)) as server,
                InProcessChannel(directory_services(server)) as channel,
            ):
                at = Directory(server, channel, net)
                assert server.count == expected
                async with trio.open_nursery() as registering:
                    for port in range(20 - expected):
                        registering.start_soon(at.register, registration("c", protocol=3, port=port, kind=3))
                assert len(await at.hosts()) == 20
        nursery.cancel_scope.cancel()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_who_stops_with_the_directory_is_still_deregistered(autojump_clock: Clock) -> None:
    disk = SimDisk(random.Random(0))
    async with directory(disk=disk, path="state") as at, trio.open_nursery() as nursery:
        secrets = []
        for name in ("one", "two", "three"):
            at.net.host(name)
            secrets += await at.register(registration(name))
        began = trio.current_time()
        returned: list[float] = []

        async def say_farewell() -> None:
            await at.server.farewell()
            returned.append(trio.current_time() - began)

        nursery.start_soon(say_farewell)
        for reply in secrets:
            await trio.sleep(0.9)  # each prolongs the wait for the next
            assert at.server.stopping
            with pytest.raises(RpcError, match="stopping") as caught:
                await at.register(registration("one"))
            assert caught.value.code is StatusCode.UNAVAILABLE
            assert await at.hosts() != []  # inquiries are answered
            await at.deregister(DeregisterRequest(service_id=reply.service_id, secret=reply.secret))
    assert trio.current_time() - began == pytest.approx(2.7)
    assert returned == [pytest.approx(2.7)]
    disk.restart()
    async with directory(disk=disk, path="state") as at:
        assert at.server.count == 0


async def test_a_directory_that_stops_alone_waits_a_moment_only(autojump_clock: Clock) -> None:
    async with directory() as at:
        at.net.host("stays")
        await at.register(registration("stays"))
        began = trio.current_time()
        await at.server.farewell()
        assert trio.current_time() - began == 1


@pytest.mark.parametrize("case", ["nobody", "permanent", "client", "down"])
async def test_nobody_is_waited_for_who_will_not_deregister(case: str, autojump_clock: Clock) -> None:
    async with directory() as at:
        if case == "permanent":
            await at.register(registration("h", permanent=True))
        elif case == "client":
            await at.register(registration("client", protocol=ServiceEndpoint.COGMENT, kind=OTHER))
        elif case == "down":
            await at.register(registration("h"))
        began = trio.current_time()
        await at.server.farewell()
        assert trio.current_time() == began


async def test_permanent_ones_of_peers_elsewhere_lead_to_them_or_to_public_addresses(autojump_clock: Clock) -> None:
    async with directory() as at:
        for host, reach, expected in (
            ("127.0.0.1", "203.0.113.7", False),
            ("a.name", "203.0.113.7", False),
            ("203.0.113.7", "203.0.113.7", True),
            ("8.8.8.8", "203.0.113.7", True),
            ("127.0.0.1", None, True),
        ):
            service = service_of(registration(host, permanent=True), max_bytes=1000)
            if expected:
                await at.server.register(service, permanent=True, reach=reach)
            else:
                with pytest.raises(InvalidArgumentError, match=r"^endpoint\.host: expected a public address"):
                    await at.server.register(service, permanent=True, reach=reach)
