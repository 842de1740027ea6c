"""Recording every step and reading it back: views of trials, beside Minari's collector and the bare loop.

`python benchmarks/recording.py` plays three games (`_recording_games.py`): CartPole (4 floats), moving sprites (84x84x4
bytes) and a game of two players whose observations and actions have parts. Every row runs in a process of its own, by
turns, each round in the other direction:

* `bare`: the loop itself; `minari_hdf5`, `minari_arrow`, `minari_parquet`: the same through Minari's `DataCollector`,
  up to its `create_dataset`; it wants JAX: `pip install 'minari[create]'`. Pictures are stored whole, not as JPEG;
* `view`: a view of trials that records nothing; `memory`, `sqlite`: the same recorded, up to its `close`, after which
  all is durable;
* the same beside two processes that do nothing but count (`--busy`);
* `to_parquet` and `to_minari`: `tc.export` of what `sqlite` has recorded; `read_*`: all of it as arrays, from
  Parquet with PyArrow, and from Minari.

Times are those of a step, in microseconds: of the processor, of all threads, and of the wall. `peak` is how much memory
a process took at most beside what it had when the row began, `disk` what there is in the end, for each step. All are
medians of the rounds; a ratio is the median of the rounds' own. What recording adds is compared to what Minari's
collector adds with the format that adds least.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from _report import number, print_json, print_table

MINARI = ("minari_hdf5", "minari_arrow", "minari_parquet")
VIEWS = ("view", "memory", "sqlite")
PLAYED = ("bare", *MINARI, *VIEWS)
#: These need what `sqlite` has left, and the second of each pair what the first has.
LATER = ("to_parquet", "read_parquet", "to_minari", "read_minari")
BUSY = "_busy"
GAMES = ("cartpole", "sprites", "duel")
WARM_STEPS = 64
#: Pictures are larger, and there are fewer of them.
PICTURES_PER_STEP = 0.1

BARS = {"added": "<= 0.5", "added_memory": "", "busy": "<= 1.3", "recorded": "<= 1.35", "disk": "<= 1.1"}
PICTURES_DISK_BAR = "<= 0.7"


# In a process of its own


class Meter:
    """Times, and the memory that is taken at most, from now on."""

    def __init__(self) -> None:
        self._resident = _resident()
        Path("/proc/self/clear_refs").write_text("5")  # the highest amount begins anew
        self._cpu, self._wall = self._spent(), time.perf_counter()

    def read(self, steps: int) -> dict[str, float]:
        cpu, wall = self._spent() - self._cpu, time.perf_counter() - self._wall
        peak = int(_status("VmHWM")) * 1024 - self._resident
        return {"cpu_us": 1e6 * cpu / steps, "wall_us": 1e6 * wall / steps, "peak_mib": peak / 2**20}

    def _spent(self) -> float:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime


def _status(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name + ":"))


def _resident() -> int:
    return int(_status("VmRSS")) * 1024


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def play(env: Any, policy: Any, steps: int) -> None:
    """Step an environment of one agent, or of all as one, as any loop does."""
    values, _ = env.reset()
    for _ in range(steps):
        values, _, terminated, truncated, _ = env.step(policy(values))
        if terminated or truncated:
            values, _ = env.reset()


def play_together(env: Any, policy: Any, steps: int) -> None:
    """The same for two players."""
    values, _ = env.reset()
    for _ in range(steps):
        values, *_ = env.step({agent: policy(values[agent]) for agent in env.agents})
        if not env.agents:
            values, _ = env.reset()


def play_bare(game: str, steps: int) -> dict[str, float]:
    import _recording_games

    env, policy = _recording_games.make(game), joint(_recording_games.Policy(game), game)
    play(env, policy, WARM_STEPS)
    meter = Meter()
    play(env, policy, steps)
    return meter.read(steps)


def joint(policy: Any, game: str) -> Any:
    """Return a policy that acts for both players at once, where there are two."""
    if game != "duel":
        return policy
    return lambda values: {agent: policy(value) for agent, value in values.items()}


def play_minari(form: str, game: str, steps: int, folder: Path) -> dict[str, float]:
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import _recording_games
    import minari

    policy = joint(_recording_games.Policy(game), game)

    def collector() -> Any:
        return minari.DataCollector(_recording_games.make(game), data_format=form, jpeg_encoding=False)

    play(collector(), policy, WARM_STEPS)  # whatever is imported late
    env = collector()
    meter = Meter()
    play(env, policy, steps)
    env.create_dataset("recorded/steps-v0", algorithm_name="", author="", author_email="", description="")
    found = meter.read(steps)
    return {**found, "disk": on_disk(folder / "recorded") / steps}


def play_view(store: str | None, game: str, steps: int, folder: Path) -> dict[str, float]:
    import _recording_games

    from trio_cogment import rl

    policy = _recording_games.Policy(game)
    address = None if store is None else f"sqlite:{folder / 'trials.db'}" if store == "sqlite" else "memory:"
    folder.mkdir(parents=True, exist_ok=True)

    def opened(address: str | None) -> Any:
        if game == "duel":
            return rl.make_parallel(_recording_games.Duel(), store=address)
        return rl.make(_recording_games.make(game), store=address)

    loop = play_together if game == "duel" else play
    warm = opened(None if store is None else "memory:")
    loop(warm, policy, WARM_STEPS)
    warm.close()
    env = opened(address)
    meter = Meter()
    loop(env, policy, steps)
    env.close()
    found = meter.read(steps)
    return {**found, "disk": on_disk(folder) / steps} if store == "sqlite" else found


def export(kind: str, steps: int, recorded: Path, folder: Path) -> dict[str, float]:
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    from trio_cogment import rl

    folder.mkdir(parents=True, exist_ok=True)
    target = {"parquet": str(folder / "steps")} if kind == "parquet" else {"minari": "recorded/steps-v0"}
    meter = Meter()
    rl.export(f"sqlite:{recorded / 'trials.db'}", **target)
    return {**meter.read(steps), "disk": on_disk(folder) / steps}


def read_parquet(steps: int, folder: Path) -> dict[str, float]:
    import pyarrow.parquet as pq

    meter = Meter()
    table = pq.read_table(folder / "steps" / "data")
    found = meter.read(steps)
    assert table.num_rows >= steps
    return found


def read_minari(steps: int, folder: Path) -> dict[str, float]:
    os.environ["MINARI_DATASETS_PATH"] = str(folder)
    import minari

    meter = Meter()
    count = 0
    for dataset_id in minari.list_local_datasets():
        for episode in minari.load_dataset(dataset_id).iterate_episodes():
            count += len(episode.rewards)
    assert count
    return meter.read(steps)


def measure(game: str, row: str, steps: int, folder: Path) -> dict[str, float]:
    """Measure one row."""
    row = row.removesuffix(BUSY)
    measures: Mapping[str, Callable[[], dict[str, float]]] = {
        "bare": partial(play_bare, game, steps),
        **{name: partial(play_minari, name.removeprefix("minari_"), game, steps, folder / name) for name in MINARI},
        "view": partial(play_view, None, game, steps, folder / "view"),
        "memory": partial(play_view, "memory", game, steps, folder / "memory"),
        "sqlite": partial(play_view, "sqlite", game, steps, folder / "sqlite"),
        "to_parquet": partial(export, "parquet", steps, folder / "sqlite", folder / "to_parquet"),
        "to_minari": partial(export, "minari", steps, folder / "sqlite", folder / "to_minari"),
        "read_parquet": partial(read_parquet, steps, folder / "to_parquet"),
        "read_minari": partial(read_minari, steps, folder / "to_minari"),
    }
    return measures[row]()


# The rounds


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Count in processes of their own."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure_apart(game: str, row: str, steps: int, folder: Path) -> dict[str, float]:
    """Measure one row in a process of its own."""
    command = [sys.executable, "-W", "ignore::UserWarning", __file__, "--measure", game, row, str(steps), str(folder)]
    with busy_loops(2 if row.endswith(BUSY) else 0):
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


Found = dict[tuple[str, str, str], list[float]]


def play_round(found: Found, game: str, rows: list[str], steps: int, folder: Path | None) -> None:
    """Measure each row once; quiet ones, then those beside others, then what was recorded is read."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for row in rows:
            place = Path(name) / ("busy" if row.endswith(BUSY) else "quiet")
            place.mkdir(exist_ok=True)
            for what, value in measure_apart(game, row, steps, place).items():
                found.setdefault((game, row, what), []).append(value)


