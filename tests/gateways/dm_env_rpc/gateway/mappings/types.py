"""Messages with a field of every kind."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from trio_cogment.sdk.spec import Spec, load_spec

SPEC_FILE = """
import: {proto: [kinds.proto]}
actor_classes:
  - {name: all, observation: {space: kinds.All}, action: {space: kinds.All}}
  - {name: chooser, observation: {space: kinds.Choice}, action: {space: kinds.Choice}}
  - {name: thinker, observation: {space: kinds.Optional}, action: {space: kinds.Optional}}
  - {name: lab, observation: {space: kinds.LabObservation}, action: {space: kinds.LabAction}}
  - {name: clash, observation: {space: kinds.Clash}, action: {space: kinds.Choice}}
"""
PROTO = """
syntax = "proto3";
package kinds;
import "google/protobuf/any.proto";
enum Mood { CALM = 0; BUSY = 1; WILD = 2; }
enum Gap { NONE = 0; LOW = 3; HIGH = -7; }
message Point { float x = 1; float y = 2; }
message Tree { int32 value = 1; Tree left = 2; repeated Tree more = 3; }
message Nothing {}
message All {
  double a_double = 1;
  float a_float = 2;
  int32 an_int32 = 3;
  sint32 a_sint32 = 4;
  sfixed32 an_sfixed32 = 5;
  uint32 a_uint32 = 6;
  fixed32 a_fixed32 = 7;
  int64 an_int64 = 8;
  sint64 a_sint64 = 9;
  sfixed64 an_sfixed64 = 10;
  uint64 a_uint64 = 11;
  fixed64 a_fixed64 = 12;
  bool a_bool = 13;
  string a_string = 14;
  bytes some_bytes = 15;
  Mood mood = 16;
  Gap gap = 17;
  repeated double doubles = 18;
  repeated sint64 longs = 19;
  repeated bool bools = 20;
  repeated string strings = 21;
  repeated Mood moods = 22;
  repeated Gap gaps = 23;
  Point point = 24;
  repeated Point points = 25;
  map<string, float> prices = 26;
  map<int32, Point> places = 27;
  google.protobuf.Any whatever = 28;
  repeated google.protobuf.Any several = 29;
  Tree tree = 30;
  repeated bytes parts = 31;
}
message Choice {
  oneof choice { int32 number = 1; Point point = 2; Nothing pass = 3; }
  int32 beside = 4;
}
message Optional { optional int32 maybe = 1; Point point = 2; Nothing nothing = 3; int32 always = 4; }
enum DType { DTYPE_UNKNOWN = 0; DTYPE_FLOAT32 = 1; DTYPE_FLOAT64 = 2; DTYPE_INT8 = 3; DTYPE_INT32 = 4; }
message Array { DType dtype = 1; repeated uint32 shape = 2; bytes raw_data = 3; bytes npy_data = 4; }
message LabObservation { Array value = 1; bool active = 2; bool alive = 3; optional bytes rendered_frame = 4; }
message LabAction { Array value = 1; }
message Clash { float reward = 1; }
"""


@functools.cache
def kinds() -> Spec:
    """Return the types."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "cogment.yaml").write_text(SPEC_FILE)
        Path(folder, "kinds.proto").write_text(PROTO)
        return load_spec(folder)


def kind(name: str) -> Any:
    """Return the class of a message."""
    return kinds().message(f"kinds.{name}")
