"""A launch file with everything filled in: which scripts there are, what each runs, where, and in which order."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.cli.launching._expressions import compiled
from trio_cogment.cli.launching._file import LaunchFile, ScriptSource, Value, read_launch_file
from trio_cogment.cli.launching.template import TemplateError

#: An argument that is this and nothing else becomes all arguments of the launcher, each of its own.
_ALL_ARGUMENTS = "{{.__ALL_ARGS}}"
#: The first arguments are always there for templates, empty if they were not given.
_NUMBERED = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script that can be run.

    Attributes:
        name: as in the file.
        folder: where its commands run.
        environment: all variables of its commands.
        commands: the arguments of each, the program first; may be empty, if templates have made nothing of them.
        depends_on: the names of the scripts that have to be ready before it starts.
        ready_output: the script is ready when it has written a line in which this is found; None: at once.
        quiet: its output is not shown.
    """

    name: str
    folder: Path
    environment: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]
    depends_on: tuple[str, ...] = ()
    ready_output: re.Pattern[str] | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is launched.

    Attributes:
        scripts: in the order of the file; one at least.
        warnings: what looks like a mistake in the file.
    """

    scripts: tuple[Script, ...]
    warnings: tuple[str, ...] = ()


def load_plan(path: str | Path, arguments: Sequence[str], environment: Mapping[str, str]) -> Plan:
    """Read a launch file and fill in its templates.

    Args:
        path: the file, or the folder that has it.
        arguments: those of the launcher, which the file finds as `{{.__1}}` and so on.
        environment: the launcher's own variables.

    Raises:
        InvalidArgumentError: something is wrong with the file; the text names the line and what was expected.
    """
    return _Planner(read_launch_file(Path(path)), arguments, environment).plan()


class _Planner:
    def __init__(self, file: LaunchFile, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self._file = file
        self._arguments = tuple(arguments)
        self._special = _special_variables(arguments)
        self._warnings = list(file.warnings)
        self._base = file.path.absolute().parent
        self._environment = self._extended(environment, file.environment)

    def plan(self) -> Plan:
        scripts = tuple(map(self._script, self._file.scripts))
        try:
            graphlib.TopologicalSorter({script.name: script.depends_on for script in scripts}).prepare()
        except graphlib.CycleError as error:
            circle = " -> ".join(reversed(error.args[1]))
            raise InvalidArgumentError(
                f"{self._file.path}: depends_on: scripts wait for each other: {circle}"
            ) from None
        return Plan(scripts, tuple(dict.fromkeys(self._warnings)))

    def _script(self, source: ScriptSource) -> Script:
        environment = self._extended(self._environment, source.environment)
        commands = (self._command(command, environment) for command in source.commands)
        return Script(
            name=source.name,
            folder=self._base / self._file.folder / source.folder,
            environment=environment,
            commands=tuple(command for command in commands if command),
            depends_on=source.depends_on,
            ready_output=None if source.ready_output is None else self._ready(source.ready_output, environment),
            quiet=source.quiet,
        )

    def _extended(self, environment: Mapping[str, str], more: Mapping[str, Value]) -> dict[str, str]:
        """Return variables with some more, each of which may use those before it."""
        found = dict(environment)
        for name, value in more.items():
            found[name] = self._rendered(value, found)
        return found

    def _command(self, values: Sequence[Value], environment: Mapping[str, str]) -> tuple[str, ...]:
        found: list[str] = []
        for value in values:
            if value.template.source == _ALL_ARGUMENTS:
                found += self._arguments
            else:
                found.append(self._rendered(value, environment))
        # An argument that was not given at the end is none at all.
        while found and not found[-1]:
            found.pop()
        return tuple(found)

    def _ready(self, value: Value, environment: Mapping[str, str]) -> re.Pattern[str] | None:
        text = self._rendered(value, environment)
        if not text:
            return None
        try:
            return compiled(text)
        except ValueError as error:
            raise value.fault(f"expected a regular expression, got {text!r}: {error}") from error

    def _rendered(self, value: Value, environment: Mapping[str, str]) -> str:
        missing: set[str] = set()
        try:
            text = value.template.render({**environment, **self._special}, missing)
        except TemplateError as error:
            raise value.fault(str(error)) from error
        if "\0" in text:
            raise value.fault("a process cannot be given the character NUL")
        for name in sorted(missing):
            self._warnings.append(
                f"{value.where}: {value.name}: there is no variable {name!r}; it is written <no value>"
            )
        return text


def _special_variables(arguments: Sequence[str]) -> dict[str, str]:
    numbered = {f"__{number}": "" for number in range(1, _NUMBERED + 1)}
    numbered |= {f"__{number}": argument for number, argument in enumerate(arguments, 1)}
    return {**numbered, "__NB_ARGS": str(len(arguments)), "__ALL_ARGS": " ".join(arguments)}
