"""Reads the plain command lines of servers without click: which ports to open, and what to announce there.

Importing click takes several times as long as starting Python. So the ports of a server are opened before, when
everything that is given is of a kind that can be checked here: never more than click accepts, and never read in
another way. In any doubt there is no plan. Click reads the command line afterwards in any case, reports what is wrong,
and makes the settings.

Gateways and the web proxy are not here: they read their projects before they are announced. Nor is a trainer.

The table of flags repeats the declarations of the commands; a test compares them.
"""

from __future__ import annotations

import os

from trio_cogment.cli.announced import (
    DATASTORE_SERVICES,
    DIRECTORY_SERVICES,
    EVERYTHING,
    REGISTRY_SERVICES,
    orchestrator_parts,
)
from trio_cogment.cli.commands import COMPLETION
from trio_cogment.host.lock_probe import LOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Values = Mapping[str, str]

_NONE = "none"
_ANYWHERE = "0.0.0.0"
_THIS_MACHINE = "127.0.0.1"


class Plan:
    """The ports of a server, and what is announced when they are open.

    Attributes:
        name: of what is served.
        hosts: addresses to listen on.
        ports: of the servers; the same port twice means one server for both.
        services: the names of the services on each port.
        metrics_port: of the metrics; 0: no metrics.
        draws: on a terminal it draws a screen, and announces nothing.
        locks: if another process holds one of these, the server will most likely not start.
    """

    def __init__(
        self, name: str, ports: list[int], services: Sequence[Sequence[str]], values: Values, *, draws: bool = False
    ) -> None:
        self.name = name
        self.hosts = _hosts(values["host"])
        self.ports = ports
        self.services = services
        self.metrics_port = int(values["prometheus_port"])
        self.draws = draws
        self.locks = _locks(values)


def planned(arguments: Sequence[str], environment: Mapping[str, str]) -> Plan | None:
    """Return what a server is going to open; None: the command is no server, or click has to decide."""
    command, rest = _command(arguments)
    if command is None or environment.get(COMPLETION):
        return None
    values = command.values(rest, environment)
    return None if values is None else command.plan(values)


def _command(arguments: Sequence[str]) -> tuple[Command | None, Sequence[str]]:
    length = 2 if tuple(arguments[:1]) == ("services",) else 1
    return COMMANDS.get(tuple(arguments[:length])), arguments[length:]


def _hosts(text: str) -> list[str]:
    return [host.strip() for host in text.split(",") if host.strip()]


def _locks(values: Values) -> list[str]:
    """Return what is locked of the files and of the folder that the server uses: they, and the locks of their own."""
    database = values.get("storage", "").partition("sqlite:")[2]
    files = [values.get("persistence_file"), values.get("file_storage"), database]
    paths = [os.path.realpath(name) for name in files if name]
    locks = [lock for path in paths for lock in (path + LOCK, path)]
    if folder := values.get("archive_dir"):
        locks += os.path.join(folder, LOCK), folder
    return locks


# What values of flags may be: what click accepts, or less.


def _is_hosts(text: str) -> bool:
    return bool(_hosts(text))


def _is_port(text: str) -> bool:
    return _is_count(text) and int(text) <= _HIGHEST_PORT


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def _is_positive(text: str) -> bool:
    return _is_count(text) and int(text) > 0


def _is_boolean(text: str) -> bool:
    return text in ("true", "false")


def _is_level(text: str) -> bool:
    return text in ("trace", "debug", "info", "warning", "error", "off")


def _is_format(text: str) -> bool:
    return text in ("text", "json")


def _is_durability(text: str) -> bool:
    return text in ("full", "batch")


def _is_open(text: str) -> bool:
    return text == "open"


def _is_text(_text: str) -> bool:
    return True


def _is_path(text: str) -> bool:
    # Click refuses what is there and cannot be read.
    return text.isprintable() and text not in ("", "-") and (os.access(text, os.R_OK) or not os.path.lexists(text))


