"""Projects for tests: a file and its protos, in a temporary folder."""

from __future__ import annotations

from pathlib import Path

DATA = """\
syntax = "proto3";
package acme.game;
import "common/deep/shared-types.proto";
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";

message Observation {
  acme.shared.Outer.Inner inner = 1;
  google.protobuf.Timestamp seen_at = 2;
  google.protobuf.Any anything = 3;
  map<string, int32> counts = 4;
  repeated Move moves = 5;
}
message Action {
  enum Kind { WAIT = 0; None = 1; }
  Kind kind = 1;
  oneof more { string text = 2; bytes raw_data = 3; }
}
message Move { double x = 1; sint64 how_far = 2; }
message TrialConfig { uint32 rounds = 1; bool class = 2; }
"""
SHARED = """\
syntax = "proto3";
package acme.shared;
import public "common/base.proto";
message Outer { message Inner { int32 x = 1; } }
"""
BASE = """\
syntax = "proto3";
message Plain { string name = 1; }
"""
SPEC = """\
import:
  proto: [data.proto, common/deep/shared-types.proto]
trial: {config_type: acme.game.TrialConfig}
environment: {config_type: Plain}
actor_classes:
  - name: player
    action: {space: acme.game.Action}
    observation: {space: acme.game.Observation}
    config_type: acme.shared.Outer.Inner
  - name: smart-judge
    action: {space: acme.shared.Outer}
    observation: {space: acme.game.Move}
"""


def project(folder: Path, spec: str = SPEC, **protos: str) -> Path:
    """Write a project with dotted packages, nested types, folders and a public import; return its file.

    Args:
        folder: where.
        spec: the text of cogment.yaml.
        protos: further texts by path, with `__` for a slash and without `.proto`.
    """
    texts = {"data.proto": DATA, "common/deep/shared-types.proto": SHARED, "common/base.proto": BASE}
    texts.update({f"{name.replace('__', '/')}.proto": text for name, text in protos.items()})
    for path, text in {**texts, "cogment.yaml": spec}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder / "cogment.yaml"