def in_order(rows: list[str], backwards: bool) -> list[str]:
    """Return rows in the order of a round: whoever goes first has no lasting advantage."""
    played = [row for row in rows if row.removesuffix(BUSY) in PLAYED]
    return [*(reversed(played) if backwards else played), *(row for row in LATER if row in rows)]


def ratios(found: Found, game: str) -> dict[str, float | None]:
    """Return what the rows of a game say together."""

    def of(row: str, what: str = "cpu_us") -> list[float] | None:
        return found.get((game, row, what))

    def added(row: str, without: str, suffix: str = "") -> list[float] | None:
        with_it, plain = of(row + suffix), of(without + suffix)
        return None if with_it is None or plain is None else [a - b for a, b in zip(with_it, plain, strict=True)]

    def least(what: list[list[float] | None]) -> list[float] | None:
        there = [values for values in what if values is not None]
        return min(there, key=statistics.median) if there else None

    def ratio(one: list[float] | None, other: list[float] | None) -> float | None:
        if one is None or other is None:
            return None
        return statistics.median(a / b for a, b in zip(one, other, strict=True))

    minari = least([added(row, "bare") for row in MINARI])
    recording = added("sqlite", "view")
    return {
        "added": ratio(recording, minari),
        "added_memory": ratio(added("memory", "view"), minari),
        "busy": ratio(added("sqlite", "view", BUSY), recording),
        "recorded": ratio(of("sqlite"), of("view")),
        "disk": ratio(of("sqlite", "disk"), least([of(row, "disk") for row in MINARI])),
    }


