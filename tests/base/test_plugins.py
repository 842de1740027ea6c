"""Plugins of a distribution that is really installed, in a folder on the path."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from tests.cli.process import run, server
from tests.tiny_package import install, make_importable
from trio_cogment.base import plugins
from trio_cogment.base.errors import CogmentError, InvalidArgumentError, NotFoundError
from trio_cogment.base.plugins import PluginError
from trio_cogment.base.services import ServiceKind
from trio_cogment.platform import open_platform
from trio_cogment.sdk import ActorSession, DatastoreClient, EnvironmentSession, Participants, actor_params, trial_params
from trio_cogment.servers.datastore import open_store

PARTICIPANTS = """
    async def maze(session):
        await session.start([("*", b"a wall")])
        async for event in session.all_events():
            if event.actions is not None:
                await session.end([("*", b"the way out")])

    async def walker(session):
        async for event in session.all_events():
            if event.observation is not None and event.type.name == "ACTIVE":
                await session.do_action(b"left")
"""
STORE = """
    from contextlib import asynccontextmanager
    from trio_cogment.servers.datastore import open_store as open_builtin

    opened = []

    @asynccontextmanager
    async def open_store(address, *, durability, host):
        opened.append((address, durability))
        async with open_builtin("memory:", host=host) as store:
            yield store
