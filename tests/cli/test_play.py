"""`trio-cogment play`: its flags, with and without `--params`, and what it refuses."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import trio
from gymnasium.envs.registration import EnvSpec

from tests.cli.process import run_main
from tests.cli.test_play_process import MODULE, PARAMS
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.play import _prepared
from trio_cogment.platform import Platform, open_platform
from trio_cogment.play.lobby_machine import Shortage
from trio_cogment.rl.datasets.trials import TrialRecord
from trio_cogment.sdk import ActorSession, StoredTrial
from trio_cogment.seats.presence import Outcome
from trio_cogment.spaces import Discrete, decode_observation, encode_action


def options(**changed: Any) -> dict[str, Any]:
    """Return what the flags say if nothing is said, with some changes."""
    return {
        "target": "tests.cli.tiny:make",
        "argument": (),
        "hosting": "inline",
        "people": (),
        "bot": None,
        "params": None,
        "spec": "",
        "web_spec": "",
        "absent": None,
        "default_action": None,
        "grace": 30.0,
        "action_seconds": float("inf"),
        "tick_hz": 0.0,
        "observe_every": 0,
        "hold_action": False,
        "wait": 300.0,
        "shortage": "give_up",
        "seed": None,
        "title": "",
        "text": "",
        "labels": "",
        "renderer": None,
        "storage": "memory:",
        **changed,
    }


def test_an_environment_becomes_a_game() -> None:
    game = _prepared(options(target="CartPole-v1", labels="left, right", shortage="bots", absent="loss")).game
    assert game.name == "cartpole-v1"
    assert game.title == "CartPole-v1"
    assert game.labels == ["left", "right"]
    assert [actor.endpoint for actor in game.params.actors] == ["cogment://client"]
    assert game.lobby.shortage is Shortage.BOTS
    assert game.seat.outcome is Outcome.LOSS


def test_who_is_a_person_can_be_said() -> None:
    game = _prepared(options(target="rps_v2", people=("player_1",))).game
    assert [actor.endpoint for actor in game.params.actors] == ["cogment://discover", "cogment://client"]
    game = _prepared(options(target="rps_v2", people=("player_1", "player_0"))).game
    assert game.lobby.seats == 2


def test_the_trials_say_what_was_played() -> None:
    """So games of several environments can be in one file, and a data set can make its environment again."""

    def record(target: str) -> TrialRecord:
        params = _prepared(options(target=target)).game.params
        return TrialRecord.of(StoredTrial("one", "ann", TrialState.ENDED, 1, params), 0)

    assert [record(target).environment for target in ("CartPole-v1", "rps_v2")] == ["CartPole-v1", "rps_v2"]
    assert record("gymnasium.envs.classic_control:CartPoleEnv").environment == "CartPoleEnv"
    assert EnvSpec.from_json(record("CartPole-v1").spec).id == "CartPole-v1"


def test_the_default_action_is_one_of_the_space() -> None:
    game = _prepared(options(target="CartPole-v1", default_action="1", absent="default")).game
    assert game.params.actors[0].HasField("default_action")


async def test_bots_draw_by_the_seed_of_the_trial() -> None:
    """Whatever trials there are beside it."""
    prepared = _prepared(options(target="rps_v2", seed=7))

    async def play(platform: Platform, trial_id: str, seen: list[int]) -> None:
        async def person(session: ActorSession[Any, Any, Any]) -> None:
            async for event in session.all_events():
                if event.observation is not None:
                    payload = event.observation.payload
                    seen.append(int(decode_observation(payload, Discrete(4)).value))
                    await session.do_action(encode_action(0))
                    await trio.lowlevel.checkpoint()

        await platform.controller.start_trial(prepared.game.params, trial_id=trial_id)
        await platform.join_trial(trial_id, person, actor_name="player_0")

    async with open_platform(prepared.participants) as platform:
        alone: list[int] = []
        await play(platform, "alone", alone)
        together: list[list[int]] = [[], [], []]
        async with trio.open_nursery() as nursery:
            for number, seen in enumerate(together):
                nursery.start_soon(play, platform, f"together-{number}", seen)
    assert together == [alone] * 3
    assert len(set(alone)) > 2
    await prepared.close()


def test_a_module_becomes_a_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "params.yaml").write_text(PARAMS)
    (tmp_path / "view.html").write_text("<p>view</p>")
    monkeypatch.chdir(tmp_path)
    given = options(target="mine", params=tmp_path / "params.yaml", bot="clever", renderer=tmp_path / "view.html")
    game = _prepared(given).game
    assert (game.name, game.bot, game.renderer) == ("mine", "clever", b"<p>view</p>")
    assert game.seat.outcome is Outcome.BOT
    (tmp_path / "params.yaml").write_text(PARAMS + "  datalog: {endpoint: 'cogment://discover'}\n")
    assert _prepared(given).game.params.datalog.endpoint == "cogment://discover"
    assert _prepared({**given, "storage": "none"}).game.params.datalog.endpoint == ""
    # Without a bot nobody can stand in, but what the file says is done then.
    assert _prepared({**given, "bot": None}).game.seat.outcome is Outcome.LOSS
    (tmp_path / "params.yaml").write_text(PARAMS.replace("{name: ann,", "{name: ann, default_action: {content: aGk=},"))
    assert _prepared({**given, "bot": None}).game.seat.outcome is Outcome.DEFAULT
    assert _prepared({**given, "bot": None, "absent": "loss"}).game.seat.outcome is Outcome.LOSS
    assert _prepared(given).game.seat.outcome is Outcome.BOT


@pytest.mark.parametrize(
    ("changed", "limits", "action_seconds", "refused"),
    [
        ("", "", math.inf, ""),  # nobody has said that a trial ends while people think
        ("", "  max_inactivity: 0\n", math.inf, ""),
        ("", "  max_inactivity: 30\n", 20, ""),
        ("", "  max_inactivity: 30\n", 30, "max_inactivity: expected 0, or more than 30,"),
        ("", "  max_inactivity: 30\n", math.inf, "max_inactivity: expected 0, no limit, because people have any time"),
        (", response_timeout: 5", "", math.inf, "actor 'ann': response_timeout: expected 0, no limit, because"),
    ],
)
def test_no_limit_of_the_file_is_shorter_than_what_people_have(
    changed: str, limits: str, action_seconds: float, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "params.yaml").write_text(PARAMS.replace("{name: ann", f"{{name: ann{changed}") + limits)
    monkeypatch.chdir(tmp_path)
    given = options(target="mine", params=tmp_path / "params.yaml", bot="clever", action_seconds=action_seconds)
    if refused:
        with pytest.raises(Failure, match=re.escape(refused)):
            _prepared(given)
    else:
        assert _prepared(given).game.params.max_inactivity == (30 if "30" in limits else 0)


@pytest.mark.parametrize(
    ("flag", "refused"),
    [
        ("--absent=bot", "--absent=bot: expected --bot, the implementation that plays then"),
        ("--shortage=bots", "--shortage=bots: expected --bot, the implementation that plays then"),
        ("--absent=default", "--absent=default: expected a default action of 'ann': default_action in params.yaml"),
        (
            "--bot=random",
            "--bot: expected an implementation for the actor class 'player', got 'random'; the module has",
        ),
        ("--person=agent", "--person: with --params, people are the actors of the file"),
        ("--default=1", "--default: with --params, default actions are in the file"),
        ("--argument=a=1", "--argument: with --params, the configuration of the environment is in the file"),
        ("--hosting=thread", "--hosting: with --params, the module makes the environment"),
    ],
)
def test_flags_that_say_nothing_beside_params(
    flag: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "params.yaml").write_text(PARAMS)
    monkeypatch.chdir(tmp_path)
    done = run_main("play", "mine", "--params=params.yaml", "--port=0", flag)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"play: {refused}" in done.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["NoSuchGame-v0"], "NoSuchGame"),
        (["CartPole-v1", "--person=bob"], "person 'bob': expected one of the agents 'player_0'"),
        (["CartPole-v1", "--absent=default"], "--absent=default: expected a default action of 'player_0': --default"),
        (["CartPole-v1", "--spec=rl"], "--spec: it is for --params"),
        (["CartPole-v1", "--default=x"], "--default: expected JSON, got 'x'"),
        (["CartPole-v1", "--default=7"], "default: expected 0 to 1, got 7"),
        (["CartPole-v1", "--seed=-1"], "--seed: -1 is not in the range"),
        (["tests.cli.tiny", "--params=pyproject.toml", "--seed=1"], "--seed: with --params, the configuration"),
        (["CartPole-v1", "--grace=-1"], "--grace: expected seconds"),
        (["CartPole-v1", "--web=false"], "expected a page to play on"),
        (["CartPole-v1", "--absent=x"], "'x' is not one of"),
        (["no_such_module", "--params=no_such_file.yaml"], "there is no module"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], text: str) -> None:
    done = run_main("play", *arguments, "--port=0")
    assert done.code == 1
    assert text in done.err
    assert done.err.count("\n") == 1
    assert "play " not in done.out.replace("play, orchestrator", "")
