"""The environment variables that commands know, and warnings about others that look like them.

A test compares the table with the flags of all commands: importing these only to warn would take too long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

PREFIXES = ("COGMENT_", "TRIO_COGMENT_")

_SERVICES = (
    "DIRECTORY",
    "DM_ENV_RPC",
    "LEGACY_GATEWAY",
    "MODEL_REGISTRY",
    "OPENENV",
    "ORCHESTRATOR",
    "PARTICIPANTS",
    "PLAY",
    "TRAINER",
    "TRIAL_DATASTORE",
    "WEB_PROXY",
)
#: Each of them has these, but for those of `_MISSING`.
_OF_SERVICES = (
    "PORT",
    "PROMETHEUS_PORT",
    "GRPC_REFLECTION",
    "DIRECTORY_AUTO_REGISTER",
    "DIRECTORY_REGISTRATION_HOST",
    "DIRECTORY_REGISTRATION_PROPERTIES",
)

#: Two services and the page of `play` do not register in a directory, and the orchestrator has two ports.
_MISSING = frozenset(
    [
        "COGMENT_ORCHESTRATOR_PORT",
        "COGMENT_ORCHESTRATOR_GRPC_REFLECTION",
        *(
            f"COGMENT_{service}_{name}"
            for service in ("DIRECTORY", "OPENENV", "PLAY")
            for name in _OF_SERVICES
            if name.startswith("DIRECTORY_")
        ),
    ]
)
#: What a name that none of ours is like was probably meant for.
_MEANT = {"COGMENT_ORCHESTRATOR_PORT": "COGMENT_LIFECYCLE_PORT"}

#: A trainer tells its workers by these where the services are (docs/trainer.md); flags do not read them.
OF_WORKERS = ("COGMENT_DATASTORE", "COGMENT_DIRECTORY", "COGMENT_MODEL_REGISTRY", "COGMENT_ORCHESTRATOR")
#: These are between processes of this program.
INTERNAL = ("TRIO_COGMENT_RUN_TOKEN", "TRIO_COGMENT_YIELDED")

_OTHERS = (
    "COGMENT_ACTOR_PORT",
    "COGMENT_AUTH",
    "COGMENT_AUTH_CERTIFICATES_FILE",
    "COGMENT_AUTH_REVOCATION_FILE",
    "COGMENT_AUTH_SECRET_FILE",
    "COGMENT_CHECKPOINT_SECONDS",
    "COGMENT_CHECKPOINT_TICKS",
    "COGMENT_CLIENT_CONSOLE_OUTPUT",
    "COGMENT_CLIENT_TIMEOUT",
    "COGMENT_DEFAULT_PARAMS_FILE",
    "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN",
    "COGMENT_DIRECTORY_CHECK_ON_INQUIRE",
    "COGMENT_DIRECTORY_ENDPOINT",
    "COGMENT_DIRECTORY_FORCE_PERMANENT",
    "COGMENT_DIRECTORY_LOAD_BALANCING",
    "COGMENT_DIRECTORY_PERSISTENCE_FILE",
    "COGMENT_DIRECTORY_REGISTRATION_LAG",
    "COGMENT_DM_ENV_RPC_MAX_CONNECTIONS",
    "COGMENT_DM_ENV_RPC_MAX_WORLDS",
    "COGMENT_DM_ENV_RPC_ORCHESTRATOR",
    "COGMENT_DM_ENV_RPC_PROFILE",
    "COGMENT_ENDPOINT",
    "COGMENT_GC_FREQUENCY",
    "COGMENT_LEGACY_GATEWAY_ORCHESTRATOR",
    "COGMENT_LEGACY_GATEWAY_PROFILE",
    "COGMENT_LEGACY_PROFILE",
    "COGMENT_LIFECYCLE_PORT",
    "COGMENT_LOG_FILE",
    "COGMENT_LOG_FORMAT",
    "COGMENT_LOG_LEVEL",
    "COGMENT_MODEL_REGISTRY_ARCHIVE_DIR",
    "COGMENT_MODEL_REGISTRY_ENDPOINT",
    "COGMENT_MODEL_REGISTRY_SENT_MODEL_VERSION_DATA_CHUNK_SIZE",
    "COGMENT_MODEL_REGISTRY_VERSION_CACHE_MAX_ITEMS",
    "COGMENT_ORCHESTRATOR_DATASTORE",
    "COGMENT_ORCHESTRATOR_ENDPOINT",
    "COGMENT_OUTGOING_ROOT_CERT_FILE",
    "COGMENT_PRE_TRIAL_HOOKS",
    "COGMENT_PRIVATE_KEY_FILE",
    "COGMENT_ROOT_CERT_FILE",
    "COGMENT_SPEC_FILE",
    "COGMENT_STATUS_FILE",
    "COGMENT_TOKEN",
    "COGMENT_TOKEN_FILE",
    "COGMENT_TRAINER_CONTROLLER_SECRET",
    "COGMENT_TRAINER_CPUS",
    "COGMENT_TRAINER_CREDITS",
    "COGMENT_TRAINER_DATASTORE",
    "COGMENT_TRAINER_ENDPOINT",
    "COGMENT_TRACING_ENDPOINT",
    "COGMENT_TRACING_SAMPLE_RATIO",
    "COGMENT_TRACING_TICK_RATIO",
    "COGMENT_TRAINER_FOLDER",
    "COGMENT_TRAINER_GPUS",
    "COGMENT_TRAINER_MAX_RUNS",
    "COGMENT_TRAINER_MEMORY_MB",
    "COGMENT_TRAINER_MODEL_REGISTRY",
    "COGMENT_TRAINER_ORCHESTRATOR",
    "COGMENT_TRAINER_SPEC",
    "COGMENT_TRIAL_DATASTORE_DURABILITY",
    "COGMENT_TRIAL_DATASTORE_ENDPOINT",
    "COGMENT_TRIAL_DATASTORE_FILE_STORAGE_COMPRESSION",
    "COGMENT_TRIAL_DATASTORE_FILE_STORAGE_MAX_SIZE",
    "COGMENT_TRIAL_DATASTORE_FILE_STORAGE_PATH",
    "COGMENT_TRIAL_DATASTORE_KEEP_TRIALS",
    "COGMENT_TRIAL_DATASTORE_MEMORY_STORAGE_MAX_SAMPLE_SIZE",
    "COGMENT_TRIAL_DATASTORE_STORAGE",
    "COGMENT_TRUST_CHAIN_FILE",
    "COGMENT_WEB_PROXY_IMPLEMENTATION",
    "COGMENT_WEB_PROXY_SECRET",
    "COGMENT_WEB_PROXY_WEB_PORT",
    "TRIO_COGMENT_CONFIG",
    "TRIO_COGMENT_OUTGOING_ALLOW",
    "TRIO_COGMENT_OUTGOING_DENY",
    "TRIO_COGMENT_PLAY_SPEC",
    "TRIO_COGMENT_RESUME",
    "TRIO_COGMENT_STORAGE",
    "TRIO_COGMENT_WEB",
    "TRIO_COGMENT_WEB_ALLOW_ORIGIN",
    "TRIO_COGMENT_WEB_DATASTORE",
    "TRIO_COGMENT_WEB_HOST",
    "TRIO_COGMENT_WEB_MODEL_REGISTRY",
    "TRIO_COGMENT_WEB_SPEC",
    "TRIO_COGMENT_WEB_URL",
)

KNOWN = frozenset([*_OTHERS, *OF_WORKERS, *INTERNAL]) | (
    {f"COGMENT_{service}_{name}" for service in _SERVICES for name in _OF_SERVICES} - _MISSING
)


def _plain(name: str) -> str:
    return name.removeprefix("TRIO_").removeprefix("COGMENT_")  # all are alike in what they begin with


def warnings(variables: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each variable that is named like one of ours, and that no command knows.

    Args:
        variables: the names of those that are set.
    """
    for name in sorted(variables):
        if name.startswith(PREFIXES) and name not in KNOWN:
            from trio_cogment.base.suggestions import similar

            known = {_plain(one): one for one in sorted(KNOWN.difference(INTERNAL))}
            close = _MEANT.get(name) or known.get(similar(_plain(name), known) or "")
            yield f"{name}: no command knows this variable" + (f"; did you mean {close}?" if close else "")
