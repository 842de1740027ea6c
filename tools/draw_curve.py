"""Draw how the policy of `examples/cartpole` learns, into `docs/images/learning-curve.svg`.

Run it: `python tools/draw_curve.py`. It trains three policies, which takes a minute or two and needs the extra `gym`.
The last digits of NumPy depend on the machine, so another machine may draw other curves.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "cartpole" / "policy_gradient.py"
TARGET = ROOT / "docs" / "images" / "learning-curve.svg"
COMMAND = "python tools/draw_curve.py"

#: Of CartPole-v1: an episode ends after this many steps, each with a reward of 1.
HIGHEST_RETURN = 500
#: A point of a curve is the mean of this many episodes.
WINDOW = 20

WIDTH, HEIGHT = 720, 360
LEFT, TOP, RIGHT, BOTTOM = 56, 44, 24, 48
COLORS = ("#1d4ed8", "#be123c", "#15803d", "#b45309", "#7e22ce")


def means(returns: Sequence[float], window: int = WINDOW) -> list[float]:
    """Return the mean of each window of returns, one after the other."""
    return [sum(returns[end - window : end]) / window for end in range(window, len(returns) + 1, window)]


def drawing(returns: Mapping[int, Sequence[float]], window: int = WINDOW) -> str:
    """Return an SVG with a curve for each seed.

    Args:
        returns: for each seed, the return of each episode.
        window: how many episodes a point is the mean of.
    """
    episodes = max(map(len, returns.values()))

    def x(episode: float) -> float:
        return LEFT + episode / episodes * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / HIGHEST_RETURN * (HEIGHT - TOP - BOTTOM)

    def text(across: float, down: float, words: object, anchor: str = "start") -> str:
        return f'<text x="{across:.1f}" y="{down:.1f}" text-anchor="{anchor}" fill="#334155">{words}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="13" '
        "font-family=\"system-ui, 'DejaVu Sans', Arial, sans-serif\">",
        f"<title>CartPole: mean return of {window} episodes. Drawn by: {COMMAND}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#ffffff"/>',
        text(LEFT, 26, f"CartPole: mean return of {window} episodes"),
    ]
    for value in range(0, HIGHEST_RETURN + 1, 100):
        parts += [
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="#cbd5e1"/>',
            text(LEFT - 8, y(value) + 4, value, "end"),
        ]
    for episode in range(0, episodes + 1, max(1, episodes // 4)):
        parts.append(text(x(episode), HEIGHT - BOTTOM + 20, episode, "middle"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "episode", "middle"))
    for number, (seed, values) in enumerate(returns.items()):
        color = COLORS[number % len(COLORS)]
        curve = enumerate(means(values, window), 1)
        points = " ".join(f"{x(count * window):.1f},{y(mean):.1f}" for count, mean in curve)
        right = WIDTH - RIGHT - 80 * (len(returns) - number)
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>',
            f'<path d="M{right} 22h18" stroke="{color}" stroke-width="3"/>',
            text(right + 24, 26, f"seed {seed}"),
        ]
    return "\n".join([*parts, "</svg>", ""])


def example() -> Any:
    """Import the example."""
    spec = importlib.util.spec_from_file_location("policy_gradient", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Train and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--file", type=Path, default=TARGET)
    options = parser.parse_args()
    learner = example()
    returns = {seed: learner.train(seed, options.episodes) for seed in options.seeds}
    options.file.write_text(drawing(returns), encoding="utf-8")


if __name__ == "__main__":
    main()
