"""The plugin, in runs of pytest within this one, beside pytest-trio."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import trio_cogment.platform
import trio_cogment.testing

TESTS = """
import pytest, trio

async def clock(world):
    await trio.sleep(3600)
    world.sometimes("an hour")
    world.counters["nothing"] += 0
    return world.seed

def test_every_seed(sim):
    assert sim(clock).value == sim.seed

@pytest.mark.sim(seeds=3)
def test_three(sim):
    assert sim(clock).value < 3

async def test_of_pytest_trio(autojump_clock, trial_platform):
    async with trial_platform() as platform:
        assert await platform.controller.trial_infos() == []
        await trio.sleep(3600)

def test_platform_in_a_simulation(sim, trial_platform):
    async def scenario(world):
        async with trial_platform() as platform:
            return list(await platform.controller.trial_infos())
    assert sim(scenario).value == []
"""

FAILING = """
import trio

async def unlucky(world):
    world.history.record("me", "was here")
    await trio.sleep(5)
    assert world.seed != 4

def test_luck(sim):
    sim(unlucky)
"""


AWKWARD = """
import pytest, trio

async def unlucky(world):
    assert world.seed != 4

class TestMisfortune:
    @pytest.mark.parametrize("text", ["it's $HOME", 'a "quote" :: and `more`', "fine"])
    def test_luck(self, sim, text):
        if text != "fine":
            sim(unlucky)
"""


PLUGIN = "trio_cogment.testing.pytest_plugin"
# Unless the installation is older than the plugin.
LOADING = [] if any(entry.value == PLUGIN for entry in entry_points(group="pytest11")) else ["-p", PLUGIN]
OPTIONS = ["-v", "-p", "no:cacheprovider", "-p", "no:xdist", *LOADING]


@pytest.fixture
def inside(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Runs pytest within this process: most of the time of a process of its own goes into imports."""
    # What such a run is the first to import is forgotten at its end, and protobuf does not survive a second import.
    assert all(getattr(trio_cogment.testing, name) for name in trio_cogment.testing.__all__)
    pytester.makeini("[pytest]\ntrio_mode = true\nfilterwarnings = error\naddopts = --strict-markers\n")
    monkeypatch.delenv("CI", raising=False)
    return pytester


def run(pytester: pytest.Pytester, code: str, *options: str) -> str:
    pytester.makepyfile(test_it=code)
    return pytester.runpytest_inprocess(*OPTIONS, *options).stdout.str()


def test_seeds_by_default_marker_and_option(inside: pytest.Pytester) -> None:
    output = run(inside, TESTS)
    assert "24 passed" in output  # 10 + 3 + 1 + 10
    assert "test_every_seed[seed9] PASSED" in output
    assert "13 an hour" in output
    assert "nothing" not in output
    output = run(inside, TESTS, "--sim-seeds=2")
    assert "7 passed" in output
    output = run(inside, TESTS, "--sim-seed=17", "--sim-seed=20", "--sim-seed=17", "-k", "every")
    assert "test_every_seed[seed17] PASSED" in output
    assert "test_every_seed[seed20] PASSED" in output
    assert "2 passed" in output


STANDING = """
import sys, trio
from trio_cogment.testing.sim import standing_clock

class Heard:
    def __init__(self):
        self.text, self.event = "", trio.Event()

    def write(self, text):
        self.text += text
        self.event.set()

    def flush(self):
        pass

async def test_clock(mock_clock, trial_platform, monkeypatch):
    monkeypatch.setattr(standing_clock, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", Heard())
    async with trial_platform(), trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 7200)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(3600)
        while "::test_clock: the mock clock stands at 3600 s" not in sys.stderr.text:
            sys.stderr.event = trio.Event()
            await sys.stderr.event.wait()
        nursery.cancel_scope.cancel()
        mock_clock.autojump_threshold = 0
"""


def test_a_mock_clock_that_stands_still_is_told_of(inside: pytest.Pytester) -> None:
    assert "1 passed" in run(inside, STANDING, "-s")


def test_failure_shows_its_seed(inside: pytest.Pytester) -> None:
    output = run(inside, FAILING)
    assert "1 failed, 9 passed" in output
    assert "test_luck[seed4] FAILED" in output
    assert "simulated with seed 4" in output
    assert "me: was here" in output
    assert "again: pytest 'test_it.py::test_luck[seed4]' --sim-seed 4" in output
    output = run(inside, FAILING, "--sim-seed=4")
    assert "1 failed" in output


