"""A stage with the application of `app/` on it, what its trials are made of, and what its records say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.interop.directories import Directory
from tests.interop.processes import Remote, Server, Stage

#: An actor that is to miss its time is silent; one that is not must manage to answer within this, on a busy machine.
RESPONSE_SECONDS = 1.5
CLIENT = "cogment://client"
HERE_ALONE = ("--host=127.0.0.1", "--port=0")

Spec = dict[str, Any]


class Scene(Stage):
    """A stage with the application on it."""

    def __init__(self, folder: Path, python: str, project: Path) -> None:
        super().__init__(folder)
        self._python = python
        self._project = project

    def participants(self, name: str = "cast", *options: str) -> str:
        """Serve actors, environment, hook and data log; returns their endpoint."""
        self.start(name, *self._program("participants"), "--name", name, *options)
        return f"grpc://127.0.0.1:{self.port(name)}"

    def remote(self, orchestrator: Server | None, *options: str, name: str = "remote") -> Remote:
        """Start a controller, which discovers the orchestrator if it gets none."""
        urls = ["--lifecycle", orchestrator.lifecycle, "--actors", orchestrator.actors] if orchestrator else []
        return self.told("remote", *urls, *options, name=name)

    def told(self, program: str, *options: str, name: str = "") -> Remote:
        """Start a program that takes orders; it is called as what it is unless it gets a name."""
        name = name or program
        return Remote(self, self.start(name, *self._program(program), "--name", name, *options, asked=True))

    def directory(self, tls: Path | None = None) -> Directory:
        """Start our directory; it has a file."""
        file = f"--persistence_file={self.folder / 'registrations'}"
        return Directory(self, self._alone("directory", "directory", file, *tls_flags(tls)), tls)

    def model_registry(self, *flags: str, name: str = "model_registry") -> Server:
        """Start our model registry; its archive stays when it is restarted."""
        return self._alone(name, "model_registry", f"--archive_dir={self.folder / 'archive'}", *flags)

    def datastore(self, *flags: str, name: str = "datastore") -> Server:
        """Start our trial datastore; it keeps trials in memory unless told otherwise."""
        return self._alone(name, "trial_datastore", *flags)

    def everything(self, *flags: str, tls: Path | None = None) -> Directory:
        """Start a server of everything, which is its own directory."""
        files = [f"--persistence_file={self.folder / 'registrations'}", f"--archive_dir={self.folder / 'archive'}"]
        server = self.ours("serve", "serve", *HERE_ALONE, "--storage=memory:", *files, *tls_flags(tls), *flags)
        return Directory(self, server, tls)

    def _alone(self, name: str, service: str, *flags: str) -> Server:
        return self.ours(name, "services", service, *HERE_ALONE, *flags)

    def _program(self, name: str) -> list[str]:
        return [self._python, str(self._project / f"{name}.py"), "--records", str(self.folder)]

    def wait_tick(self, remote: Remote, trial: str, tick: int) -> None:
        """Wait until a trial is at a tick, which it must not leave by itself."""
        self.until(f"tick {tick} of {trial}", lambda: remote.ask("info", trials=[trial])[0]["tick"] == tick)


# --- flags ---


def tls_flags(folder: Path | None) -> list[str]:
    """The flags of a server of ours for a folder with key.pem, chain.pem and roots.pem, if there is one."""
    files = {"private_key": "key.pem", "root_cert": "roots.pem", "trust_chain": "chain.pem"}
    return [] if folder is None else [f"--{flag}={folder / name}" for flag, name in files.items()]


# --- parameters ---


def actor(name: str, endpoint: str, **fields: Any) -> Spec:
    """An actor's parameters, a player's with `bonus` if nothing else is said; other names go into its script."""
    known = {"actor_class", "implementation", "initial_connection_timeout", "response_timeout", "optional"}
    known |= {"default_action"}
    given = {key: fields.pop(key) for key in known & fields.keys()}
    spec = {"name": name, "actor_class": "player", "endpoint": endpoint, "implementation": "scripted", **given}
    if spec["actor_class"] == "player":
        spec["config"] = {"bonus": fields.pop("bonus", 0), "script": json.dumps(fields)}
    return spec


def field(endpoint: str, *, last_tick: int = 0, **script: Any) -> Spec:
    """The environment's part of a trial's parameters."""
    return {
        "environment_name": "field",
        "environment_endpoint": endpoint,
        "environment_implementation": "scripted_field",
        "environment_config": {"last_tick": last_tick, "script": json.dumps(script)},
    }


# --- what somebody saw ---


def observations(record: Spec) -> list[tuple[int, str]]:
    return [(e["observation"]["tick"], e["type"]) for e in record["events"] if "observation" in e]


def action_sets(record: Spec) -> list[tuple[int, str, list[tuple[str, Any]]]]:
    """Tick, type, and each actor's status and action."""
    return [
        (
            event["actions"][0]["tick"],
            event["type"],
            [(action["status"], action.get("action")) for action in event["actions"]],
        )
        for event in record["events"]
        if "actions" in event
    ]


def messages(record: Spec) -> list[tuple[int, str, str, str, str]]:
    """Tick, sender, receiver, text, type of event."""
    return [
        (m["tick"], m["sender"], m["receiver"], m["text"], event["type"])
        for event in record["events"]
        for m in event.get("messages", ())
    ]


def rewards(record: Spec) -> list[tuple[int, float, str]]:
    """Tick, value, type of event."""
    return [(r["tick"], r["value"], event["type"]) for event in record["events"] for r in event.get("rewards", ())]


def kinds(record: Spec) -> list[str]:
    return [event["type"] for event in record["events"]]


def active(*actions: Any) -> list[tuple[str, Any]]:
    return [("ACTIVE", action) for action in actions]


def described(parameters: Spec) -> Spec:
    """How parameters look to who is told all of them; 32-bit floats as far as they go."""
    defaults: Spec = {
        "properties": {},
        "max_steps": 0,
        "max_inactivity": 0,
        "nb_buffered_ticks": 0,
        "datalog_endpoint": "",
        "datalog_exclude_fields": [],
        "environment_name": "env",
        "environment_endpoint": "",
        "environment_implementation": "",
        "environment_config": None,
        "config": None,
    }
    actor_defaults: Spec = {
        "initial_connection_timeout": 0.0,
        "response_timeout": 0.0,
        "optional": False,
        "config": None,
        "default_action": None,
    }
    found = defaults | parameters | {"actors": [actor_defaults | one for one in parameters["actors"]]}
    # Messages leave out what is zero.
    for holder, name in [(found, "environment_config"), *[(one, "config") for one in found["actors"]]]:
        if holder[name] is not None:
            holder[name] = {key: value for key, value in holder[name].items() if value}
    return found


def told(sample: Spec) -> list[tuple[str, str, int, str]]:
    return sorted((m["sender"], m["receiver"], m["tick"], m["text"]) for m in sample["messages"])


def given(sample: Spec) -> list[tuple[str, str, int, float]]:
    return sorted((s["sender"], r["receiver"], r["tick"], s["value"]) for r in sample["rewards"] for s in r["sources"])
