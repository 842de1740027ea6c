#!/usr/bin/env bash
# skrl's wrapper of a vector environment begins episodes at its first reset() only.
#
# Versions:  skrl==2.1.1, gymnasium==1.4.0, torch==2.14.1
# Guessed:   reset() begins new episodes, as it does of the wrapper of a single environment.
# Behaviour: of a vector environment the second reset() and all after it return the newest observation again, and nothing
#            is reset: two in a row are equal, and the episodes go on where they were.
# Matters:   an evaluation that begins with reset(), after training or with a seed of its own, begins in the middle of
#            episodes that another policy has played, and its returns are of parts of them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --quiet install skrl==2.1.1 gymnasium==1.4.0 torch==2.14.1
"$folder/venv/bin/python" -W ignore - 2>"$folder/errors" <<'PYTHON' || { tail -n 5 "$folder/errors" >&2; exit 1; }
import gymnasium
import torch
from skrl.envs.wrappers.torch import wrap_env

several = wrap_env(gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync"))
several.reset()
for _ in range(5):
    newest, *_ = several.step(torch.ones(2, 1, dtype=torch.int64))
one, _ = several.reset()
other, _ = several.reset()
single = wrap_env(gymnasium.make("CartPole-v1"))
alone = [single.reset()[0] for _ in range(2)]
print("several:", one.tolist(), "the newest again:", torch.equal(one, newest), torch.equal(one, other))
assert torch.equal(one, newest) and torch.equal(one, other), "it behaves otherwise now"
assert not torch.equal(*alone), "it behaves otherwise now"
PYTHON
