"""Trials started and played by requests, on a platform of this process."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from google.protobuf.struct_pb2 import Value

from tests.gateways.rest.playing import (
    ME,
    STRANGER,
    Field,
    act_body,
    control,
    holding,
    keys,
    observation,
    opened_proxy,
    spec,
    start_body,
)
from trio_cogment.access import Grant, Revoked, Role, Rules
from trio_cogment.base.config import WebProxyConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    RpcError,
    UnauthenticatedError,
)
from trio_cogment.gateways.rest.messages import dumps
from trio_cogment.gateways.rest.proxy import Caller, RestProxy
from trio_cogment.sdk import ActorSession, EnvironmentSession

TRIAL, ANN = "lab-1", "ann"


async def started(proxy: RestProxy, **more: Any) -> str:
    """Start a trial and join it; return the token."""
    reply = await proxy.start_trial(ME, start_body(trial_id=TRIAL, **more))
    assert reply["trial_id"] == TRIAL
    joined = await proxy.join(ME, TRIAL, ANN)
    token: str = joined["token"]
    return token


async def test_a_whole_trial(autojump_clock: object) -> None:
    field = Field(last_tick=3)
    async with opened_proxy(field.run) as (proxy, platform):
        await proxy.start_trial(ME, start_body(trial_id=TRIAL, properties={"for": "me"}))
        joined = await proxy.join(ME, TRIAL, ANN)
        token = joined.pop("token")
        assert joined.pop("actor_config")["bonus"] == 7
        assert joined == {
            "message": "joined",
            "trial_id": TRIAL,
            "actor_name": ANN,
            "actor_class": "player",
            "actor_implementation": "web",
            "tick_id": "0",
            "ended": False,
            "final": False,
            "observation": {"step": 0},
        }
        assert await proxy.list_trials(ME) == [
            {"trial_id": TRIAL, "env_name": "env", "state": 3, "properties": {"for": "me"}}
        ]
        me = holding(token)
        first = await proxy.act(me, TRIAL, ANN, 0, act_body(5, messages=[{"receiver": "env", "payload": "hello"}]))
        assert (first["message"], first["tick_id"], first["observation"]) == ("acted", "1", {"step": 1})
        assert first["action"] == {"number": 5}
        assert [reward["value"] for reward in first["rewards"]] == [5.0]
        assert first["rewards"][0]["sources"] == [{"sender": "env", "value": 5.0, "confidence": 1.0}]
        assert [message["payload"] for message in first["messages"]] == ["heard"]
        assert field.received == ["ann: hello"]
        second = await proxy.act(me, TRIAL, ANN, 1, None)
        assert (second["tick_id"], second["action"], second["final"]) == ("2", {"number": 0}, False)
        assert "messages" not in second
        third = await proxy.act(me, TRIAL, ANN, 2, act_body(9))
        assert (third["observation"], third["final"], third["ended"]) == ({"step": 3}, True, False)
        end = await proxy.act(me, TRIAL, ANN, 3, act_body(1))
        assert (end["message"], end["tick_id"], end["ended"]) == ("trial ended", "4", True)
        assert "observation" not in end
        assert (await platform.controller.wait_trial(TRIAL)).ticks == 4
        assert field.numbers == [5, 0, 9]
        with pytest.raises(NotFoundError):
            await proxy.act(me, TRIAL, ANN, 4, act_body(1))
        with pytest.raises(FailedPreconditionError, match="over"):
            await proxy.join(ME, TRIAL, ANN)


async def test_who_joins_before_the_trial_starts(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _), trio.open_nursery() as nursery:
        joined: list[dict[str, Any]] = []

        async def join() -> None:
            joined.append(await proxy.join(ME, TRIAL, ANN))

        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        await proxy.start_trial(ME, start_body(trial_id=TRIAL))
        while not joined:
            await trio.testing.wait_all_tasks_blocked()
        assert joined[0]["observation"] == {"step": 0}


async def test_a_trial_that_does_not_come_is_not_awaited_for_ever(autojump_clock: object) -> None:
    async with opened_proxy(config=WebProxyConfig(join_timeout_seconds=7)) as (proxy, _):
        before = trio.current_time()
        with pytest.raises(NotFoundError, match="plays here"):
            await proxy.join(ME, "nobody", ANN)
        assert trio.current_time() - before == pytest.approx(7)


async def test_the_trial_waits_for_who_joins(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, platform):
        await proxy.start_trial(ME, start_body(trial_id=TRIAL))
        await trio.sleep(100)
        assert [trial["state"] for trial in await proxy.list_trials(ME)] == [2]
        await proxy.join(ME, TRIAL, ANN)
        assert [trial["state"] for trial in await proxy.list_trials(ME)] == [3]
        await platform.controller.terminate_trial(TRIAL, hard=True)


async def test_an_actor_that_nobody_takes_is_left_out_in_its_time(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, platform):
        optional = {
            "name": "bob",
            "actor_class": "player",
            "implementation": "web",
            "optional": True,
            "initial_connection_timeout": 5.0,
        }
        body = start_body(trial_id=TRIAL, actors=[*_actors(), optional])
        await proxy.start_trial(ME, body)
        assert (await proxy.join(ME, TRIAL, ANN))["observation"] == {"step": 0}
        with trio.move_on_after(0.5):
            await proxy.join(ME, TRIAL, "bob")  # too late, which nobody tells it before the end
            pytest.fail("it has an observation")
        await platform.controller.terminate_trial(TRIAL, hard=True)
        assert (await proxy.join(ME, TRIAL, "bob"))["ended"] is True


def _actors() -> list[dict[str, Any]]:
    return [{"name": "ann", "actor_class": "player", "implementation": "web"}]


async def test_who_has_lost_an_answer_joins_again(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _):
        token = await started(proxy)
        with trio.move_on_after(0):
            await proxy.act(holding(token), TRIAL, ANN, 0, act_body(4))
        for caller in (ME, holding(token)):
            again = await proxy.join(caller, TRIAL, ANN)
            assert (again["tick_id"], again["rewards"][0]["value"]) == ("1", 4.0)
        with pytest.raises(FailedPreconditionError, match="expected the token"):
            await proxy.join(STRANGER, TRIAL, ANN)
        answer = await proxy.act(holding(again["token"]), TRIAL, ANN, 1, act_body(2))
        assert [reward["value"] for reward in answer["rewards"]] == [2.0]


@pytest.mark.parametrize("tick_id", [-1, 1, 2**62])
async def test_an_action_for_another_tick(tick_id: int, autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _):
        token = await started(proxy)
        with pytest.raises(FailedPreconditionError, match=f"tick_id: expected 0, got {tick_id}"):
            await proxy.act(holding(token), TRIAL, ANN, tick_id, act_body(4))
        assert (await proxy.act(holding(token), TRIAL, ANN, 0, act_body(4)))["tick_id"] == "1"


async def test_a_second_action_while_the_first_is_answered(autojump_clock: object) -> None:
    async def slow(session: EnvironmentSession) -> None:
        await session.start([("*", observation(0))])
        async for event in session.all_events():
            if event.actions is not None:
                await trio.sleep(10)
                await session.produce_observations([("*", observation(1))])

    async with opened_proxy(slow) as (proxy, platform), trio.open_nursery() as nursery:
        token = await started(proxy)
        nursery.start_soon(proxy.act, holding(token), TRIAL, ANN, 0, act_body(4))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(FailedPreconditionError, match="sent already"):
            await proxy.act(holding(token), TRIAL, ANN, 0, act_body(4))
        assert (await proxy.join(holding(token), TRIAL, ANN))["tick_id"] == "1"
        await platform.controller.terminate_trial(TRIAL, hard=True)


@pytest.mark.parametrize("waiting", [True, False])
async def test_a_trial_that_is_ended_hard(waiting: bool, autojump_clock: object) -> None:
    async def silent(session: EnvironmentSession) -> None:
        await session.start([("*", observation(0))])
        async for _ in session.all_events():
            pass

    async with opened_proxy(silent) as (proxy, platform), trio.open_nursery() as nursery:
        token = await started(proxy)
        answers: list[dict[str, Any]] = []

        async def act() -> None:
            answers.append(await proxy.act(holding(token), TRIAL, ANN, 0, act_body(4)))

        if waiting:
            nursery.start_soon(act)
            await trio.testing.wait_all_tasks_blocked()
        await platform.controller.terminate_trial(TRIAL, hard=True)
        if not waiting:
            await act()
        while not answers:
            await trio.testing.wait_all_tasks_blocked()
        assert answers[0]["ended"] is True
        assert answers[0]["tick_id"] == "1"
        assert "terminat" in answers[0]["details"].lower()


async def test_who_leaves(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, platform):
        token = await started(proxy)
        assert proxy.leave(holding(token), TRIAL, ANN) == {"message": "left"}
        assert (await platform.controller.wait_trial(TRIAL, check=False)).failed
        with pytest.raises(NotFoundError):
            proxy.leave(holding(token), TRIAL, ANN)
        with pytest.raises(NotFoundError):
            await proxy.act(holding(token), TRIAL, ANN, 0, act_body(1))
        with pytest.raises(FailedPreconditionError, match="left"):
            await proxy.join(ME, TRIAL, ANN)


async def test_seats_that_are_over_are_forgotten(autojump_clock: object) -> None:
    async with opened_proxy(config=WebProxyConfig(ended_seconds=5, join_timeout_seconds=1)) as (proxy, _):
        token = await started(proxy)
        proxy.leave(holding(token), TRIAL, ANN)
        await trio.sleep(6)
        with pytest.raises(NotFoundError):
            await proxy.join(ME, TRIAL, ANN)


async def test_rewards_and_messages_to_others(autojump_clock: object) -> None:
    heard: list[tuple[float, str]] = []
    kind: Any = spec().actor_class("player").action

    async def bob(session: ActorSession) -> None:
        async for event in session.all_events():
            if event.observation is not None:
                await session.do_action(kind(number=1))
            elif event.reward is not None:
                heard.extend(
                    (source.value, source.user_data.type_url.rpartition("/")[2]) for source in event.reward.sources
                )

    async with opened_proxy(Field(2).run) as (proxy, platform):
        platform.participants.register_actor(bob, "bob")
        actors = [*_actors(), {"name": "bob", "actor_class": "player", "implementation": "bob"}]
        await proxy.start_trial(ME, start_body(trial_id=TRIAL, actors=actors))
        token = (await proxy.join(ME, TRIAL, ANN))["token"]
        rewards = [
            {"receiver": "bob", "value": 2.5, "confidence": 0.5, "user_data": {"why": ["good"]}},
            {"receiver": "bob", "value": 3, "tick_id": "0", "user_data": _note("x")},
        ]
        answer = await proxy.act(holding(token), TRIAL, ANN, 0, act_body(1, rewards=rewards))
        assert [reward["value"] for reward in answer["sent_rewards"]] == [2.5, 3.0]
        assert [reward["tick_id"] for reward in answer["sent_rewards"]] == ["-1", "0"]
        await proxy.act(holding(token), TRIAL, ANN, 1, act_body(1))
        await proxy.act(holding(token), TRIAL, ANN, 2, act_body(1))
        await platform.controller.wait_trial(TRIAL)
        assert heard == [(2.5, "google.protobuf.Value"), (3.0, "data.Note")]


def _note(text: str) -> dict[str, str]:
    return {"@type": "type.googleapis.com/data.Note", "text": text}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "body: expected JSON"),
        (b"[]", "body: expected an object"),
        (b"{}", "action: expected one"),
        (b'{"action": null}', "action: expected one"),
        (b'{"action": 5}', "action: expected an object"),
        (b'{"action": {"no": 1}}', "action: expected data.PlayerAction"),
        (b'{"action": {}, "more": 1}', "more: there is no such field"),
        (b'{"action": {}, "rewards": {}}', "rewards: expected a list"),
        (b'{"action": {}, "rewards": [1]}', r"rewards\[0\]: expected an object"),
        (b'{"action": {}, "rewards": [{"value": 1}]}', r"rewards\[0\].receiver: expected a name"),
        (b'{"action": {}, "rewards": [{"receiver": "a", "value": "1"}]}', r"rewards\[0\].value: expected a number"),
        (b'{"action": {}, "rewards": [{"receiver": "a", "tick_id": 1.5}]}', r"rewards\[0\].tick_id: expected an int"),
        (b'{"action": {}, "rewards": [{"receiver": "a", "tick_id": "x"}]}', r"rewards\[0\].tick_id: expected an int"),
        (b'{"action": {}, "rewards": [{"receiver": "a", "value": 1e999}]}', r"rewards\[0\].value: expected a finite"),
        (b'{"action": {}, "rewards": [{"receiver": "a", "user_data": {"@type": "x"}}]}', r"rewards\[0\].user_data: @t"),
        (b'{"action": {}, "messages": [{"receiver": 5, "payload": 1}]}', r"messages\[0\].receiver: expected a text"),
    ],
)
async def test_bodies_that_make_no_sense(body: bytes, text: str, autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _):
        token = await started(proxy)
        with pytest.raises(InvalidArgumentError, match=f"^{text}"):
            await proxy.act(holding(token), TRIAL, ANN, 0, body)
        assert (await proxy.act(holding(token), TRIAL, ANN, 0, act_body(4)))["tick_id"] == "1"


async def test_an_id_that_is_taken(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _):
        await started(proxy)
        with pytest.raises(AlreadyExistsError, match="trial_id"):
            await proxy.start_trial(ME, start_body(trial_id=TRIAL))


async def test_what_the_orchestrator_refuses(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _):
        with pytest.raises(RpcError, match=r"actors\[1\]"):
            await proxy.start_trial(ME, start_body(actors=[*_actors(), *_actors()]))


async def test_who_does_not_fetch_what_it_is_sent_is_lost(autojump_clock: object) -> None:
    async def talkative(session: EnvironmentSession) -> None:
        await session.start([("*", observation(0))])
        for _ in range(10):
            await session.send_message(Value(string_value="x" * 50), ANN)
        async for _ in session.all_events():
            pass

    config = WebProxyConfig(max_unread_bytes=300)
    async with opened_proxy(talkative, config=config) as (proxy, platform):
        await proxy.start_trial(ME, start_body(trial_id=TRIAL))
        await proxy.join(ME, TRIAL, ANN)
        outcome = await platform.controller.wait_trial(TRIAL, check=False)
        assert outcome.failed


# Tokens


async def test_tokens_of_actors(autojump_clock: object) -> None:
    async with opened_proxy(config=WebProxyConfig(token_seconds=100)) as (proxy, _):
        token = await started(proxy)
        other = (await proxy.start_trial(ME, start_body(trial_id="other")))["tokens"][ANN]
        forged = control(2).mint(Grant(name="x", roles=frozenset([Role.ADMIN])), 100, ())
        for text in ("", "x", other, forged, token[:-1], token + "x"):
            with pytest.raises(UnauthenticatedError):
                await proxy.act(holding(text), TRIAL, ANN, 0, act_body(1))
            with pytest.raises(UnauthenticatedError):
                proxy.leave(holding(text), TRIAL, ANN)
        for text in ("x", other, forged):
            with pytest.raises(UnauthenticatedError):
                await proxy.join(holding(text), TRIAL, ANN)
        await trio.sleep(101)
        with pytest.raises(UnauthenticatedError, match="expired"):
            await proxy.act(holding(token), TRIAL, ANN, 0, act_body(1))
        renewed = (await proxy.join(ME, TRIAL, ANN))["token"]
        assert (await proxy.act(holding(renewed), TRIAL, ANN, 0, act_body(1)))["tick_id"] == "1"


async def test_the_token_that_who_starts_has_for_others(autojump_clock: object) -> None:
    async with opened_proxy() as (proxy, _):
        reply = await proxy.start_trial(ME, start_body(trial_id=TRIAL))
        assert list(reply["tokens"]) == [ANN]
        assert (await proxy.join(holding(reply["tokens"][ANN]), TRIAL, ANN))["tick_id"] == "0"
        with pytest.raises(FailedPreconditionError):
            await proxy.join(ME, TRIAL, ANN)


def known(*roles: Role, name: str = "somebody", **names: Any) -> Caller:
    """Return a caller with a token of the platform."""
    access = control()
    token = access.mint(Grant(name=name, roles=frozenset(roles), **names), 1000, ())
    return Caller(STRANGER.peer, identity=access.verified(token, local=False), token=token)


async def test_where_tokens_are_asked_for(autojump_clock: object) -> None:
    async with opened_proxy(access=control()) as (proxy, _):
        for nobody in (ME, STRANGER):
            with pytest.raises(UnauthenticatedError):
                await proxy.start_trial(nobody, start_body())
            with pytest.raises(UnauthenticatedError):
                await proxy.list_trials(nobody)
            with pytest.raises(UnauthenticatedError):
                await proxy.join(nobody, TRIAL, ANN)
        player = known(Role.PARTICIPANT, trials=(TRIAL,), actors=(ANN,))
        with pytest.raises(PermissionDeniedError):
            await proxy.start_trial(player, start_body())
        with pytest.raises(PermissionDeniedError):
            await proxy.list_trials(player)
        operator = known(Role.OPERATOR, name="boss")
        await proxy.start_trial(operator, start_body(trial_id=TRIAL))
        for refused in (
            known(Role.OPERATOR, name="other boss"),
            known(Role.OBSERVER),
            known(Role.PARTICIPANT, trials=("other",)),
            known(Role.PARTICIPANT, actors=("bob",)),
            known(Role.PARTICIPANT, classes=("referee",)),
        ):
            with pytest.raises(PermissionDeniedError):
                await proxy.join(refused, TRIAL, ANN)
        token = (await proxy.join(player, TRIAL, ANN))["token"]
        with pytest.raises(CogmentError, match="somebody has joined"):
            await proxy.join(operator, TRIAL, ANN)
        assert (await proxy.act(holding(token), TRIAL, ANN, 0, act_body(1)))["tick_id"] == "1"
        assert (await proxy.join(player, TRIAL, ANN))["tick_id"] == "1"


async def test_an_operator_plays_in_its_own_trials(autojump_clock: object) -> None:
    async with opened_proxy(access=control()) as (proxy, _):
        operator = known(Role.OPERATOR)
        await proxy.start_trial(operator, start_body(trial_id=TRIAL))
        assert (await proxy.join(operator, TRIAL, ANN))["tick_id"] == "0"


async def test_the_owners_of_the_latest_trials_are_known(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trio_cogment.gateways.rest.proxy._MOST_OWNERS", 2)
    async with opened_proxy(access=control()) as (proxy, _):
        operator = known(Role.OPERATOR)
        for number in range(3):
            await proxy.start_trial(operator, start_body(trial_id=f"lab-{number}"))
        for number in (1, 2):
            assert (await proxy.join(operator, f"lab-{number}", ANN))["tick_id"] == "0"
        with pytest.raises(PermissionDeniedError, match="may not play"):
            await proxy.join(operator, "lab-0", ANN)


@pytest.mark.parametrize(
    "how", ["who starts", "who joins by a token", "who joins again", "who joins", "the seat's own"]
)
async def test_a_seat_ends_with_the_token_it_was_derived_from(how: str, autojump_clock: object) -> None:
    """It acts and joins no more, and the actor leaves, so that nobody waits for it."""
    access, ends = control(), trio.Event()

    async def endless(session: EnvironmentSession) -> None:
        await session.start([("*", observation(0))])
        async for event in session.all_events():
            if event.actions is not None:
                await session.produce_observations([("*", observation(event.tick_id + 1))])
        ends.set()

    def of(name: str, *roles: Role, **names: Any) -> Caller:
        token = access.mint(Grant(name=name, roles=frozenset(roles), **names), 1000, ())
        return Caller(STRANGER.peer, identity=access.verified(token, local=False), token=token)

    async with opened_proxy(endless, access=access) as (proxy, platform):
        ann = of("ann", Role.OPERATOR)
        seat = (await proxy.start_trial(ann, start_body(trial_id=TRIAL)))["tokens"][ANN]
        revoked = "name=ann"
        if how == "who joins by a token":
            seat = (await proxy.join(holding(seat), TRIAL, ANN))["token"]
        elif how == "who joins again":
            for _ in range(20):
                seat = (await proxy.join(holding(seat), TRIAL, ANN))["token"]
            assert len(seat) < 600
        elif how == "who joins":
            seat = (await proxy.join(of("bob", Role.PARTICIPANT), TRIAL, ANN))["token"]
            revoked = "name=bob"
        elif how == "the seat's own":
            seat = (await proxy.join(holding(seat), TRIAL, ANN))["token"]
            revoked = access.verified(seat, local=False).token_id
        if how == "who starts":  # nobody has joined
            access.adopt(Rules(keys=keys(), revoked=Revoked.parse(revoked)))
            with pytest.raises(UnauthenticatedError, match="revoked"):
                await proxy.join(holding(seat), TRIAL, ANN)
            return
        assert (await proxy.act(holding(seat), TRIAL, ANN, 0, act_body(1)))["tick_id"] == "1"
        access.adopt(Rules(keys=keys(), revoked=Revoked.parse(revoked)))
        with pytest.raises(UnauthenticatedError, match="revoked"):
            await proxy.act(holding(seat), TRIAL, ANN, 1, act_body(1))
        with pytest.raises(UnauthenticatedError, match="revoked"):
            await proxy.join(holding(seat), TRIAL, ANN)
        with pytest.raises(UnauthenticatedError, match="revoked"):
            proxy.leave(holding(seat), TRIAL, ANN)
        before = trio.current_time()
        with trio.fail_after(60):
            await platform.controller.wait_trial(TRIAL, check=False)
        assert trio.current_time() - before < 10


async def test_requests_that_wait_end_with_their_token(autojump_clock: object) -> None:
    async def silent(session: EnvironmentSession) -> None:
        await session.start([("*", observation(0))])
        await trio.sleep_forever()

    access = control()
    async with opened_proxy(silent, access=access) as (proxy, _), trio.open_nursery() as nursery:
        token = access.mint(Grant(name="ann", roles=frozenset([Role.OPERATOR])), 1000, ())
        ann = Caller(STRANGER.peer, identity=access.verified(token, local=False), token=token)
        seat = (await proxy.start_trial(ann, start_body(trial_id=TRIAL)))["tokens"][ANN]
        await proxy.join(holding(seat), TRIAL, ANN)

        async def act() -> None:
            with trio.fail_after(10), pytest.raises(UnauthenticatedError, match="revoked"):
                await proxy.act(holding(seat), TRIAL, ANN, 0, act_body(1))
            nursery.cancel_scope.cancel()

        nursery.start_soon(act)
        await trio.sleep(1)
        access.adopt(Rules(keys=keys(), revoked=Revoked.parse("name=ann")))
        await trio.sleep_forever()


def two_players(trial_id: str) -> bytes:
    player = {"actor_class": "player", "implementation": "web", "config": {"bonus": 7}}
    actors = [{"name": name, **player} for name in (ANN, "ben")]
    return dumps({"trial_id": trial_id, "environment": {"implementation": "field"}, "actors": actors})


async def test_each_who_starts_trials_has_a_share_of_the_seats(autojump_clock: object) -> None:
    async with opened_proxy(config=WebProxyConfig(max_seats=6, max_peer_seats=2)) as (proxy, platform):

        async def joined(caller: Caller, trial_id: str) -> bool:
            tokens = (await proxy.start_trial(caller, two_players(trial_id)))["tokens"]
            with trio.move_on_after(1):
                async with trio.open_nursery() as nursery:
                    for name, token in tokens.items():
                        nursery.start_soon(proxy.join, holding(token), trial_id, name)
                return True
            return False

        assert await joined(ME, "one")
        with pytest.raises(ResourceExhaustedError, match="too many actors that play here: max_peer_seats is 2"):
            await joined(ME, "two")  # there is room, but not for the same
        assert await joined(STRANGER, "three")
        # No trial was started to find that its actors have no room.
        assert {info.trial_id for info in await platform.controller.trial_infos()} == {"one", "three"}
        await platform.controller.terminate_trial(["one"], hard=True)
        await trio.sleep(1)
        assert await joined(ME, "four")


async def test_each_who_waits_for_a_trial_has_a_share(autojump_clock: object) -> None:
    config = WebProxyConfig(max_seats=3, max_peer_seats=2)
    async with opened_proxy(config=config) as (proxy, _), trio.open_nursery() as nursery:

        async def wait(caller: Caller, trial_id: str) -> None:
            with pytest.raises(NotFoundError):
                await proxy.join(caller, trial_id, ANN)

        for number in range(2):
            nursery.start_soon(wait, ME, f"none-{number}")
        await trio.sleep(1)
        text = "too many requests that wait for trials to start: max_peer_seats is 2"
        with pytest.raises(ResourceExhaustedError, match=text):
            await proxy.join(ME, "none", ANN)
        # The holders of seats all have tokens of one name.
        nursery.start_soon(wait, STRANGER, "none")
        await trio.sleep(1)
        with pytest.raises(ResourceExhaustedError, match="max_seats is 3"):
            await proxy.join(Caller("ipv4:203.0.113.10:50000"), "none", ANN)


@pytest.mark.parametrize("joins", [False, True])
async def test_a_seat_that_nobody_asks_for_is_left(joins: bool, autojump_clock: object) -> None:
    async with opened_proxy(config=WebProxyConfig(idle_seconds=100)) as (proxy, platform):
        token = (await proxy.start_trial(ME, start_body(trial_id=TRIAL)))["tokens"][ANN]
        await trio.sleep(90)
        if joins:
            for number in range(2):
                tick = int((await proxy.join(holding(token), TRIAL, ANN))["tick_id"])
                assert tick == number
                await trio.sleep(90)
                await proxy.act(holding(token), TRIAL, ANN, tick, act_body(1))
                await trio.sleep(90)
        before = trio.current_time()
        await platform.controller.wait_trial(TRIAL, check=False)
        assert trio.current_time() - before < 20
