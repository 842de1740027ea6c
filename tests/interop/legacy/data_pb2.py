"""The messages of `data.proto`, from the descriptors beside this file: what protoc writes today is too new for here."""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_files = descriptor_pb2.FileDescriptorSet.FromString(Path(__file__).with_name("data.desc").read_bytes())
_pool = descriptor_pool.Default()
for _file in _files.file:
    _pool.AddSerializedFile(_file.SerializeToString())
    for _message in _file.message_type:
        _name = f"{_file.package}.{_message.name}"
        globals()[_message.name] = message_factory.GetMessageClass(_pool.FindMessageTypeByName(_name))