def test_what_is_said_about_seeing_it_again_can_be_run(tmp_path: Path) -> None:
    """In processes and a shell, because it is about what they make of paths and quotes."""
    root = tmp_path / "root of it"
    start = root / "below"  # node ids do not begin there
    start.mkdir(parents=True)
    (root / "test_it.py").write_text(AWKWARD)
    (root / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", *OPTIONS]
    first = [*command, str(root / "test_it.py")]
    output = subprocess.run(first, cwd=start, capture_output=True, text=True, check=False, timeout=60).stdout
    assert "2 failed, 28 passed" in output
    # Where CI is set, pytest's summary repeats it.
    tests = sorted(set(re.findall(r"again: pytest (.*) --sim-seed 4$", output, re.MULTILINE)))
    assert len(tests) == 2
    again = f"{shlex.join(command)} {' '.join(tests)} --sim-seed 4"
    done = subprocess.run(["sh", "-c", again], cwd=start, capture_output=True, text=True, check=False, timeout=60)
    assert "2 failed in" in done.stdout, done.stdout


@pytest.mark.parametrize(
    "module", ["trio_cogment.testing", "trio_cogment.testing.fakes.participants", "trio_cogment.testing.sim.world"]
)
def test_nothing_else_imports_pytest(module: str) -> None:
    code = f"import sys, {module}; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_plugin_imports_nothing_heavy() -> None:
    code = "import sys, trio_cogment.testing.pytest_plugin; sys.exit('trio' in sys.modules or 'purerpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FAILING_AS_PYTEST_DOES = """
import pytest, trio

async def nothing_raised(world):
    with pytest.raises(ValueError):
        await trio.sleep(5)

async def in_a_nursery(world):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nothing_raised, world)

@pytest.mark.parametrize("scenario", [nothing_raised, in_a_nursery])
def test_luck(sim, scenario):
    sim(scenario)
"""


def test_what_pytest_raises_shows_its_seed_too(inside: pytest.Pytester) -> None:
    output = run(inside, FAILING_AS_PYTEST_DOES, "--sim-seed=4")
    assert "2 failed" in output
    # Where CI is set, pytest's summary repeats the notes.
    reports = output.partition("short test summary")[0]
    assert reports.count("simulated with seed 4") == 2
    for scenario in ("nothing_raised", "in_a_nursery"):
        assert re.search(rf"again: pytest 'test_it.py::test_luck\[.*{scenario}.*\]' --sim-seed 4", reports)


@pytest.mark.parametrize("number", ["0", "-3", "many"])
def test_no_seeds_at_all_are_refused(inside: pytest.Pytester, number: str) -> None:
    inside.makepyfile(test_it=TESTS)
    done = inside.runpytest_inprocess(*OPTIONS, f"--sim-seeds={number}")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--sim-seeds: expected a number of seeds, at least 1, got '{number}'" in done.stderr.str()


WRONG_MARKERS = ["seeds=0", "seeds=-1", "25", "seed=25", "seeds='5'", "seeds=True"]


def test_markers_that_make_no_sense_are_refused(inside: pytest.Pytester) -> None:
    tests = [f"@pytest.mark.sim({given})\ndef test_it(sim):\n    pass\n" for given in WRONG_MARKERS]
    inside.makepyfile(**{f"test_{number}": f"import pytest\n\n{test}" for number, test in enumerate(tests)})
    for options in ([], ["--sim-seeds=2"]):
        done = inside.runpytest_inprocess(*OPTIONS, *options)
        output = done.stdout.str()
        assert done.ret == pytest.ExitCode.INTERRUPTED
        assert f"{len(tests)} errors" in output
        for given in WRONG_MARKERS:
            wanted = f"expected @pytest.mark.sim(seeds=N) with N at least 1, got @pytest.mark.sim({given})"
            assert wanted in output


def test_a_marker_on_a_test_without_the_fixture_is_refused(inside: pytest.Pytester) -> None:
    marked = "import pytest\n\npytestmark = pytest.mark.sim(seeds=2)\n\n\n"
    assert "3 passed" in run(inside, f"{marked}def test_plain():\n    pass\n\n\ndef test_simulated(sim):\n    pass\n")
    inside.makepyfile(test_it="import pytest\n\n\n@pytest.mark.sim\ndef test_it():\n    pass\n")
    done = inside.runpytest_inprocess(*OPTIONS)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert "test_it.py::test_it: marked with @pytest.mark.sim, but it does not ask for the fixture" in done.stdout.str()
