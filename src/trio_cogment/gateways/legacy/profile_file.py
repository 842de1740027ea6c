"""Profiles as files: the section `legacy` of a project file, and the project files of the legacy API."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.endpoints import LegacyEndpoint, is_client_endpoint, parse_endpoint
from trio_cogment.base.errors import EndpointError, InvalidArgumentError
from trio_cogment.gateways.legacy.actor_ids import name_actors
from trio_cogment.gateways.legacy.deltas import ApplyDelta, applying, function_named, merging, replacing
from trio_cogment.gateways.legacy.old_endpoints import todays_actor, todays_server
from trio_cogment.gateways.legacy.profile import ON_AGENT_ERROR, LegacyProfile
from trio_cogment.sdk.spec import read_params
from trio_cogment.sdk.spec.project import Project
from trio_cogment.sdk.spec.yaml_file import YamlFile, is_blank

SECTION = "legacy"
_PARAMS = "trial_params"
_REPLACE, _MERGE = "replace", "merge"
_DELTA_KEYS = ("type", "apply")


def load_profile(path: str | Path, *, pool: DescriptorPool | None = None) -> LegacyProfile:
    """Read a profile from a file. It blocks the thread.

    A file in which a class has an `id` instead of a name is one of the legacy API: its `trial_params` have no names,
    and the endpoints there are those of old servers.

    Args:
        path: a project file, or its folder.
        pool: see `spec.load_spec`. Functions that apply deltas get messages of this pool; those that make messages of
            generated modules themselves may need protobuf's default pool.

    Raises:
        InvalidArgumentError: the file cannot be read, is not YAML, or has an unknown key or an invalid value; the text
            names the file, the line and the key.
        FailedPreconditionError: there are protos, and `grpcio-tools` is not installed.
    """
    return _Reader(Project(path, pool=pool, legacy=True)).profile()


class _Reader:
    """Reads one file."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._declared = project.declared
        self._file: YamlFile = project.declared.file
        node = self._file.root
        root = [] if node is None or is_blank(node) else self._file.entries(node, "the file")
        self._root = {key: node for key, _, node in root if not is_blank(node)}
        self._section = self._values(self._root.get(SECTION), SECTION, tuple(_READERS))
        self._by_class = {found.name: found for found in self._declared.actor_classes}

    def profile(self) -> LegacyProfile:
        """Return what the file says."""
        given = {key: read(self, node, f"{SECTION}.{key}") for key, (read, node) in self._given().items()}
        classes = given.setdefault("classes", tuple(self._by_class))
        if not classes:
            text = f"{SECTION}.classes: expected the actor classes, since the file declares none"
            raise self._file.fault(self._root.get(SECTION), text)
        given["pre_trial_hooks"] = (*given.get("pre_trial_hooks", ()), *self._hooks())
        given["deltas"] = {**self._declared_deltas(), **given.get("deltas", {})}
        try:
            profile = LegacyProfile(spec=self._project.spec, **given)
        except InvalidArgumentError as error:
            raise self._file.fault(self._root.get(SECTION), f"{SECTION}: {error}") from None
        params = self._params(profile)
        if params is None:
            return profile
        return LegacyProfile(spec=self._project.spec, params=params, **given)

    def _given(self) -> dict[str, tuple[Callable[[_Reader, yaml.Node, str], Any], yaml.Node]]:
        return {key: (read, self._section[key]) for key, read in _READERS.items() if key in self._section}

    def _values(self, node: yaml.Node | None, name: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        """Return the values of a mapping that are not blank."""
        found = {}
        for key, place, value in [] if node is None or is_blank(node) else self._file.entries(node, name):
            if key not in known:
                raise self._file.unknown_key(place, name, key, known)
            if not is_blank(value):
                found[key] = value
        return found

    def classes(self, node: yaml.Node, name: str) -> tuple[str, ...]:
        """Read the order of the classes."""
        found: list[str] = []
        for place, item in self._file.items(node, name):
            text = self._file.text(item, place)
            self._check_class(item, place, text)
            if text in found:
                raise self._file.fault(item, f"{place}: the class {text!r} is there twice")
            found.append(text)
        missing = [declared for declared in self._by_class if declared not in found]
        if missing:
            raise self._file.fault(node, f"{name}: expected all actor classes, {missing[0]!r} is missing")
        return tuple(found)

    def _check_class(self, node: yaml.Node, name: str, text: str) -> None:
        if self._by_class and text not in self._by_class:
            known = ", ".join(map(repr, self._by_class))
            raise self._file.fault(node, f"{name}: expected an actor class ({known}), got {text!r}")

    # Deltas

    def deltas(self, node: yaml.Node, name: str) -> dict[str, ApplyDelta]:
        """Read how deltas are applied."""
        found: dict[str, ApplyDelta] = {}
        for key, place, value in self._file.entries(node, name):
            self._check_class(place, name, key)
            if not is_blank(value):
                found[key] = self._delta(key, value, f"{name}.{key}")
        return found

    def _delta(self, class_name: str, node: yaml.Node, name: str) -> ApplyDelta:
        kind: type[Message] | None = None
        if isinstance(node, yaml.MappingNode):
            values = self._values(node, name, _DELTA_KEYS)
            if "apply" not in values:
                raise self._file.fault(node, f"{name}: it has no 'apply': {_REPLACE}, {_MERGE} or module:function")
            if "type" in values:
                kind = self._message(values["type"], f"{name}.type")
            node, name = values["apply"], f"{name}.apply"
        text = self._file.text(node, name)
        kind = kind or self._declared_kind(class_name)
        if text == _REPLACE and kind is None:
            return replacing
        observation = self._observation(class_name, node, name)
        if text in (_REPLACE, _MERGE) and kind not in (None, observation):
            # Otherwise a delta would be taken for an observation.
            what = f"only deltas of the type of observations can be {text}d"
            raise self._file.fault(node, f"{name}: {what}, and those of {class_name!r} are of another")
        if text == _REPLACE:
            return replacing
        if text == _MERGE:
            return merging(observation)
        return self._function(node, name, text, observation, kind or observation)

    def _function(
        self, node: yaml.Node, name: str, text: str, observation: type[Message], kind: type[Message]
    ) -> ApplyDelta:
        try:
            with _importable(self._declared.folder):
                return applying(function_named(text), observation, kind)
        except InvalidArgumentError as error:
            expected = f"{_REPLACE}, {_MERGE} or module:function"
            raise self._file.fault(node, f"{name}: expected {expected}: {error}") from None

    def _message(self, node: yaml.Node, name: str) -> type[Message]:
        try:
            return self._project.spec.message(self._file.text(node, name))
        except InvalidArgumentError as error:
            raise self._file.fault(node, f"{name}: {error}") from None

    def _observation(self, class_name: str, node: yaml.Node, name: str) -> type[Message]:
        found = self._project.spec.actor_class(class_name).observation
        if found is None:
            raise self._file.fault(node, f"{name}: the file does not declare the observations of {class_name!r}")
        return found

    def _declared_kind(self, class_name: str) -> type[Message] | None:
        delta = self._by_class[class_name].delta if class_name in self._by_class else None
        return None if delta is None else self._project.messages[self._project.full_name(delta)]

    def _declared_deltas(self) -> dict[str, ApplyDelta]:
        """Return how deltas are applied according to the classes: by a function, or because they are whole."""
        found: dict[str, ApplyDelta] = {}
        for name, declared in self._by_class.items():
            observation = self._project.spec.actor_class(name).observation
            kind = self._declared_kind(name) or observation
            assert observation is not None
            assert kind is not None
            function = declared.delta_function
            if function is not None:
                # Old files name a function as Python does: `package.module.function`.
                text = function.text if ":" in function.text else ":".join(function.text.rpartition(".")[::2])
                found[name] = self._function(function.node, function.what, text, observation, kind)
            elif kind is observation:
                found[name] = replacing
        return found

    # Other values

    def names(self, node: yaml.Node, name: str) -> dict[str, tuple[str, ...]]:
        """Read the names of actors that have none in the parameters."""
        found = {}
        for key, place, value in self._file.entries(node, name):
            self._check_class(place, name, key)
            found[key] = () if is_blank(value) else self.texts(value, f"{name}.{key}")
        return found

    def texts(self, node: yaml.Node, name: str) -> tuple[str, ...]:
        """Read a list of names."""
        found = []
        for place, item in self._file.items(node, name):
            text = self._file.text(item, place)
            if not text or text in found:
                what = "there twice" if text else "empty"
                raise self._file.fault(item, f"{place}: expected different names, {text!r} is {what}")
            found.append(text)
        return tuple(found)

    def flag(self, node: yaml.Node, name: str) -> bool:
        """Read a boolean."""
        text = self._file.text(node, name)
        if text not in ("true", "false"):
            raise self._file.fault(node, f"{name}: expected true or false, got {text!r}")
        return text == "true"

    def seconds(self, node: yaml.Node, name: str) -> float:
        """Read a duration."""
        text = self._file.text(node, name)
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not 0 <= found < math.inf:
            raise self._file.fault(node, f"{name}: expected seconds, 0 or more, got {text!r}")
        return found

    def on_agent_error(self, node: yaml.Node, name: str) -> str:
        """Read what becomes of an agent that fails."""
        text = self._file.text(node, name)
        if text not in ON_AGENT_ERROR:
            raise self._file.fault(node, f"{name}: expected {' or '.join(ON_AGENT_ERROR)}, got {text!r}")
        return text

    def server(self, node: yaml.Node, name: str) -> str:
        """Read the endpoint of an old server."""
        text = self._file.text(node, name)
        try:
            found = parse_endpoint(text)
        except EndpointError:
            found = None
        if not isinstance(found, LegacyEndpoint):
            raise self._file.fault(node, f"{name}: expected legacy://host:port, got {text!r}")
        return str(found)

    # Parameters

    def _hooks(self) -> Iterator[str]:
        """Yield the hooks of a file of the legacy API."""
        if not self._declared.is_legacy:
            return
        for key, _, node in self._file.entries(self._root["trial"], "trial") if "trial" in self._root else ():
            for name, item in self._file.items(node, "trial.pre_hooks") if key == "pre_hooks" and node.value else ():
                try:
                    yield todays_server(self._file.text(item, name), name)
                except EndpointError as error:
                    raise self._file.fault(item, str(error)) from None

    def _set_datalog(self, params: TrialParams) -> None:
        """Set the data log of a file of the legacy API, if it has one."""
        node = self._root.get("datalog")
        values = {} if node is None else {key: value for key, _, value in self._file.entries(node, "datalog")}
        if "type" not in values or self._file.text(values["type"], "datalog.type") != "grpc":
            return
        if params.datalog.endpoint:  # trial_params, as today's files have them, come first
            return
        url = values.get("url")
        if url is None:
            raise self._file.fault(node, "datalog: it has no 'url'")
        try:
            params.datalog.endpoint = todays_server(self._file.text(url, "datalog.url"), "datalog.url")
        except EndpointError as error:
            raise self._file.fault(url, str(error)) from None

    def _params(self, profile: LegacyProfile) -> TrialParams | None:
        node = self._root.get(_PARAMS)
        if node is None:
            return None
        params = read_params(self._file, node, _PARAMS, spec=self._project.spec)
        for number, actor in enumerate(params.actors):
            if actor.actor_class not in profile.classes:
                known = ", ".join(map(repr, profile.classes))
                text = f"expected an actor class ({known}), got {actor.actor_class!r}"
                raise self._file.fault(self._actor(node, number), f"{_PARAMS}.actors[{number}].actor_class: {text}")
        name_actors(params.actors, dict(profile.names))
        if self._declared.is_legacy:
            self._endpoints_of_today(params, node)
            self._set_datalog(params)
        clients = {actor.name for actor in params.actors if is_client_endpoint(actor.endpoint)}
        for name in profile.clients:
            if name not in clients:
                what = f"{SECTION}.clients: the trial_params have no client actor {name!r}"
                raise self._file.fault(self._section["clients"], what)
        return params

    def _endpoints_of_today(self, params: TrialParams, node: yaml.Node) -> None:
        try:
            params.environment.endpoint = todays_server(params.environment.endpoint, f"{_PARAMS}.environment.endpoint")
        except EndpointError as error:
            raise self._file.fault(self._within(node, "environment"), str(error)) from None
        for number, actor in enumerate(params.actors):
            try:
                actor.endpoint = todays_actor(actor.endpoint, f"{_PARAMS}.actors[{number}].endpoint")
            except EndpointError as error:
                raise self._file.fault(self._actor(node, number), str(error)) from None

    def _within(self, node: yaml.Node, key: str) -> yaml.Node:
        return next((value for name, _, value in self._file.entries(node, _PARAMS) if name == key), node)

    def _actor(self, node: yaml.Node, number: int) -> yaml.Node:
        found = self._within(node, "actors")
        return found.value[number] if isinstance(found, yaml.SequenceNode) else found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let modules beside the file be imported, as old programs could that ran in its folder."""
    text = str(folder.resolve())
    sys.path.insert(0, text)
    try:
        yield
    finally:
        sys.path.remove(text)


def _servers(reader: _Reader, node: yaml.Node, name: str) -> tuple[str, ...]:
    return tuple(reader.server(item, place) for place, item in reader._file.items(node, name))


_READERS: Mapping[str, Callable[[_Reader, yaml.Node, str], Any]] = {
    "classes": _Reader.classes,
    "deltas": _Reader.deltas,
    "clients": _Reader.texts,
    "names": _Reader.names,
    "reward_every_tick": _Reader.flag,
    "on_agent_error": _Reader.on_agent_error,
    "call_timeout_seconds": _Reader.seconds,
    "end_timeout_seconds": _Reader.seconds,
    "pre_trial_hooks": _servers,
    "datalog": _Reader.server,
}
