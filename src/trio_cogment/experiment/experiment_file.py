"""Experiment files: YAML that becomes an `Experiment`; each error names the file, the line and the key.

A page is a mapping with one of `text`, `consent` and `questions`, which says its kind; `file` beside it is a Markdown
file for its text. Lists of ids may be lists, or the path of a file with one on each line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import yaml

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.suggestions import suggestion
from trio_cogment.experiment.definition import (
    Changes,
    Condition,
    Dropout,
    End,
    Experiment,
    PagePlan,
    PartError,
    People,
    Question,
    TrialPlan,
    Waiting,
)
from trio_cogment.experiment.texts import PICTURE_TYPES, Picture, pictures_in
from trio_cogment.sdk.spec.yaml_file import YamlFile, described, is_blank

_Made = TypeVar("_Made")

_TOP = (
    *("name", "title", "participants", "before", "waiting", "conditions", "assignment", "seed", "dropout", "trials"),
    *("after", "ends", "page_seconds", "after_restart"),
)
_PEOPLE = ("id", "allow", "keep_out", "parameters")
_PAGE = (*("name", "title", "text", "consent", "questions", "file", "seconds", "attempts", "failed", "conditions"),)
_QUESTION = ("name", "ask", "kind", "options", "low", "high", "labels", "integer", "required", "correct")
_WAITING = ("size", "seconds", "way_out_seconds", "shortage", "groups")
_DROPOUT = ("then", "grace_seconds", "tell", "default", "bot", "least", "meanwhile")
_TRIAL = (
    *("name", "environment", "arguments", "people", "bots", "roles", "pages", "title", "text", "labels"),
    *("action_seconds", "end_seconds", "tick_hz", "observe_every", "hold_action", "page", "show", "talk"),
    "agents_argument",
)
_CHANGES = ("arguments", "bots")
_CONDITION = (*_CHANGES, "trials")
_END = ("text", "code", "redirect")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")
_MAX_FILE_BYTES = 4 * 2**20
_MAX_PICTURES_BYTES = 32 * 2**20


def load_experiment(path: str | Path) -> Experiment:
    """Read an experiment from a file. It blocks the thread.

    Args:
        path: the file. Other files that it names are looked for beside it.

    Raises:
        InvalidArgumentError: a file cannot be read, is not YAML, or has an unknown key or an invalid value; the text
            names the file, the line and the key.
    """
    return _Reader(YamlFile(path)).experiment()


class _Reader:
    """Reads one file."""

    def __init__(self, file: YamlFile) -> None:
        self._file = file
        self._folder = Path(file.path).parent
        self._pictures: dict[str, Picture] = {}
        self._nodes: dict[int, yaml.Node] = {}  # of what was made, by its id

    def experiment(self) -> Experiment:
        """Return what the file says."""
        values = self._file.values(self._file.root, "the file", _TOP)
        given: dict[str, Any] = self._texts(values, ("name", "title", "assignment", "after_restart"))
        if "name" not in given:
            stem = Path(self._file.path).stem.lower()
            given["name"] = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem)
        given.setdefault("title", given["name"])
        given |= self._numbers(values, ("seed",), whole=True) | self._numbers(values, ("page_seconds",))
        for key, read in (
            ("participants", self._people),
            ("waiting", self._waiting),
            ("dropout", self._dropout),
            ("ends", self._ends),
        ):
            if key in values:
                given[key] = read(values[key], key)
        for key in ("before", "after"):
            if key in values:
                given[key] = self._pages(values[key], key)
        if "trials" in values:
            size = given["waiting"].size if "waiting" in given else 1
            given["trials"] = [
                self._trial(node, name, f"trial-{number}", size)
                for number, (name, node) in enumerate(self._file.items(values["trials"], "trials"), 1)
            ]
        if "conditions" in values:
            trials = [trial.name for trial in given.get("trials", ())]
            given["conditions"] = self._conditions(values["conditions"], "conditions", trials)
        given["pictures"] = self._pictures
        parts: dict[str, object] = {each.name: each for each in given.get("trials", ())}
        if "dropout" in given:
            parts[""] = given["dropout"]
        given["places"] = {name: self._file.place(self._nodes.get(id(part))) for name, part in parts.items()}
        return self._made(Experiment, self._file.root, "", given)

    def _made(self, make: Callable[..., _Made], node: yaml.Node | None, name: str, given: dict[str, Any]) -> _Made:
        try:
            made = make(**given)
        except InvalidArgumentError as error:
            if isinstance(error, PartError):
                node = self._nodes.get(id(error.part), node)
            raise self._file.fault(node, f"{name}: {error}" if name else str(error)) from None
        if node is not None:
            self._nodes[id(made)] = node
        return made

    # Scalars

    def _texts(self, values: dict[str, yaml.Node], keys: Iterable[str], within: str = "") -> dict[str, str]:
        return {key: self._file.text(values[key], within + key) for key in keys if key in values}

    def _numbers(
        self, values: dict[str, yaml.Node], keys: Iterable[str], within: str = "", *, whole: bool = False
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in keys:
            if key in values:
                text = self._file.text(values[key], within + key)
                try:
                    found[key] = int(text) if whole else float(text)
                except ValueError:
                    what = "a whole number" if whole else "a number"
                    raise self._file.fault(values[key], f"{within}{key}: expected {what}; got {text!r}") from None
                if not math.isfinite(found[key]):
                    raise self._file.fault(values[key], f"{within}{key}: expected a number; got {text!r}")
        return found

    def _switches(self, values: dict[str, yaml.Node], keys: Iterable[str], within: str) -> dict[str, bool]:
        found = {}
        for key in keys:
            if key in values:
                text = self._file.text(values[key], within + key)
                if text.lower() not in (*_TRUE, *_FALSE):
                    raise self._file.fault(values[key], f"{within}{key}: expected true or false; got {text!r}")
                found[key] = text.lower() in _TRUE
        return found

    def _list(self, values: dict[str, yaml.Node], key: str, within: str = "") -> dict[str, list[str]]:
        if key not in values:
            return {}
        return {key: [self._file.text(node, name) for name, node in self._file.items(values[key], within + key)]}

    def _value(self, node: yaml.Node, name: str) -> Any:
        """Return any value, as JSON would have it: what is in quotes is a text."""
        if isinstance(node, yaml.MappingNode):
            return {key: self._value(value, f"{name}.{key}") for key, _, value in self._file.entries(node, name)}
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, where) for where, item in self._file.items(node, name)]
        text = self._file.text(node, name)
        if isinstance(node, yaml.ScalarNode) and node.style is not None:
            return text
        if is_blank(node):
            return None
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return value if isinstance(value, int | float) and math.isfinite(value) else text

    def _mapping(self, values: dict[str, yaml.Node], key: str, within: str) -> dict[str, Any]:
        if key not in values:
            return {}
        if not isinstance(values[key], yaml.MappingNode):
            raise self._file.fault(values[key], f"{within}{key}: expected a mapping, got {described(values[key])}")
        return {key: self._value(values[key], within + key)}

    def _content(self, node: yaml.Node, name: str) -> bytes:
        """Return the content of a file that is named."""
        try:
            return _read(self._folder / self._file.text(node, name))
        except InvalidArgumentError as error:
            raise self._file.fault(node, f"{name}: {error}") from None

    def _text_file(self, node: yaml.Node, name: str) -> str:
        try:
            return self._content(node, name).decode("utf-8-sig")  # some editors put a byte order mark before a text
        except UnicodeDecodeError:
            raise self._file.fault(node, f"{name}: expected a text in UTF-8") from None

    def _markdown(self, node: yaml.Node, name: str, *, in_file: bool = False) -> str:
        """Return Markdown that is a value, or in the file that it names, and have its pictures."""
        value = self._file.text(node, name)
        text = self._text_file(node, name) if in_file else value
        for address, line in pictures_in(text):
            try:
                self._picture(address)
            except InvalidArgumentError as error:
                where = f"{name}: {value}, line {line + 1}" if in_file else name
                raise self._file.fault(node, f"{where}: picture {unquote(address)!r}: {error}") from None
        return text

    def _picture(self, address: str) -> None:
        """Read a picture of a text.

        Raises:
            InvalidArgumentError: pages could not show it.
        """
        if address in self._pictures or address.startswith("data:"):
            return
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            raise InvalidArgumentError("pages load nothing from other servers; expected a file beside this one")
        if address.startswith("/"):
            return  # of this server, or of a proxy in front of it
        path = self._folder / unquote(parts.path)
        kind = path.suffix[1:].lower()
        if kind not in PICTURE_TYPES:
            raise InvalidArgumentError(f"expected one of the kinds {', '.join(PICTURE_TYPES)}")
        content = _read(path)
        if sum(len(each.content) for each in self._pictures.values()) + len(content) > _MAX_PICTURES_BYTES:
            raise InvalidArgumentError(f"expected {_MAX_PICTURES_BYTES // 2**20} MiB of pictures at most in all")
        self._pictures[address] = Picture(kind, content)

    # Sections

    def _people(self, node: yaml.Node, name: str) -> People:
        values = self._file.values(node, name, _PEOPLE)
        within = f"{name}."
        given: dict[str, Any] = self._texts(values, ("id",), within)
        for key in ("allow", "keep_out"):
            if key in values:
                given[key] = frozenset(self._ids(values[key], within + key))
        if "parameters" in values:
            all_of_them = isinstance(values["parameters"], yaml.ScalarNode) and values["parameters"].value == "all"
            if not all_of_them:
                given["parameters"] = frozenset(self._list(values, "parameters", within)["parameters"])
        return self._made(People, node, "", given)

    def _ids(self, node: yaml.Node, name: str) -> list[str]:
        if isinstance(node, yaml.SequenceNode):
            found = [self._file.text(each, where) for where, each in self._file.items(node, name)]
        else:
            found = [line.strip() for line in self._text_file(node, name).splitlines() if line.strip()]
        for each in found:
            if len(each) > 128 or not each.isprintable():
                raise self._file.fault(node, f"{name}: expected ids of 128 printable characters at most; got {each!r}")
        return found

    def _pages(self, node: yaml.Node, name: str) -> list[PagePlan]:
        prefix = name.replace("[", "-").replace("]", "").replace(".", "-")
        return [
            self._page(item, where, f"{prefix}-{number}")
            for number, (where, item) in enumerate(self._file.items(node, name), 1)
        ]

    def _page(self, node: yaml.Node, name: str, by_default: str) -> PagePlan:
        values = self._file.values(node, name, _PAGE)
        within = f"{name}."
        given: dict[str, Any] = {"name": by_default}
        given |= self._texts(values, ("name", "title", "failed"), within)
        if "text" in values:
            given["text"] = self._markdown(values["text"], within + "text")
        if "consent" in values:
            if "text" in values or "questions" in values:
                raise self._file.fault(
                    node, f"{name}: expected one of text, consent and questions (which may have a text)"
                )
            given["kind"] = "consent"
            given["text"] = self._markdown(values["consent"], within + "consent")
        if "questions" in values:
            given["kind"] = "questions"
            given["questions"] = [
                self._question(item, where)
                for where, item in self._file.items(values["questions"], within + "questions")
            ]
        if "file" in values:
            if "text" in values:
                raise self._file.fault(node, f"{name}: expected text or file, got both")
            given["text"] = self._markdown(values["file"], within + "file", in_file=True)
        given |= self._numbers(values, ("seconds",), within) | self._numbers(values, ("attempts",), within, whole=True)
        given |= self._list(values, "conditions", within)
        return self._made(PagePlan, node, name, given)

    def _question(self, node: yaml.Node, name: str) -> Question:
        values = self._file.values(node, name, _QUESTION)
        within = f"{name}."
        for key in ("name", "ask"):
            if key not in values:
                raise self._file.fault(node, f"{within}{key}: expected a text")
        given: dict[str, Any] = self._texts(values, ("name", "ask", "kind"), within)
        given |= self._list(values, "options", within) | self._list(values, "labels", within)
        given |= self._numbers(values, ("low", "high"), within)
        given |= self._switches(values, ("integer", "required"), within)
        if "correct" in values:
            given["correct"] = self._correct(values["correct"], within + "correct", given.get("kind", "text"))
        return self._made(Question, node, name, given)

    def _correct(self, node: yaml.Node, name: str, kind: str) -> Any:
        """Return the right answer, read as the kind of question wants it: an option `2` is a text."""
        if kind == "choices":
            return [self._file.text(each, where) for where, each in self._file.items(node, name)]
        if kind == "yes_no":
            return self._switches({"correct": node}, ["correct"], name.removesuffix("correct"))["correct"]
        if kind in ("number", "scale"):
            return self._numbers({"correct": node}, ["correct"], name.removesuffix("correct"))["correct"]
        return self._file.text(node, name)

    def _waiting(self, node: yaml.Node, name: str) -> Waiting:
        values = self._file.values(node, name, _WAITING)
        within = f"{name}."
        given: dict[str, Any] = self._numbers(values, ("size", "groups"), within, whole=True)
        given |= self._numbers(values, ("seconds", "way_out_seconds"), within)
        given |= self._texts(values, ("shortage",), within)
        return self._made(Waiting, node, "", given)

    def _dropout(self, node: yaml.Node, name: str) -> Dropout:
        values = self._file.values(node, name, _DROPOUT)
        within = f"{name}."
        given: dict[str, Any] = self._texts(values, ("then", "bot", "meanwhile"), within)
        given |= self._numbers(values, ("grace_seconds",), within) | self._switches(values, ("tell",), within)
        given |= self._numbers(values, ("least",), within, whole=True)
        if "default" in values:
            given["default"] = self._value(values["default"], within + "default")
        return self._made(Dropout, node, "", given)

    def _conditions(self, node: yaml.Node, name: str, trials: Sequence[str]) -> Sequence[Condition]:
        found = []
        for key, _, value in self._file.entries(node, name):
            values = self._file.values(value, f"{name}.{key}", _CONDITION)
            within = f"{name}.{key}."
            given: dict[str, Any] = {"name": key, **self._changes(values, within)}
            if "trials" in values:
                given["trials"] = self._changes_by_trial(values["trials"], f"{within}trials", trials)
            found.append(self._made(Condition, value, "", given))
        return found

    def _changes_by_trial(self, node: yaml.Node, name: str, trials: Sequence[str]) -> dict[str, Changes]:
        found = {}
        for trial, key_node, value in self._file.entries(node, name):
            if trials and trial not in trials:
                raise self._file.fault(key_node, f"{name}: unknown {trial!r}; {suggestion(trial, trials)}")
            changes = self._changes(self._file.values(value, f"{name}.{trial}", _CHANGES), f"{name}.{trial}.")
            found[trial] = Changes(**changes)
        return found

    def _changes(self, values: dict[str, yaml.Node], within: str) -> dict[str, Any]:
        return {**self._mapping(values, "arguments", within), **self._bots(values, within)}

    def _bots(self, values: dict[str, yaml.Node], within: str) -> dict[str, dict[str, str]]:
        if "bots" not in values:
            return {}
        entries = self._file.entries(values["bots"], f"{within}bots")
        return {"bots": {key: self._file.text(value, f"{within}bots.{key}") for key, _, value in entries}}

    def _trial(self, node: yaml.Node, name: str, by_default: str, size: int) -> TrialPlan:
        values = self._file.values(node, name, _TRIAL)
        within = f"{name}."
        if "environment" not in values:
            raise self._file.fault(node, f"{within}environment: expected an id, or MODULE:FUNCTION")
        given: dict[str, Any] = {"name": by_default}
        given |= self._texts(values, ("name", "environment", "roles", "title", "agents_argument"), within)
        if "text" in values:
            given["text"] = self._markdown(values["text"], within + "text")
        given |= self._mapping(values, "arguments", within) | self._bots(values, within)
        for key in ("people", "labels", "show"):
            given |= self._list(values, key, within)
        given |= self._numbers(values, ("action_seconds", "end_seconds", "tick_hz"), within)
        given |= self._numbers(values, ("observe_every",), within, whole=True)
        given |= self._switches(values, ("talk", "hold_action"), within)
        if "pages" in values:
            given["pages"] = self._pages(values["pages"], f"{within}pages")
        if "page" in values:
            given["renderer"] = self._content(values["page"], within + "page")
        if "people" in given and len(given["people"]) != size:
            raise self._file.fault(
                values["people"], f"{within}people: expected {size}, as many as a group has (waiting.size)"
            )
        return self._made(TrialPlan, node, "", given)

    def _ends(self, node: yaml.Node, name: str) -> dict[str, End]:
        found = {}
        for key, place, value in self._file.entries(node, name):
            values = self._file.values(value, f"{name}.{key}", _END)
            given = self._texts(values, ("code", "redirect"), f"{name}.{key}.")
            if "text" in values:
                given["text"] = self._markdown(values["text"], f"{name}.{key}.text")
            found[key] = self._made(End, value, f"{name}.{key}", given)
            self._nodes[id(found[key])] = place
        return found


def _read(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        InvalidArgumentError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise InvalidArgumentError(f"{path}: larger than {_MAX_FILE_BYTES // 2**20} MiB")
    return content
