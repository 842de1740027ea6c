"""What the kinds of data set share needs none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("module", "without"), [("minari", "pyarrow"), ("parquet", "minari"), ("plain", "pyarrow")])
def test_one_extra_does_not_need_the_other(module: str, without: str) -> None:
    code = f"import sys; sys.modules[{without!r}] = None; import trio_cogment.rl.datasets.{module}"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
