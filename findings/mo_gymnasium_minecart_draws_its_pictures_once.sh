#!/usr/bin/env bash
# The pictures of mo-gymnasium's minecart-rgb depend on the object that draws them, and not on the seed.
#
# Versions:  mo-gymnasium==1.3.2, gymnasium==1.4.0, numpy==2.4.6, pygame==2.6.1
# Guessed:   reset(seed=3) and the same actions give the same pictures, in any environment that is made alike.
# Behaviour: how each mine is turned is drawn once when the environment is made, by numpy's global generator. Within one
#            object a seed gives the same pictures; another object shows other ones for the same seed and the same game,
#            in more than ten thousand values. minecart-v0, with numbers, is the same in both.
# Matters:   stored pictures are not reproduced by seed and actions, and each worker of a vector environment shows its own
#            world: a policy that is evaluated in a new process sees pictures that it has never seen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install "mo-gymnasium==1.3.2" gymnasium==1.4.0 numpy==2.4.6 pygame==2.6.1
SDL_VIDEODRIVER=dummy SDL_AUDIODRIVER=dummy "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import gymnasium
import mo_gymnasium  # noqa: F401  # registers the environments
import numpy as np


def differing(name: str) -> tuple[int, int]:
    one, other = (gymnasium.make(name, disable_env_checker=True) for _ in range(2))
    found, again = one.reset(seed=3)[0].copy(), one.reset(seed=3)[0].copy()
    return int((found != other.reset(seed=3)[0]).sum()), int((found != again).sum())


elsewhere, here = differing("minecart-rgb-v0")
print(f"minecart-rgb-v0: {elsewhere} values differ in another object, {here} in the same one")
assert elsewhere > 10_000 and here == 0, "it behaves otherwise now"
print("minecart-v0:", differing("minecart-v0"))
assert differing("minecart-v0") == (0, 0), "it behaves otherwise now"
PYTHON
