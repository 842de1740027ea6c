"""The file of `--config`, as the commands see it: values of flags, and settings that no flag has.

A flag or an environment variable wins over the file, which `configuration_file` reads. A setting declares its flag, if
it has one: `setting_options` adds it to a command, and `configuration_of` has its value. What a command does not ask
for is not made, since the classes of the settings take a while to import.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trio_cogment.base.records import record
from trio_cogment.cli.options import as_list

if TYPE_CHECKING:
    from trio_cogment.base.config import (
        DatastoreConfig,
        DirectoryConfig,
        DirectoryServerConfig,
        DmEnvRpcConfig,
        MetricsConfig,
        ModelRegistryConfig,
        OpenEnvConfig,
        OrchestratorConfig,
        OutgoingConfig,
        PlayConfig,
        RpcConfig,
        TracingConfig,
        TrainerConfig,
        WebConfig,
        WebProxyConfig,
        WorkersConfig,
    )
    from trio_cogment.base.config.declarations import Setting

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

META_KEY = "trio_cogment.configuration"


class _Sections:
    """The sections of the file, each with its class in `trio_cogment.base.config`."""

    __slots__ = ()

    orchestrator: OrchestratorConfig
    rpc: RpcConfig
    metrics: MetricsConfig
    tracing: TracingConfig
    directory: DirectoryConfig
    datastore: DatastoreConfig
    model_registry: ModelRegistryConfig
    directory_server: DirectoryServerConfig
    outgoing: OutgoingConfig
    openenv: OpenEnvConfig
    dm_env_rpc: DmEnvRpcConfig
    trainer: TrainerConfig
    workers: WorkersConfig
    play: PlayConfig
    web: WebConfig
    web_proxy: WebProxyConfig


#: Section of the file -> the name of its class.
SECTIONS: Mapping[str, str] = _Sections.__annotations__


def section_class(name: str) -> type[Any]:
    """Return the class of a section."""
    found: type[Any] = getattr(importlib.import_module("trio_cogment.base.config"), SECTIONS[name])
    return found


@record(kw_only=True)
class Configuration(_Sections):
    """The content of the file of `--config`, and what flags change in it. Each section is an attribute.

    Attributes:
        sections: those that the file has.
        changes: for each section, the values of fields that flags give.
        flags: values of flags, by their names.
        places: where in the file each flag is, for errors.
    """

    sections: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    if not TYPE_CHECKING:  # else type checkers would find a section in every name

        def __getattr__(self, name: str) -> Any:
            if name not in SECTIONS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            found = self.sections[name] if name in self.sections else section_class(name)()
            return replace(found, **self.changes.get(name, {}))

    def overridden(self, section: str, **given: Any) -> Configuration:
        """Return a copy with the values that flags give to fields of one section; None gives nothing."""
        values = {name: value for name, value in given.items() if value is not None}
        return replace(self, changes={**self.changes, section: {**self.changes.get(section, {}), **values}})


def configuration_of(ctx: click.Context) -> Configuration:
    """Return the content of the file of `--config`, or the defaults, with what flags of settings say."""
    found = ctx.meta.get(META_KEY)
    found = found if isinstance(found, Configuration) else Configuration()
    for option in ctx.command.params:
        if isinstance(option, _SettingOption):
            found = found.overridden(option.section, **{option.key: ctx.params.get(str(option.name))})
    return found


# Flags of settings


def setting_options(*names: str) -> Callable[[_Decorated], _Decorated]:
    """Return a decorator that adds the flags of settings.

    Args:
        names: of the settings, `section.key`; the first is the first in the help.
    """

    def decorate(command: _Decorated) -> _Decorated:
        for name in reversed(names):
            section, _, key = name.partition(".")
            command = _option(section, key)(command)
        return command

    return decorate


def _option(section: str, key: str) -> Callable[[_Decorated], _Decorated]:
    declared = next(each for each in fields(section_class(section)) if each.name == key)
    setting: Setting = declared.metadata["setting"]
    flag, default = setting.flag, declared.default
    assert flag is not None, f"{section}.{key}: expected the declaration of a flag"
    text = flag.text or f"{setting.text[0].upper()}{setting.text[1:]}."
    details: dict[str, Any] = {"metavar": flag.metavar or "NUMBER"}
    if flag.choices is not None:
        details = {"type": click.Choice(list(flag.choices))}
        default = next(word for word, value in flag.choices.items() if value == default)
    elif isinstance(default, bool):
        details = {"type": click.BOOL, "is_flag": False, "flag_value": "true", "metavar": "BOOLEAN"}
        default = str(default).lower()
    elif isinstance(default, tuple):
        details |= {"multiple": True}
        text += " Separated by commas (blanks in the environment); repeatable."
    if default is not None and default != () and not flag.text:
        text += f" The default is {default}."
    return click.option(
        flag.name,
        cls=_SettingOption,
        section=section,
        key=key,
        default=None,
        callback=_SettingOption.checked,
        envvar=flag.variable or None,
        show_envvar=True,
        help=text.replace("`", ""),
        **details,
    )


class _SettingOption(click.Option):
    """A flag that is a setting; its value is None unless it is given."""

    def __init__(self, *args: Any, section: str, key: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.section = section
        self.key = key

    @staticmethod
    def checked(ctx: click.Context, option: click.Parameter, given: Any) -> Any:
        """Return the value of the setting, as its class takes it."""
        assert isinstance(option, _SettingOption)
        return option._checked(ctx, given)

    def _checked(self, ctx: click.Context, given: str | bool | Sequence[str] | None) -> Any:
        if given is None or given == ():
            return None
        kind = section_class(self.section)
        declared = next(each for each in fields(kind) if each.name == self.key)
        flag = declared.metadata["setting"].flag
        value: Any = given
        if flag.choices is not None:
            value = flag.choices[given]
        elif self.multiple and not isinstance(given, str | bool):
            value = tuple(as_list(ctx, self, given)) or None
        elif isinstance(given, str):
            expected, read = READERS[str(declared.type)]
            try:
                value = read(given)
            except ValueError:
                raise click.BadParameter(f"expected {expected}, got {given!r}") from None
        if value is not None:
            try:
                kind(**{self.key: value})
            except ValueError as error:
                # The message of the class itself begins with the name of the field.
                raise click.BadParameter(str(error).partition(": ")[2]) from None
        return value


# Values of settings

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


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


def _texts(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


#: Type of a setting, as its class has it -> what is expected, how it is read.
READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "int": ("an integer", _integer),
    "int | None": ("an integer", _integer),
    "float": ("a number", _number),
    "bool": ("true or false", _boolean),
    "str": ("a text", str),
    "tuple[str, ...]": ("texts, separated by commas", _texts),
}
