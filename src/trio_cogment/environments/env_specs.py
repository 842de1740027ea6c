"""Gymnasium's spec of an environment in a trial's parameters: written when it is played, read for a data set of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

#: Stands for an environment that nobody else can make.
NOT_WRITABLE = "null"
#: Arguments that are about this process, and not about the environment.
_NOT_ITS_OWN = ("render_mode", "disable_env_checker")


def spec_text(env: Any) -> str:
    """Return how Gymnasium makes an environment, as JSON: `null` if nobody can write that, empty if it is not known."""
    spec = getattr(env, "spec", None)
    if spec is None:
        return ""
    try:
        plain = copy.copy(spec)
        plain.kwargs = {name: value for name, value in spec.kwargs.items() if name not in _NOT_ITS_OWN}
        # Wrappers of this package change nothing that an environment says.
        others = (one for one in plain.additional_wrappers if not one.entry_point.startswith("trio_cogment."))
        plain.additional_wrappers = tuple(others)
        return str(plain.to_json())
    except Exception:  # noqa: BLE001  arguments of any kind: they cannot be copied, or are not JSON
        return NOT_WRITABLE


def id_in(text: str) -> str:
    """Return the id of the environment that a text of `spec_text` is about; empty if it names none."""
    try:
        return str(json.loads(text)["id"])
    except (ValueError, LookupError, TypeError):
        return ""


def recovered_spec(text: str, env_id: str, arguments: Mapping[str, Any]) -> Any:
    """Return the `EnvSpec` with which Gymnasium makes an environment again, None if it cannot.

    What runs then is what is registered here under the id. A trial's parameters, which anybody may have written, name
    no code: they have the arguments and the time limit.

    Args:
        text: see `spec_text`; empty if only the id and the arguments are known.
        env_id: the environment's id.
        arguments: with which it was made.
    """
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    kwargs: dict[str, Any] = dict(arguments)
    limits = {"max_episode_steps": kwargs.pop("max_episode_steps")} if "max_episode_steps" in kwargs else {}
    if text:
        try:
            told = json.loads(text)
            env_id, kwargs, limits = told["id"], told["kwargs"], {"max_episode_steps": told["max_episode_steps"]}
            entry_point, wrapped = told["entry_point"], told["additional_wrappers"]
        except (ValueError, LookupError, TypeError):
            return None
    registered = gymnasium.registry.get(env_id)
    if registered is None or (text and (wrapped or entry_point != registered.entry_point)):
        return None
    fields = json.loads(registered.to_json()) if isinstance(registered.entry_point, str) else None
    if fields is None:
        return None
    own = {key: value for key, value in kwargs.items() if key not in _NOT_ITS_OWN}
    fields.update(limits, kwargs={**registered.kwargs, **own})
    try:
        found = EnvSpec.from_json(json.dumps(fields))
        found.to_json()
    except (ValueError, TypeError):
        return None
    return found
