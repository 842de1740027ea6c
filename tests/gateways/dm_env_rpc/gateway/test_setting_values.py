"""Values of settings as errors show them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trio_cogment.gateways.dm_env_rpc.gateway.setting_values import _LONGEST_SHOWN, described


@pytest.mark.parametrize("make", [str, np.str_])
def test_a_text_is_shown_whole_up_to_a_length(make: Any) -> None:
    most = _LONGEST_SHOWN - len("''")
    for length in (1, most - 1, most):
        assert described(make("x" * length)) == repr("x" * length)
    assert described(make("x" * (most + 1))) == f"'{'x' * (most + 1)}..."
    assert described(make("x" * 2 * most)) == f"'{'x' * (most + 1)}..."


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "True"),
        (np.array(["a", "b"]), "an array of strings with the shape [2]"),
        (np.zeros((2, 3), np.int8), "an array of int8 with the shape [2, 3]"),
        (np.array({}, object), "a message"),
        (None, "None"),
    ],
)
def test_values(value: Any, shown: str) -> None:
    assert described(value) == shown