"""
ENTRY_POINTS = {
    "trio_cogment.environments": {"maze": "tiny_participants:maze", "broken": "tiny_broken:maze"},
    "trio_cogment.actors": {"walker": "tiny_participants:walker", "no_function": "tiny_participants:__name__"},
    "trio_cogment.stores": {"tinydb": "tiny_store:open_store", "brokendb": "tiny_store:nothing"},
}
MODULES = {
    "tiny_participants": PARTICIPANTS,
    "tiny_store": STORE,
    "tiny_broken": "import a_library_that_is_not_there\n",
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = install(tmp_path, "tiny-plugins", MODULES, ENTRY_POINTS)
    make_importable(site, monkeypatch)
    return site


@pytest.mark.usefixtures("tiny")
def test_they_are_found_without_being_imported() -> None:
    assert plugins.installed(plugins.ENVIRONMENTS) == ["broken", "maze"]
    assert plugins.installed(plugins.ACTORS) == ["no_function", "walker"]
    assert plugins.installed(plugins.STORES) == ["brokendb", "tinydb"]
    participants = Participants()
    assert participants.choose(ServiceKind.ENVIRONMENT, {"__implementation": "maze"}) == "maze"
    assert participants.choose(ServiceKind.ACTOR, {"__implementation": "maze"}) is None
    assert participants.choose(ServiceKind.ENVIRONMENT, {}) is None
    assert participants.choose(ServiceKind.ENVIRONMENT, {"__implementation": "maze", "size": "5"}) is None
    assert participants.choose(ServiceKind.DATALOG, {"__implementation": "maze"}) is None
    assert not {name for name in sys.modules if name.startswith("tiny_")} - {"tiny_package"}


@pytest.mark.usefixtures("tiny")
async def test_a_trial_whose_parameters_name_plugins() -> None:
    with trio.fail_after(60):
        async with open_platform(store="tinydb://host/db") as platform:
            params = trial_params(
                [actor_params("ann", "c", implementation="walker")],
                environment="maze",
                datalog_endpoint="cogment://discover",
            )
            trial_id = await platform.controller.start_trial(params)
            await platform.controller.wait_trial(trial_id)
            store = DatastoreClient(platform.channel)
            async with store.samples(trial_id, follow=True) as samples:
                ticks = [sample.actors["ann"].observation async for sample in samples]
    assert ticks == [b"a wall", b"the way out"]
    assert sys.modules["tiny_store"].opened == [("tinydb://host/db", "full")]


@pytest.mark.usefixtures("tiny")
async def test_what_is_registered_comes_first() -> None:
    """Also under the name of a plugin, and where its classes do not fit: a plugin does not stand in for it."""
    played = []

    async def mine(session: EnvironmentSession) -> None:
        played.append(session.trial_id)
        await session.start([("*", b"")])
        await session.end([("*", b"")])

    async def walker(session: ActorSession) -> None:
        async for _ in session.all_events():
            pass

    async with open_platform() as platform:
        platform.participants.register_environment(mine, "maze")
        platform.participants.register_environment(plugins.environment("maze"), "theirs")
        platform.participants.register_actor(walker, "walker", ["runner"])
        assert platform.participants.choose(ServiceKind.ACTOR, {"__implementation": "walker"}) == "walker"
        wanted = {"__implementation": "walker", "__actor_class": "sitter"}
        assert platform.participants.choose(ServiceKind.ACTOR, wanted) is None
        trial_id = await platform.controller.start_trial(
            trial_params([actor_params("ann", "runner", implementation="walker")], environment="maze")
        )
        await platform.controller.wait_trial(trial_id)
        assert played == [trial_id]


@pytest.mark.usefixtures("tiny")
async def test_a_broken_one_harms_only_who_uses_it(caplog: pytest.LogCaptureFixture) -> None:
    broken = plugins.environment("broken")
    with pytest.raises(PluginError) as caught:
        await broken(None)
    assert str(caught.value) == (
        "plugin 'broken' of trio_cogment.environments (tiny-plugins 1.5, entry point tiny_broken:maze) cannot be "
        "loaded: ModuleNotFoundError: No module named 'a_library_that_is_not_there'"
    )
    assert "a_library_that_is_not_there" in caplog.text
    with pytest.raises(PluginError, match="expected a function, got str"):
        await plugins.actor("no_function")(None)
    with pytest.raises(PluginError, match=r"\(tiny-plugins 1.5, entry point tiny_store:nothing\).*AttributeError"):
        async with open_store("brokendb:"):
            pass
    async with open_store("TinyDB:x"):
        pass
    with trio.fail_after(60):
        async with open_platform() as platform:
            failing = trial_params([actor_params("ann", "c", implementation="walker")], environment="broken")
            with suppress(CogmentError):
                await platform.controller.wait_trial(await platform.controller.start_trial(failing))
            params = trial_params([actor_params("ann", "c", implementation="walker")], environment="maze")
            await platform.controller.wait_trial(await platform.controller.start_trial(params))


@pytest.mark.usefixtures("tiny")
async def test_what_is_not_installed_is_told_with_what_is() -> None:
    with pytest.raises(NotFoundError) as missing:
        plugins.environment("labyrinth")
    assert str(missing.value) == (
        "no installed package has an entry point 'labyrinth' in trio_cogment.environments; installed: broken, maze"
    )
    with pytest.raises(InvalidArgumentError) as unknown:
        async with open_store("mariadb://me:secret@host/db"):
            pass
    assert str(unknown.value) == (
        "storage: expected 'memory:', 'sqlite:PATH', 'postgresql://...', 'brokendb:...', 'tinydb:...', "
        "got the scheme 'mariadb'; "
        "install a package with an entry point 'mariadb' in the group trio_cogment.stores"
    )


async def test_two_packages_with_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tiny-one", "tiny-two"):
        module = name.replace("-", "_")
        entry_points = {"trio_cogment.environments": {"maze": f"{module}:maze"}}
        make_importable(install(tmp_path, name, {module: PARTICIPANTS}, entry_points), monkeypatch)
    with pytest.raises(PluginError, match=r"tiny-(one|two) 1.5.*tiny-(one|two) 1.5.*uninstall all but one"):
        await plugins.environment("maze")(None)


async def test_a_server_stores_in_a_plugin(tiny: Path) -> None:
    """`trio-cogment serve --storage=tinydb:...`, a process of its own."""
    async with server("serve", "--port=0", "--storage=tinydb://x", variables={"PYTHONPATH": str(tiny)}) as process:
        assert await process.stop() == 0
    failed = await run("serve", "--port=0", "--storage=nodb://me:secret@x", PYTHONPATH=str(tiny))
    assert failed.code == 1
    assert "got the scheme 'nodb'" in failed.err
    assert "secret" not in failed.err
