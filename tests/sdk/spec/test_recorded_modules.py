"""Generated modules, word by word, as users commit them: `recorded_modules.txt` has them.

Whoever changes what is generated writes the file anew (`python -m tests.sdk.spec.test_recorded_modules`), and reads the
difference. The messages of Python are left out: what `protoc` writes is its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.sdk.spec.projects import project
from trio_cogment.sdk.spec.generation import javascript_modules, python_modules
from trio_cogment.sdk.spec.project import Project

RECORDED = Path(__file__).with_name("recorded_modules.txt")
SPEC = """\
import:
  proto: [data.proto, common/deep/shared-types.proto, wide.proto, talk/greeter.proto]
trial: {config_type: acme.game.TrialConfig}
environment: {config_type: Plain}
actor_classes:
  - name: player
    action: {space: acme.game.Action}
    observation: {space: acme.game.Observation}
    config_type: acme.shared.Outer.Inner
  - name: smart-judge
    action: {space: acme.shared.Outer}
    observation: {space: acme.wide.Wide}
"""
BARE = """\
import: {proto: [data.proto]}
actor_classes:
  - name: player
    action: {space: acme.game.Action}
    observation: {space: acme.game.Move}
"""
WIDE = """\
syntax = "proto3";
package acme.wide;
message Wide {
  message Deep { message Deeper { bool here = 1; } Deeper deeper = 1; enum Mood { CALM = 0; WILD = 3; } Mood mood = 2; }
  enum Size { SMALL = 0; LARGE = 2; }
  map<string, Deep> by_name = 1;
  map<int64, double> numbers = 2;
  repeated Deep deep = 3;
  repeated fixed64 large = 4 [packed = false];
  oneof kind { string text = 5; Size size = 6; }
  optional sint32 maybe = 7;
  bytes raw = 8;
  Wide inner = 9;
}
"""
GREETER = """\
syntax = "proto3";
package talk;
import "data.proto";
import "common/deep/shared-types.proto";
import "google/protobuf/empty.proto";
// Greets.
service Greeter {
  // Says hello.
  rpc Greet(acme.game.Move) returns (acme.game.Action);
  rpc Count(acme.game.Move) returns (stream acme.shared.Outer.Inner);
  rpc Join(stream acme.game.Move) returns (google.protobuf.Empty);
  rpc Chat(stream google.protobuf.Empty) returns (stream acme.game.Move);
}
service Nothing {}
"""


def modules(folder: Path) -> str:
    """Return the modules of two projects, of which one has everything and the other as little as can be."""
    parts = []
    for name, spec in (("whole", SPEC), ("bare", BARE)):
        (folder / name).mkdir()
        loaded = Project(project(folder / name, spec, wide=WIDE, talk__greeter=GREETER))
        made = {
            **{f"js/{path}": text for path, text in javascript_modules(loaded).items()},
            "ts/CogSettings.ts": javascript_modules(loaded, typescript=True)["CogSettings.ts"],
            **{
                f"py/{path}": text
                for path, text in python_modules(loaded, grpc=True).items()
                if "_pb2" not in path and (path.endswith(".py") or "_grpc" in path)
            },
        }
        parts += [f"=== {name}/{path}\n{text}" for path, text in sorted(made.items())]
    return "".join(parts)


def test_the_modules_are_as_recorded(tmp_path: Path) -> None:
    assert modules(tmp_path) == RECORDED.read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        RECORDED.write_text(modules(Path(name)))
    sys.exit(0)
