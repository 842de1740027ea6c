"""A project with a field of every kind in its configurations."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from trio_cogment.sdk.spec import Spec, load_spec

SPEC_FILE = """
import: {proto: [data.proto]}
environment: {config_type: shop.EnvironmentConfig}
trial: {config_type: shop.TrialConfig}
actor_classes:
  - {name: clerk, observation: {space: shop.Seen}, action: {space: shop.Done}, config_type: shop.ActorConfig}
  - {name: buyer, observation: {space: shop.Seen}, action: {space: shop.Done}}
"""
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/any.proto";
enum Mood { CALM = 0; BUSY = 1; WILD = 5; }
message Level { int32 size = 1; repeated float weights = 2; Level inner = 3; }
message EnvironmentConfig {
  sint64 seed = 1;
  uint32 stock = 2;
  double price = 3;
  float rate = 4;
  bool open = 5;
  string name = 6;
  bytes picture = 7;
  Mood mood = 8;
  Level level = 9;
  repeated int64 sizes = 10;
  repeated string names = 11;
  map<string, double> prices = 12;
  map<string, Level> levels = 13;
  map<int32, string> numbered = 14;
  google.protobuf.Struct anything = 15;
  google.protobuf.Int64Value wrapped = 16;
  repeated Level several = 17;
  google.protobuf.Any whatever = 18;
  oneof kind { int32 small = 19; string large = 20; }
  optional int32 maybe = 21;
  uint64 huge = 22;
}
message TrialConfig { string label = 1; }
message ActorConfig { int32 speed = 1; Level level = 2; }
message Seen { int32 what = 1; }
message Done { int32 what = 1; }
"""


@functools.cache
def shop() -> Spec:
    """Return the types of the project."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cogment.yaml").write_text(SPEC_FILE)
        Path(folder, "data.proto").write_text(PROTO)
        return load_spec(folder)
