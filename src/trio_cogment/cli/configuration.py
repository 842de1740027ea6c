"""The file of `--config`: the values of flags, and settings that no flag has, in one YAML file.

At its top are the flags by their names, and a mapping for each class of `trio_cogment.config`, by the names in
`SECTIONS`. A flag or an environment variable wins over the file. A blank value counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import click

from trio_cogment.cli.errors import Failure
from trio_cogment.cli.options import FilePath
from trio_cogment.config import (
    DatastoreConfig,
    DirectoryConfig,
    DirectoryServerConfig,
    MetricsConfig,
    ModelRegistryConfig,
    OrchestratorConfig,
    RpcConfig,
)
from trio_cogment.errors import InvalidArgumentError

if TYPE_CHECKING:
    import yaml

    from trio_cogment.spec.yaml_file import YamlFile

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_Section = TypeVar(
    "_Section",
    OrchestratorConfig,
    RpcConfig,
    MetricsConfig,
    DirectoryConfig,
    DirectoryServerConfig,
    DatastoreConfig,
    ModelRegistryConfig,
)

SECTIONS: dict[str, type[Any]] = {
    "orchestrator": OrchestratorConfig,
    "rpc": RpcConfig,
    "metrics": MetricsConfig,
    "directory": DirectoryConfig,
    "datastore": DatastoreConfig,
    "model_registry": ModelRegistryConfig,
    "directory_server": DirectoryServerConfig,
}

#: Flags that a file cannot have.
_NOT_IN_A_FILE = frozenset({"config", "help"})
_META_KEY = "trio_cogment.configuration"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The content of the file of `--config`.

    Attributes:
        orchestrator: limits and timeouts of trials.
        rpc: limits and timeouts of all servers and channels.
        metrics: the buckets and labels of metrics.
        directory: timeouts of calls to the directory.
        datastore: limits of the trial datastore.
        model_registry: limits of the model registry.
        directory_server: rules and limits of a directory.
        flags: values of flags, by their names.
        places: where in the file each flag is, for errors.
    """

    orchestrator: OrchestratorConfig = field(default_factory=OrchestratorConfig)
    rpc: RpcConfig = field(default_factory=RpcConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    directory: DirectoryConfig = field(default_factory=DirectoryConfig)
    datastore: DatastoreConfig = field(default_factory=DatastoreConfig)
    model_registry: ModelRegistryConfig = field(default_factory=ModelRegistryConfig)
    directory_server: DirectoryServerConfig = field(default_factory=DirectoryServerConfig)
    flags: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    def overridden(self, section: str, **given: Any) -> Configuration:
        """Return a copy with the values that flags give to fields of one section; None gives nothing."""
        values = {name: value for name, value in given.items() if value is not None}
        changed: Any = replace(getattr(self, section), **values)
        return replace(self, **{section: changed})


def config_option(command: _Decorated) -> _Decorated:
    """Add `--config`, which is read before the other flags."""
    option = click.option(
        "--config",
        type=FilePath(path_type=Path),
        envvar="TRIO_COGMENT_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="YAML file with values of flags, and settings that no flag has (docs/configuration.md).",
    )
    return option(command)


def _read(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    options = [option for option in ctx.command.params if isinstance(option, click.Option) and option.name]
    flags = {str(option.name): option.multiple for option in options if option.name not in _NOT_IN_A_FILE}
    found = load_configuration(path, flags)
    ctx.meta[_META_KEY] = found
    ctx.default_map = found.flags


def configuration_of(ctx: click.Context) -> Configuration:
    """Return the content of the file of `--config`, or the defaults."""
    found = ctx.meta.get(_META_KEY)
    return found if isinstance(found, Configuration) else Configuration()


def load_configuration(path: Path, flags: Mapping[str, bool]) -> Configuration:
    """Read a file.

    Args:
        path: where it is.
        flags: the flags it may have, each with whether it can be given several times.

    Raises:
        Failure: it cannot be read, or something in it is not understood; the text names the line.
    """
    try:
        return _load(path, flags)
    except InvalidArgumentError as error:
        raise Failure(f"--config: {error}") from error


def _load(path: Path, flags: Mapping[str, bool]) -> Configuration:
    # YAML takes time to import, and few commands need it.
    from trio_cogment.spec.yaml_file import YamlFile, is_blank, line_of

    file = YamlFile(path)
    found = Configuration()
    entries = [] if file.root is None or is_blank(file.root) else file.entries(file.root, "the file")
    sections: dict[str, Any] = {}
    for key, place, node in entries:
        if key in SECTIONS:
            sections[key] = SECTIONS[key]() if is_blank(node) else _section(file, node, key, SECTIONS[key])
        elif key not in flags:
            raise file.unknown_key(place, "the file", key, [*flags, *SECTIONS])
        elif not is_blank(node):
            found.flags[key] = _flag(file, node, key, several=flags[key])
            found.places[key] = f"{path}, line {line_of(place)}"
    return Configuration(**sections, flags=found.flags, places=found.places)


def _flag(file: YamlFile, node: yaml.Node, name: str, *, several: bool) -> str | list[str]:
    import yaml

    # As text: the flag itself converts and checks it.
    if several and isinstance(node, yaml.SequenceNode):
        return [file.text(item, item_name) for item_name, item in file.items(node, name)]
    text = file.text(node, name)
    return [text] if several else text


def _section(file: YamlFile, node: yaml.Node, name: str, kind: type[_Section]) -> _Section:
    from trio_cogment.spec.yaml_file import is_blank

    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]
    values: dict[str, Any] = {}
    places: dict[str, yaml.Node] = {}
    for key, place, value in file.entries(node, name):
        if key not in known:
            raise file.unknown_key(place, name, key, known)
        if is_blank(value):
            continue
        places[key] = place
        text = file.text(value, f"{name}.{key}")
        expected, read = READERS[hints[key]]
        try:
            values[key] = read(text)
        except ValueError:
            raise file.fault(place, f"{name}.{key}: expected {expected}, got {text!r}") from None
    try:
        return kind(**values)
    except ValueError as error:
        # The message of the class itself begins with the name of the field.
        key = str(error).partition(":")[0]
        raise file.fault(places.get(key, node), f"{name}.{error}") from None


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


#: Type of a field -> what is expected, how it is read.
READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", _integer),
    int | None: ("an integer", _integer),
    float: ("a number", _number),
    bool: ("true or false", _boolean),
    str: ("a text", str),
}
