"""Parts of `serve` besides the services of the platform."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trio_cogment.cli.services.settings import ServerSettings
from trio_cogment.cli.services.start import Resources
from trio_cogment.cli.services.trainer import trainer_with_everything

if TYPE_CHECKING:
    from trio_cogment.gateways.dm_env_rpc import Profile
    from trio_cogment.gateways.legacy import LegacyProfile
    from trio_cogment.platform import Extension
    from trio_cogment.sdk.spec import Spec


def extensions_of(
    settings: ServerSettings,
    resources: Resources,
    *,
    profile: Profile | None,
    legacy: LegacyProfile | None,
    trainer: Path | None,
    trainer_spec: Spec | None,
    datastore: bool,
    model_registry: bool,
) -> list[Extension]:
    """Return the gateways, and the trainer, that the flags ask for.

    Args:
        settings: of the server.
        resources: of the process.
        profile: of a gateway for dm_env_rpc.
        legacy: of a gateway for the legacy API.
        trainer: the folder of a trainer.
        trainer_spec: the types that it knows.
        datastore: the server has one.
        model_registry: the server has one.
    """
    found: list[Extension] = []
    if profile is not None:
        from trio_cogment.gateways.dm_env_rpc import DmEnvRpcGateway

        found.append(DmEnvRpcGateway(profile, config=settings.configuration.dm_env_rpc))
    if trainer is not None:
        found.append(
            trainer_with_everything(
                trainer,
                settings,
                resources,
                spec=trainer_spec,
                datastore=datastore,
                model_registry=model_registry,
            )
        )
    if legacy is not None:
        from trio_cogment.gateways.legacy import LegacyGateway

        found.append(LegacyGateway(legacy, rpc_config=settings.configuration.rpc))
    return found
