"""The parameters of a run's trials, from its configuration."""

from __future__ import annotations

from google.protobuf.json_format import ParseDict, ParseError

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk.spec import Spec, load_params
from trio_cogment.trainer.run_config import Trials


def params_of(trials: Trials, spec: Spec) -> TrialParams:
    """Return the parameters that all trials of a run share. It blocks, where they are in a file.

    Raises:
        InvalidArgumentError: they make no sense; the text names the key.
        FailedPreconditionError: see `load_params`.
    """
    if trials.params is None:
        params = load_params(trials.params_file, spec=spec if spec.actor_classes else None)
    else:
        try:
            params = ParseDict(dict(trials.params), TrialParams())
        except ParseError as error:
            raise InvalidArgumentError(f"trials.params: {error}") from error
    actors = {actor.name: actor for actor in params.actors}
    for name, changes in trials.actors.items():
        if name not in actors:
            known = ", ".join(map(repr, actors))
            raise InvalidArgumentError(f"trials.actors.{name}: expected one of the actors {known}")
        try:
            ParseDict(dict(changes), actors[name])
        except ParseError as error:
            raise InvalidArgumentError(f"trials.actors.{name}: {error}") from error
    return params
