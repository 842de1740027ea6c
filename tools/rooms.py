"""The rooms of `src/trio_cogment`: who may import whom, who does, and what each module is.

Writes the table and the drawing in `docs/architecture.md`, and `docs/modules.md`. Every import counts: those for type
checkers and those within functions, too. `--check` writes nothing and fails if a page is stale;
`tests/test_architecture.py` does the same, and holds the imports against the rules.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "trio_cogment"
PAGE = ROOT / "docs" / "architecture.md"
INDEX = ROOT / "docs" / "modules.md"

#: Folders of which each entry is a room of its own.
HOUSES = ("base", "servers", "gateways")
#: Rooms that every other may import, except those of `NARROWED`.
LEAVES = (
    *("base.errors", "base.config", "base.services", "base.endpoints", "base.about", "base.host", "base.backoff"),
    *("base.addressing", "base.rewards", "base.log_context", "base.metrics", "base.plugins", "api", "base.outcome"),
    *("base.recount", "base.suggestions", "base.compiling", "base.group_commit", "base.sqlite_file"),
    *("base.sqlite_hold", "base.stand_ins", "base.lazy_names", "base.records", "base.shared_message", "base"),
    *("base.object_store", "base.postgresql", "base.taking_up", "base.tracing"),
)
#: What a room may import of the leaves, where that is not all of them. A leaf without a row imports no other.
NARROWED = {
    "base.lazy_names": {"base.errors"},
    "base.host": {"base.lazy_names"},
    "base.config": {"api", "base.lazy_names", "base.records"},
    "base.services": {"base.records"},
    "base.endpoints": {"base.records", "base.errors", "base.services"},
    "base.about": {"api"},
    "base.outcome": {"base.records", "api"},
    "base.errors": {"base.outcome"},
    "base.metrics": {"base.records", "base.config", "base.errors"},
    "base.tracing": {"base.config", "base.errors", "base.log_context"},
    "base.plugins": {"base.errors", "base.host"},
    "base.sqlite_file": {"base.records", "base.errors", "base.host"},
    "base.group_commit": {"base.errors"},
    "base.object_store": {"base.errors", "base.records"},
    "base.postgresql": {"base.errors", "base.records"},
    "base.sqlite_hold": {"base.errors", "base.host", "base.sqlite_file"},
    "base.shared_message": {"api", "base.compiling"},
    "base.taking_up": {"api", "base.errors"},
    "trial": {
        *("base.addressing", "api", "base.compiling", "base.errors", "base.endpoints", "base.outcome", "base.recount"),
        *("base.rewards", "base.shared_message"),
    },
    "spaces": {"base.lazy_names", "api", "base.errors"},
    "access": {"base.records", "base.errors", "base.config", "base.recount", "base.services"},
    "budget": {"base.config", "base.errors", "base.host", "base.recount", "base.compiling"},
    "rpc": {
        *("base.errors", "base.config", "base.host", "base.backoff", "base.recount", "base.compiling"),
        *("base.suggestions", "base.shared_message", "base.services", "base.tracing"),
    },
}
#: What a room may import besides the leaves.
TABLE: dict[str, set[str]] = {
    "trial": set(),
    "spaces": set(),
    "access": set(),
    "budget": {"access"},
    "rpc": {"access", "budget"},
    "web": {"rpc", "access", "budget", "spaces"},
    "servers": set(),
    "servers.discovery": {"rpc", "access", "budget"},
    "servers.directory": {"rpc", "access", "budget"},
    "servers.datastore": {"rpc", "access", "budget"},
    "servers.model_registry": {"rpc", "access", "budget"},
    "servers.orchestrator": {"trial", "rpc", "servers.discovery", "access", "budget"},
    "sdk": {"spaces", "rpc", "servers.discovery", "access"},
    "resuming": {"access", "servers.orchestrator", "servers.datastore"},
    "platform": {
        *("resuming", "servers.orchestrator", "servers.datastore", "servers.model_registry", "servers.directory"),
        *("servers.discovery", "sdk", "trial", "rpc", "access", "budget"),
    },
    "sync": {"platform", "sdk"},
    "aio": {"platform", "sdk", "rpc"},
    "environments": {"sdk", "spaces", "rpc"},
    "seats": {"environments", "platform", "sdk", "spaces", "rpc", "access"},
    "play": {"seats", "environments", "platform", "sdk", "spaces", "rpc", "access", "web"},
    "gateways": set(),
    "gateways.callers": {"sdk", "rpc", "access", "budget"},
    "gateways.rest": {"gateways.callers", "seats", "platform", "sdk", "rpc", "access", "budget", "web"},
    "gateways.legacy": {"gateways.callers", "seats", "platform", "sdk", "rpc", "access", "budget"},
    "gateways.dm_env_rpc": {
        *("gateways.callers", "seats", "environments", "platform", "sync", "sdk", "spaces", "rpc", "access", "budget"),
    },
    "gateways.openenv": {
        *("seats", "play", "environments", "platform", "sdk", "spaces", "rpc", "access", "budget", "web"),
    },
    "rl": {
        *("environments", "seats", "play", "gateways.openenv", "platform", "sync", "sdk", "spaces", "rpc", "access"),
        *("servers.discovery", "servers.datastore"),
    },
    "ray": {"rl", "sdk", "rpc"},
    "experiment": {"play", "seats", "environments", "platform", "sdk", "spaces", "rpc", "access", "web"},
    "conformance": {"sdk", "rpc"},
    "dashboard": {"web", "platform", "servers.orchestrator", "servers.discovery", "sdk", "rpc", "access"},
    "trainer": {"platform", "rl", "seats", "rpc", "servers.discovery", "sdk", "access", "budget"},
    "testing": {
        *("platform", "servers.orchestrator", "servers.datastore", "servers.model_registry", "servers.directory"),
        *("servers.discovery", "sdk", "trial", "rpc", "access", "budget"),
    },
    "cli": {
        *("platform", "servers.datastore", "servers.model_registry", "servers.directory", "servers.discovery"),
        *("sdk", "rl", "environments", "seats", "trainer", "trial", "rpc", "access", "budget", "web", "play"),
        *("gateways.dm_env_rpc", "gateways.legacy", "gateways.rest", "gateways.openenv", "dashboard", "experiment"),
        "conformance",
    },
}


def allowed(room: str) -> set[str]:
    """Return the rooms that a room may import."""
    return TABLE.get(room, set()) | set(NARROWED.get(room, () if room in LEAVES else LEAVES))


@cache
def modules() -> Mapping[str, Path]:
    """Return the dotted name of each module, without those that protoc has generated."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            parts = path.relative_to(SOURCE.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path) -> Iterator[str]:
    """Yield the dotted names that a module imports, `from x import y` as `x.y`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise ValueError(f"{path}: line {node.lineno}: expected an absolute import")
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def module_imports() -> Mapping[str, frozenset[str]]:
    """Return, for each module, the other modules of the package that it imports."""
    known = modules()
    edges = {}
    for name, path in known.items():
        edges[name] = frozenset(map(_module_of, imports_of(path))) & known.keys() - {name}
    return edges


def _module_of(name: str) -> str:
    """Return the module that a dotted name is, or is part of; a generated module counts as its package."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the groups of nodes that reach each other, each sorted (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for target in sorted(edges[node]):
            if target not in index:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in stack:
                lowest[node] = min(lowest[node], index[target])
        if lowest[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in edges:
        if node not in index:
            visit(node)
    return found


def room_of(module: str) -> str:
    """Return the room of a module: right below `trio_cogment`, or below one of its `HOUSES`."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts and parts[0] in HOUSES else 1])


def room_imports() -> dict[str, set[str]]:
    """Return, for each room, the rooms that it imports; without the top package and private modules."""
    rooms: dict[str, set[str]] = {}
    for module, targets in module_imports().items():
        room = room_of(module)
        if room and not room.startswith("_"):
            rooms.setdefault(room, set()).update(room_of(target) for target in targets)
    return {room: {name for name in targets if name in rooms} - {room} for room, targets in rooms.items()}


def table() -> str:
    """Return the table of who may import whom."""
    rows = ["| room | may import |", "|---|---|"]
    for room in (*LEAVES, *TABLE):
        names = sorted(allowed(room)) if room in LEAVES else [*_leaves_of(room), *sorted(TABLE[room])]
        rows.append(f"| `{room}` | {', '.join(names) or '-'} |")
    return "\n".join([*rows, ""])


def _leaves_of(room: str) -> list[str]:
    return sorted(NARROWED[room]) if room in NARROWED else ["the leaves"]


def drawing() -> str:
    """Return a flow chart of the rooms and their imports, without the leaves."""
    drawn = {room: targets - set(LEAVES) for room, targets in room_imports().items() if room not in LEAVES}
    lines = ["```mermaid", "flowchart TD"]
    for room, targets in sorted(drawn.items()):
        # An arrow that a longer way stands for is left out.
        direct = {name for name in targets if not any(name in _reached(drawn, other) for other in targets - {name})}
        lines += [f"    {room} --> {name}" for name in sorted(direct)] or [f"    {room}"]
    return "\n".join([*lines, "```", ""])


def _reached(edges: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for target in edges[waiting.pop()] - reached:
            reached.add(target)
            waiting.append(target)
    return reached


def index() -> str:
    """Return the page that says what each module is."""
    parts = [
        "# Modules\n",
        "Every module of `src/trio_cogment` and the first sentence of its docstring; written by `tools/rooms.py`. A",
        "module with a leading underscore is private to its folder; the others are shared among the rooms. Programs",
        "may rely on what packages offer (`__all__`), and on the modules that [the API reference](api/index.md) has.",
    ]
    folder = None
    for path in sorted(modules().values(), key=lambda path: (path.parent, path.name)):
        if path.parent != folder:
            folder = path.parent
            parts += [f"\n## {folder.relative_to(SOURCE.parent).as_posix()}/\n", "| module | what it is |", "|---|---|"]
        parts.append(f"| `{path.name}` | {_first_sentence(path)} |")
    return "\n".join([*parts, ""])


def _first_sentence(path: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0].split())
    first, stop, _ = text.partition(". ")
    return (first + stop.strip()).replace("|", "\\|")


def _with(page: str, name: str, content: str) -> str:
    """Return a page with this content between the marks of that name."""
    begin, end = f"<!-- {name}: written by tools/rooms.py -->\n", f"<!-- end of {name} -->\n"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        sys.exit(f"{PAGE.name}: expected a line {begin.strip()} and a line {end.strip()}")
    return f"{before}{begin}{content}{end}{after}"


def pages() -> dict[Path, str]:
    """Return what has to be in each page."""
    return {PAGE: _with(_with(PAGE.read_text(), "table", table()), "drawing", drawing()), INDEX: index()}


def figures() -> dict[str, float]:
    """Return what tells of pieces that belong together, and of how much a reader has to know; no generated code."""
    texts = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}
    texts = {name: text for name, text in texts.items() if "_protos" not in name}
    lines = [line.strip() for text in texts.values() for line in text.splitlines()]
    importers: dict[str, int] = {}
    for targets in module_imports().values():
        for target in targets:
            importers[target] = importers.get(target, 0) + 1
    files = {name for name, path in modules().items() if path.name != "__init__.py"}
    return {
        "lines": len(lines),
        "modules": len(texts),
        "modules that exactly one other imports": sum(importers.get(name) == 1 for name in files),
        "public names (`__all__` of packages)": sum(len(_offered(ast.parse(text))) for text in texts.values()),
        "protocols with one implementation": len(lonely_protocols()),
        "comments, % of lines": round(100 * sum(line.startswith("#") for line in lines) / len(lines), 1),
    }


def _offered(tree: ast.Module) -> set[str]:
    """Return the names in `__all__`, and those of the table from which it is made."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "_HOMES"):
            strings = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            keys = node.value.keys if isinstance(node.value, ast.Dict) else strings
            found |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return found


def lonely_protocols() -> list[str]:
    """Return the protocols of which exactly one class has all members."""
    protocols: dict[str, set[str]] = {}
    classes: list[set[str]] = []
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                members = set(_members(node))
                if any("Protocol" in ast.unparse(base) for base in node.bases):
                    protocols[f"{module}.{node.name}"] = {name for name in members if not name.startswith("__")}
                else:
                    classes.append(members)
    return [name for name, members in protocols.items() if sum(members <= each for each in classes) == 1]


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Yield what a class has: methods, fields, and what its methods set on `self`."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name
        elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            yield part.target.id
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            yield part.attr


def main() -> None:
    """Write the pages, or compare them with those that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail instead of writing when a page is stale")
    parser.add_argument("--figures", action="store_true", help="print lines, modules and what else tells of pieces")
    options = parser.parse_args()
    check = options.check
    if options.figures:
        for name, value in figures().items():
            print(f"{value:>9,}  {name}")
        return
    for path, text in pages().items():
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path.name} is stale: run tools/rooms.py")


if __name__ == "__main__":
    main()