def benchmark(
    games: list[str], rows: list[str], rounds: int, steps: int, folder: Path | None
) -> dict[str, float | None]:
    found: Found = {}
    for number_of_round in range(rounds):
        for game in games:
            count = max(1, int(steps * PICTURES_PER_STEP)) if game == "sprites" else steps
            play_round(found, game, in_order(rows, number_of_round % 2 == 1), count, folder)
    values: dict[str, float | None] = {}
    for game in games:
        print(f"\n{game}: medians of {rounds} alternated rounds; load {os.getloadavg()[0]:.1f}")
        columns = ("cpu_us", "wall_us", "peak_mib", "disk")
        table = []
        for row in in_order(rows, False):
            measured = [found.get((game, row, what)) for what in columns]
            medians = [None if each is None else statistics.median(each) for each in measured]
            table.append([row, *map(number, medians)])
            values |= {f"{game}_{row}_{what}": value for what, value in zip(columns, medians, strict=True)}
        print_table(["row", "CPU \N{MICRO SIGN}s", "wall \N{MICRO SIGN}s", "peak MiB", "disk bytes"], table)
        bars = {**BARS, "disk": PICTURES_DISK_BAR} if game == "sprites" else BARS
        compared = ratios(found, game)
        print_table(["ratio", "value", "bar"], [[name, number(value), bars[name]] for name, value in compared.items()])
        values |= {f"{game}_{name}": value for name, value in compared.items()}
    return values


def names_in(text: str, known: list[str]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise SystemExit(f"expected some of {', '.join(known)}; got {name}")
    return names


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        game, row, steps, folder = sys.argv[2:]
        print(json.dumps(measure(game, row, int(steps), Path(folder))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one flat JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--steps", type=int, default=100_000, help="of each row; a tenth of them where they are pictures"
    )
    parser.add_argument("--games", default=",".join(GAMES), help="some of them, with commas (default: %(default)s)")
    parser.add_argument("--rows", default="", help="some of them, with commas; what they need comes by itself")
    parser.add_argument("--busy", action="store_true", help="also beside two processes that count")
    parser.add_argument(
        "--folder", type=Path, help="on the disk that is to be measured (default: the temporary folder)"
    )
    args = parser.parse_args()
    rows = names_in(args.rows, [*PLAYED, *LATER]) if args.rows else [*PLAYED, *LATER]
    if not importlib.util.find_spec("jax"):
        rows = [row for row in rows if row not in MINARI]
        print("without JAX Minari's collector cannot be measured: pip install 'minari[create]'")
    if any(row in LATER for row in rows):
        rows.append("sqlite")
    rows += [row.replace("read_", "to_") for row in rows if row in LATER]
    if args.busy:
        rows += [row + BUSY for row in rows if row in PLAYED]
    values = benchmark(names_in(args.games, [*GAMES]), list(dict.fromkeys(rows)), args.rounds, args.steps, args.folder)
    if args.json:
        print_json(values)


if __name__ == "__main__":
    main()