def _is_archive(text: str) -> bool:
    return _is_path(text) and (text == _NONE or _NONE not in text)  # `./none` is the same path


def _is_storage(text: str) -> bool:
    return text in ("memory:", _NONE) or (text.startswith("sqlite:") and text.strip() == text != "sqlite:")


_HIGHEST_PORT = 65535
_MOST_DIGITS = 9


class Flag:
    """A flag of a server.

    Attributes:
        check: tells whether a value is plain; None: no value is.
        default: as text; None: no plan needs it.
        variables: of the environment; the first one that is not empty counts.
    """

    def __init__(self, check: Callable[[str], bool] | None, default: str | None, *variables: str) -> None:
        self.check = check
        self.default = default
        self.variables = variables


class Command:
    """A command that runs a server.

    Attributes:
        flags: all of them, by their names without the dashes.
        plan: makes the plan of the values of the flags.
    """

    def __init__(self, plan: Callable[[Values], Plan], *flags: dict[str, Flag]) -> None:
        self.plan = plan
        self.flags = {name: flag for some in flags for name, flag in some.items()}

    def values(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Values | None:
        """Return the values of the flags, from the command line, the environment and the defaults; None: not plain."""
        given = self._given(arguments)
        if given is None:
            return None
        values: dict[str, str] = {}
        for name, flag in self.flags.items():
            variable = next(filter(None, map(environment.get, flag.variables)), None)
            found = [text for text in (flag.default, variable, given.get(name)) if text is not None]
            # What a flag hides is checked too: `services` reads the variables of the log for itself.
            if found and (flag.check is None or not all(map(flag.check, found))):
                return None
            if found:
                values[name] = found[-1]
        return values

    def _given(self, arguments: Sequence[str]) -> dict[str, str] | None:
        given: dict[str, str] = {}
        rest = list(arguments)
        while rest:
            word, equals, text = rest.pop(0).partition("=")
            name = word[2:]
            flag = self.flags.get(name)
            if flag is None or not word.startswith("--"):
                return None
            if not equals:
                if rest and not rest[0].startswith("-"):
                    text = rest.pop(0)
                elif flag.check is _is_boolean:
                    text = "true"
                else:
                    return None
            if text.startswith("-"):
                return None  # for click this may be the next flag, even behind `=`
            given[name] = f"{given[name]},{text}" if name == "host" and name in given else text
        return given


# The table


def _server_flags(service: str, *old_names: str) -> dict[str, Flag]:
    return {
        "auth": Flag(_is_open, "open", "COGMENT_AUTH"),
        "auth_secret_file": Flag(None, None, "COGMENT_AUTH_SECRET_FILE"),
        "auth_revocation_file": Flag(None, None, "COGMENT_AUTH_REVOCATION_FILE"),
        "auth_certificates_file": Flag(None, None, "COGMENT_AUTH_CERTIFICATES_FILE"),
        "token": Flag(None, None, "COGMENT_TOKEN"),
        "token_file": Flag(None, None, "COGMENT_TOKEN_FILE"),
        "config": Flag(None, None, "TRIO_COGMENT_CONFIG"),
        "host": Flag(_is_hosts, _ANYWHERE),
        "prometheus_port": Flag(_is_port, "0", f"COGMENT_{service}_PROMETHEUS_PORT", *old_names),
        "private_key": Flag(None, None, "COGMENT_PRIVATE_KEY_FILE"),
        "root_cert": Flag(None, None, "COGMENT_ROOT_CERT_FILE"),
        "outgoing_root_cert": Flag(None, None, "COGMENT_OUTGOING_ROOT_CERT_FILE"),
        "trust_chain": Flag(None, None, "COGMENT_TRUST_CHAIN_FILE"),
        "log_level": Flag(_is_level, "info", "COGMENT_LOG_LEVEL"),
        "log_file": Flag(None, None, "COGMENT_LOG_FILE"),
        "log_format": Flag(_is_format, None, "COGMENT_LOG_FORMAT"),
    }


def _service_flags(service: str, port: str) -> dict[str, Flag]:
    return {
        **_server_flags(service),
        "port": Flag(_is_port, port, f"COGMENT_{service}_PORT"),
        "grpc_reflection": Flag(_is_boolean, "true", f"COGMENT_{service}_GRPC_REFLECTION"),
    }


def _directory_flags(service: str) -> dict[str, Flag]:
    prefix = f"COGMENT_{service}_DIRECTORY"
    return {
        "directory_endpoint": Flag(None, None, "COGMENT_DIRECTORY_ENDPOINT"),
        "directory_authentication_token": Flag(None, None, "COGMENT_DIRECTORY_AUTHENTICATION_TOKEN"),
        "directory_auto_register": Flag(_is_boolean, "true", f"{prefix}_AUTO_REGISTER"),
        "directory_registration_host": Flag(_is_text, None, f"{prefix}_REGISTRATION_HOST"),
        "directory_registration_properties": Flag(None, None, f"{prefix}_REGISTRATION_PROPERTIES"),
    }


def _orchestrator_flags() -> dict[str, Flag]:
    return {
        **_server_flags("ORCHESTRATOR", "PROMETHEUS_PORT"),
        **_directory_flags("ORCHESTRATOR"),
        "params": Flag(None, None, "COGMENT_DEFAULT_PARAMS_FILE"),
        "pre_trial_hooks": Flag(None, None, "COGMENT_PRE_TRIAL_HOOKS"),
        "legacy": Flag(None, None, "COGMENT_LEGACY_PROFILE"),
        "status_file": Flag(None, None, "COGMENT_STATUS_FILE"),
        **_OUTGOING,
        "gc_frequency": Flag(_is_count, None, "COGMENT_GC_FREQUENCY"),
        "web": Flag(_is_boolean, "true", "TRIO_COGMENT_WEB"),
        "web_url": Flag(None, None, "TRIO_COGMENT_WEB_URL"),
        "web_host": Flag(None, None, "TRIO_COGMENT_WEB_HOST"),
        "web_spec": Flag(None, None, "TRIO_COGMENT_WEB_SPEC"),
        "web_datastore": Flag(None, None, "TRIO_COGMENT_WEB_DATASTORE"),
        "web_model_registry": Flag(None, None, "TRIO_COGMENT_WEB_MODEL_REGISTRY"),
        "web_allow_origin": Flag(None, None, "TRIO_COGMENT_WEB_ALLOW_ORIGIN"),
        "actor_web_port": Flag(None, None, "COGMENT_WEB_PROXY_PORT"),
        "actor_http_port": Flag(None, None),
    }


_OUTGOING = {
    "outgoing_allow": Flag(None, None, "TRIO_COGMENT_OUTGOING_ALLOW"),
    "outgoing_deny": Flag(None, None, "TRIO_COGMENT_OUTGOING_DENY"),
}
_PERSISTENCE = {"persistence_file": Flag(_is_text, ".cogment-directory-data", "COGMENT_DIRECTORY_PERSISTENCE_FILE")}
_ARCHIVE = {"archive_dir": Flag(_is_archive, ".cogment/model_registry", "COGMENT_MODEL_REGISTRY_ARCHIVE_DIR")}
_KEEPING = {
    "keep_trials": Flag(_is_count, None, "COGMENT_TRIAL_DATASTORE_KEEP_TRIALS"),
    "file_storage_max_size": Flag(_is_count, "0", "COGMENT_TRIAL_DATASTORE_FILE_STORAGE_MAX_SIZE"),
    "durability": Flag(_is_durability, "full", "COGMENT_TRIAL_DATASTORE_DURABILITY"),
}


def _serve(values: Values) -> Plan:
    port = int(values["port"])
    return Plan(EVERYTHING, [port, port], [[], []], values, draws=True)


def _orchestrator(values: Values) -> Plan:
    ports = [int(values["lifecycle_port"]), int(values["actor_port"])]
    name, services = orchestrator_parts(
        datastore=False, model_registry=False, directory=False, one_port=ports[0] == ports[1]
    )
    return Plan(name, ports, services, values)


def _directory(values: Values) -> Plan:
    return Plan("directory", [int(values["port"])], [DIRECTORY_SERVICES], values)


def _datastore(values: Values) -> Plan:
    return Plan("trial_datastore", [int(values["port"])], [DATASTORE_SERVICES], values)


def _registry(values: Values) -> Plan:
    return Plan("model_registry", [int(values["port"])], [REGISTRY_SERVICES], values)


COMMANDS: dict[tuple[str, ...], Command] = {
    ("serve",): Command(
        _serve,
        _orchestrator_flags(),
        _PERSISTENCE,
        _ARCHIVE,
        _KEEPING,
        {
            "host": Flag(_is_hosts, _THIS_MACHINE),
            "port": Flag(_is_port, "9000"),
            "storage": Flag(_is_storage, "sqlite:.cogment/trial_datastore.db", "TRIO_COGMENT_STORAGE"),
            "dm_env_rpc": Flag(None, None, "COGMENT_DM_ENV_RPC_PROFILE"),
            "trainer": Flag(None, None, "COGMENT_TRAINER_FOLDER"),
            "trainer_spec": Flag(None, None, "COGMENT_TRAINER_SPEC"),
        },
    ),
    ("services", "orchestrator"): Command(
        _orchestrator,
        _orchestrator_flags(),
        {
            "lifecycle_port": Flag(_is_port, "9000", "COGMENT_LIFECYCLE_PORT", "TRIAL_LIFECYCLE_PORT"),
            "actor_port": Flag(_is_port, "9000", "COGMENT_ACTOR_PORT", "TRIAL_ACTOR_PORT"),
        },
    ),
    ("services", "directory"): Command(
        _directory,
        _service_flags("DIRECTORY", "9005"),
        _OUTGOING,
        _PERSISTENCE,
        {
            "registration_lag": Flag(_is_count, None, "COGMENT_DIRECTORY_REGISTRATION_LAG"),
            "load_balancing": Flag(_is_boolean, None, "COGMENT_DIRECTORY_LOAD_BALANCING"),
            "check_on_inquire": Flag(_is_boolean, None, "COGMENT_DIRECTORY_CHECK_ON_INQUIRE"),
            "force_permanent": Flag(_is_boolean, None, "COGMENT_DIRECTORY_FORCE_PERMANENT"),
        },
    ),
    ("services", "trial_datastore"): Command(
        _datastore,
        _service_flags("TRIAL_DATASTORE", "9003"),
        _directory_flags("TRIAL_DATASTORE"),
        _KEEPING,
        {
            "file_storage": Flag(_is_path, None, "COGMENT_TRIAL_DATASTORE_FILE_STORAGE_PATH"),
            "memory_storage_max_samples_size": Flag(
                _is_positive, None, "COGMENT_TRIAL_DATASTORE_MEMORY_STORAGE_MAX_SAMPLE_SIZE"
            ),
        },
    ),
    ("services", "model_registry"): Command(
        _registry,
        _service_flags("MODEL_REGISTRY", "9002"),
        _directory_flags("MODEL_REGISTRY"),
        _ARCHIVE,
        {
            "sent_version_chunk_size": Flag(
                _is_positive, None, "COGMENT_MODEL_REGISTRY_SENT_MODEL_VERSION_DATA_CHUNK_SIZE"
            ),
            "cache_max_items": Flag(_is_positive, None, "COGMENT_MODEL_REGISTRY_VERSION_CACHE_MAX_ITEMS"),
        },
    ),
}
COMMANDS["services", "datastore"] = COMMANDS["services", "trial_datastore"]
COMMANDS["services", "registry"] = COMMANDS["services", "model_registry"]
