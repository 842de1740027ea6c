"""The default parameters and the hooks of an orchestrator: read and checked before it starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trio_cogment.base.endpoints import (
    DiscoverEndpoint,
    Endpoint,
    LegacyEndpoint,
    parse_endpoint,
    parse_server_endpoint,
)
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.records import record
from trio_cogment.base.suggestions import suggestion
from trio_cogment.cli.errors import Failure
from trio_cogment.cli.services.types_option import NAMED

if TYPE_CHECKING:
    from trio_cogment.api.common_pb2 import TrialParams
    from trio_cogment.gateways.legacy import LegacyProfile
    from trio_cogment.sdk.spec import Spec


@record()
class ParamsSettings:
    """What decides about default parameters.

    Attributes:
        params: the file of `--params`.
        legacy: the file of `--legacy`.
        hooks: there are pre-trial hooks.
        discovery: there is a directory.
        datastore: there is a datastore, which is found as a data log.
    """

    params: Path | None
    legacy: Path | None
    hooks: bool
    discovery: bool
    datastore: bool


def load_default_params(settings: ParamsSettings, legacy: LegacyProfile | None) -> TrialParams | None:
    """Return the parameters that the flags name: of `--params`, or else of `--legacy`.

    Raises:
        Failure: they cannot be read, or no trial could start with them.
    """
    if settings.params is not None:
        from trio_cogment.sdk.spec import load_params

        try:
            params = load_params(settings.params, named=NAMED)
        except CogmentError as error:
            raise Failure(f"--params: {error}") from error
        return _checked(params, f"--params: {settings.params}", settings)
    if legacy is not None and legacy.params is not None:
        return _checked(legacy.params, f"--legacy: {settings.legacy}", settings)
    return None


def warn_of_unknown_classes(
    settings: ParamsSettings, params: TrialParams | None, specs: Mapping[str, Spec | None]
) -> None:
    """Warn of actors of `--params` whose class is not among those that the server knows.

    It is no more than a warning: participants have specs of their own, and one without a spec takes any class.

    Args:
        settings: name the file.
        params: what it has.
        specs: the types that other flags name, by flag; None where the flag is not given.
    """
    if params is None or settings.params is None:
        return
    import logging

    from trio_cogment.sdk.spec import declared_classes

    known = [(flag, list(spec.names())) for flag, spec in specs.items() if spec is not None]
    try:
        declared = declared_classes(settings.params, named=NAMED)
    except CogmentError as error:
        logging.getLogger(__name__).warning(
            "--params: %s: its actor classes are not checked: %s", settings.params, error
        )
    else:
        known += [] if declared is None else [declared]
    for place, names in known:
        for number, actor in enumerate(params.actors):
            if names and actor.actor_class not in names:
                logging.getLogger(__name__).warning(
                    "--params: %s: trial_params.actors[%d].actor_class: actor %r has the class %r, which %s does not "
                    "declare; %s",
                    settings.params,
                    number,
                    actor.name,
                    actor.actor_class,
                    place,
                    suggestion(actor.actor_class, names),
                )


def _checked(params: TrialParams, where: str, settings: ParamsSettings) -> TrialParams:
    import logging  # what listens without parameters is quicker without

    from trio_cogment.trial import validate_params

    log = logging.getLogger(__name__)
    try:
        checked = validate_params(params)
    except CogmentError as error:
        text = f"{where}: trial_params.{error}"
        # Hooks may change anything, and without actors the file may be for clients that bring their own.
        if params.actors and not settings.hooks:
            raise Failure(text) from error
        log.warning("%s", text)
        return params
    for problem in _unreachable(checked, settings):
        # A trial may come with parameters of its own, and hooks may give others.
        log.warning("%s: trial_params.%s; trials that need it fail", where, problem)
    return params


def _unreachable(params: TrialParams, settings: ParamsSettings) -> Iterator[str]:
    """Give for each endpoint that leads nowhere from here why."""
    discovery = settings.discovery
    found_here = {"datalog.endpoint"} if settings.datastore else set()
    fields = {f"actors[{number}].endpoint": actor.endpoint for number, actor in enumerate(params.actors)}
    fields["environment.endpoint"] = params.environment.endpoint
    if params.datalog.endpoint:  # an empty one means that there is no data log
        fields["datalog.endpoint"] = params.datalog.endpoint
    for name, text in fields.items():
        endpoint: Endpoint
        try:
            if name.startswith("actors"):
                endpoint = parse_endpoint(text, field_name=name)
            else:
                endpoint = parse_server_endpoint(text, discovery=True, legacy=True, field_name=name)
        except CogmentError as error:
            yield str(error)
            continue
        if isinstance(endpoint, LegacyEndpoint) and settings.legacy is None:
            yield f"{name}: {endpoint}: a server of the legacy API needs a profile (--legacy)"
        if isinstance(endpoint, DiscoverEndpoint) and not discovery and name not in found_here:
            yield f"{name}: {endpoint}: discovery needs a directory (--directory_endpoint)"


def check_hooks(endpoints: Iterable[str], *, discovery: bool, legacy: bool) -> None:
    """Refuse endpoints with which every start of a trial would fail.

    Raises:
        Failure: naming the hook.
    """
    for number, text in enumerate(endpoints):
        name = f"pre_trial_hooks[{number}]"
        try:
            endpoint = parse_server_endpoint(text, discovery=True, legacy=True, field_name=name)
        except CogmentError as error:
            raise Failure(str(error)) from error
        if isinstance(endpoint, LegacyEndpoint) and not legacy:
            raise Failure(f"{name}: {endpoint}: a server of the legacy API needs a profile (--legacy)")
        if isinstance(endpoint, DiscoverEndpoint) and not discovery:
            raise Failure(f"{name}: {endpoint}: discovery needs a directory (--directory_endpoint)")
