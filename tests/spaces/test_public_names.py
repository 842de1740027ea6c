"""Every public name of the package is there."""

from __future__ import annotations

import trio_cogment.spaces


def test_every_public_name_resolves() -> None:
    assert sorted(trio_cogment.spaces.__all__) == trio_cogment.spaces.__all__
    for name in trio_cogment.spaces.__all__:
        assert getattr(trio_cogment.spaces, name) is not None
