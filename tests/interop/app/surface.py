"""Prints, as JSON, every public item of the installed published SDK, as `docs/sdk.md` names them.

A class is named by itself, and with its parameters if users make it; a method with its parameters; an attribute, a
property and a member of an enumeration by its name after the class's. Environment variables, metrics and options of the
generator are items too. Names are read from the package as it is imported, and from its source where objects get their
attributes only when they are made.
"""

import ast
import enum
import importlib
import inspect
import json
import pathlib

import cogment

#: Where users' objects come from. The other modules are services and tools of the SDK itself.
MODULES = (
    *("actor", "context", "control", "datalog", "datalog_service", "datastore", "directory", "endpoints"),
    *("environment", "errors", "grpc_metadata", "model_registry", "model_registry_v2", "parameters", "prehook"),
    "session",
)
#: A service, in a module that has a public class too.
INTERNAL = {"DatalogServicer"}
METRICS = {"Counter", "Gauge", "Summary", "Histogram"}


def parameters(function):
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return f"({', '.join(names)})"


def assigned(cls):
    """Yield the public attributes that methods of a class give to its objects."""
    for node in ast.walk(ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls)))):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                yield target.attr


def members(cls):
    if issubclass(cls, enum.Enum):
        yield from (member.name for member in cls)
        return
    for name, value in vars(cls).items():
        yield name + (parameters(value) if inspect.isfunction(value) else "")
    yield from assigned(cls)
    if cls is cogment.context.PrehookSession:
        # They are set one by one, outside of the class.
        yield from cls(None, "", None)._data_attributes


def sources():
    for path in pathlib.Path(cogment.__file__).parent.glob("*.py"):
        yield path, ast.parse(path.read_text())


def main():
    classes = []
    for name in MODULES:
        module = importlib.import_module(f"cogment.{name}")
        classes += [
            value
            for key, value in vars(module).items()
            if inspect.isclass(value)
            and value.__module__ == module.__name__
            and not key.startswith("_")
            and key not in INTERNAL
        ]
    names = [cls.__name__ for cls in classes]
    items = set()
    for cls in classes:
        name = cls.__name__
        if names.count(name) > 1:
            name = f"{cls.__module__.partition('.')[2]}.{name}"
        made_by_users = getattr(cogment, cls.__name__, None) is cls and not issubclass(cls, enum.Enum)
        items.add(name + (parameters(cls.__init__) if made_by_users else ""))
        items.update(f"{name}.{member}" for member in members(cls) if not member.startswith("_"))
    for key, value in vars(cogment).items():
        if inspect.isfunction(value) and not key.startswith("_"):
            items.add(key + parameters(value))
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("COGMENT_"):
                items.add(node.value)
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                if called in METRICS:
                    items.add(node.args[0].value)
                elif called == "option" and path.stem == "generate":
                    items.add("python -m cogment.generate " + node.args[0].value)
    print(json.dumps(sorted(items)))


main()
