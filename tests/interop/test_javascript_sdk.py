"""Modules that `trio-cogment generate` writes, on the JavaScript SDK, in Node.js."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sdk.spec.projects import project
from trio_cogment.sdk.spec.generation import javascript_modules, write_files
from trio_cogment.sdk.spec.project import Project

pytestmark = pytest.mark.javascript

#: Encodes an action and decodes an observation with the types of an actor class, as the SDK's actor session does.
PROGRAM = """\
import { createRequire } from "node:module";
import { cogSettings } from "./made/CogSettings.js";
import { acme } from "./made/data_pb.js";

globalThis.window = globalThis.self = globalThis;
const cogment = createRequire(import.meta.url)("./cogment.cjs");
const context = new cogment.Context(cogSettings, "somebody");
const { player } = cogSettings.actorClasses;
const { Action, Move } = acme.game;
const action = player.actionSpace.encode(new Action({ kind: Action.Kind.None, text: "x" })).finish();
const read = player.observationSpace.decode(Buffer.from(process.argv[2], "hex"));
console.log(JSON.stringify({
  context: context instanceof cogment.Context,
  action: Buffer.from(action).toString("hex"),
  read,
  move: read.moves[0] instanceof Move,
  url: read.moves[0].constructor.getTypeUrl(),
  known: Object.keys(cogSettings.messageUrlMap),
  kind: Action.Kind[1],
  config: cogSettings.environment.config.getTypeUrl(),
}));
"""
TYPED = """\
import { cogSettings } from "./made/CogSettings";
import { acme } from "./made/data_pb";

const action: acme.game.Action = acme.game.Action.create({ kind: acme.game.Action.Kind.WAIT });
const name: string = cogSettings.actorClasses.player.name;
const moves = cogSettings.actorClasses.player.observationSpace.decode(new Uint8Array()).moves;
console.log(action.rawData, name, moves.map((move) => move.howFar));
"""


@pytest.fixture(scope="module")
def installed() -> Path:
    folder = os.environ.get("TRIO_COGMENT_JAVASCRIPT")
    if folder is None:
        pytest.fail("TRIO_COGMENT_JAVASCRIPT is not set; `nox -s javascript` makes that folder and sets it")
    return Path(folder)


@pytest.fixture
def loaded(tmp_path: Path) -> Project:
    return Project(project(tmp_path / "project"))


@pytest.fixture
def folder(tmp_path: Path, installed: Path) -> Path:
    (tmp_path / "node_modules").symlink_to(installed / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(installed / "package" / "dist" / "cogment.js", tmp_path / "cogment.cjs")
    return tmp_path


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def test_settings_in_node(folder: Path, loaded: Project) -> None:
    write_files(folder / "made", javascript_modules(loaded))
    (folder / "program.js").write_text(PROGRAM)
    game = {name: loaded.spec.message(f"acme.game.{name}") for name in ("Observation", "Action")}
    seen = game["Observation"](
        inner={"x": 3}, seen_at={"seconds": 5}, counts={"a": 1}, moves=[{"x": 1.5, "how_far": -(2**60)}]
    )
    found = json.loads(run(folder, "node", "program.js", seen.SerializeToString().hex()))
    assert game["Action"].FromString(bytes.fromhex(found.pop("action"))) == game["Action"](kind=1, text="x")
    assert found == {
        "context": True,
        "read": {
            "inner": {"x": 3},
            "seenAt": {"seconds": "5"},
            "counts": {"a": 1},
            "moves": [{"x": 1.5, "howFar": str(-(2**60))}],
        },
        "move": True,
        "url": "type.googleapis.com/acme.game.Move",
        "known": [f"type.googleapis.com/{name}" for name in loaded.messages],
        "kind": "None",
        "config": "type.googleapis.com/Plain",
    }


def test_packages_and_messages_with_names_of_the_language(folder: Path, tmp_path: Path) -> None:
    bare = 'syntax = "proto3"; message Map { int32 x = 1; } message protobuf { Map map = 1; }'
    inside = 'syntax = "proto3"; package function.new; message Action { int32 x = 1; }'
    spec = """\
import: {proto: [bare.proto, inside.proto]}
actor_classes: [{name: delete, observation: {space: protobuf}, action: {space: function.new.Action}}]
"""
    write_files(
        folder / "made", javascript_modules(Project(project(tmp_path / "names", spec, bare=bare, inside=inside)))
    )
    (folder / "names.js").write_text(
        'import * as found from "./made/bare_pb.js";\n'
        'import { cogSettings } from "./made/CogSettings.js";\n'
        "const { actionSpace, observationSpace } = cogSettings.actorClasses.delete;\n"
        "console.log(actionSpace.create({ x: 3 }) instanceof found.function.new.Action);\n"
        "console.log(observationSpace.fromObject({ map: { x: 3 } }).map instanceof found.Map);\n"
    )
    assert run(folder, "node", "names.js") == "true\ntrue\n"


@pytest.mark.parametrize("typescript", [False, True])
def test_types_in_typescript(folder: Path, loaded: Project, typescript: bool) -> None:
    write_files(folder / "made", javascript_modules(loaded, typescript=typescript))
    (folder / "program.ts").write_text(TYPED)
    (folder / "wrong.ts").write_text(TYPED.replace("move.howFar", "move.tooFar"))
    flags = ["--strict", "--noEmit", "--target", "es2020", "--module", "esnext", "--moduleResolution", "bundler"]
    # Both at once: most of the time goes into the types of the language itself.
    tsc = ["node", "node_modules/typescript/bin/tsc", *flags, "program.ts", "wrong.ts"]
    done = subprocess.run(tsc, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    [error] = done.stdout.splitlines()
    assert re.match(r"wrong\.ts\(\d+,\d+\): error TS2339: Property 'tooFar' does not exist on type", error)
