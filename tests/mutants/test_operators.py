"""Each operator, on the smallest piece of code that it can change; and what is left alone."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest

from tests.mutants.sites import sites, variants


def mutated(source: str) -> dict[str, list[str]]:
    """Return, by operator, what a module can be changed into."""
    tree, found = sites(textwrap.dedent(source))
    changed: dict[str, list[str]] = {}
    for site in found:
        for operator, node in variants(site):
            module = tree.deep_replace(site.node, node)
            assert isinstance(module, cst.Module)
            compile(module.code.replace("await ", ""), "mutant", "exec")
            changed.setdefault(operator, []).append(module.code.strip())
    return changed


@pytest.mark.parametrize(
    ("source", "operator", "expected"),
    [
        ("x < y", "comparisons", ["x <= y", "x > y"]),
        ("x is not y", "comparisons", ["x is y"]),
        ("x in y", "comparisons", ["x not in y"]),
        ("x + y", "arithmetic", ["x - y"]),
        ("x & y", "arithmetic", ["x | y"]),
        ("x + y + 'a'", "arithmetic", ["x - y + 'a'"]),
        ("x += y", "augmented_assignments", ["x -= y", "x = y"]),
        ("x += y", "deletions", ["pass"]),
        ("x or y", "booleans", ["((x) and (y))", "(x)", "(y)"]),
        ("not x", "negations", ["(x)"]),
        ("if x: y()", "conditions", ["if (not (x)): y()", "if False: y()", "if True: y()"]),
        ("while x: y()", "conditions", ["while (not (x)): y()", "while False: y()"]),
        ("a if x else b", "conditions", ["a if (not (x)) else b", "a if False else b"]),
        ("x[0]", "integers", ["x[1]"]),
        ("x = 3", "integers", ["x = 4", "x = 2"]),
        ("x = 4096", "integers", ["x = 8192", "x = 2048"]),
        ("x = 0.5", "floats", ["x = 1.0", "x = 0.25"]),
        ("x = True", "names", ["x = False"]),
        ("x = 'a'", "strings", ['x = ""']),
        ("x = b''", "strings", ['x = b"XX"']),
        ("len(x)", "lengths", ["(len(x) + 1)", "(len(x) - 1)"]),
        ("range(x, y)", "lengths", ["range(x, (y) + 1)"]),
        ("min(x)", "confused_calls", ["max(x)"]),
        ("sorted(x)", "confused_calls", ["list(x)"]),
        ("x.popleft()", "confused_calls", ["x.pop()"]),
        ("f(x, y)", "arguments", ["f(y, x)"]),
        ("x.get(y, z)", "arguments", ["x.get(z, y)", "x.get(y)"]),
        ("f(x, y=z)", "arguments", ["f(x)"]),
        ("def f(): return x", "returned_values", ["def f(): return None"]),
        ("def f(): return x < y", "returned_values", ["def f(): return None", "def f(): return (not (x < y))"]),
        ("def f(): return", "deletions", ["def f(): pass"]),
        ("x.y = z", "deletions", ["pass"]),
        ("raise x", "deletions", ["pass"]),
        ("for x in y: break", "jumps", ["for x in y: continue"]),
        ("for x in y:\n    z()", "short_loops", ["for x in y:\n    z()\n    break"]),
        (
            "try: x\nexcept (A, B): y",
            "handlers",
            ["try: x\nexcept (B,): y", "try: x\nexcept (A,): y"],
        ),
        (
            'def f() -> None:\n    "Do it."\n    x()',
            "early_exits",
            ['def f() -> None:\n    "Do it."\n    return\n    x()'],
        ),
        ("async def f():\n    await x()", "deletions", ["async def f():\n    pass"]),
    ],
)
def test_operator(source: str, operator: str, expected: list[str]) -> None:
    assert mutated(source)[operator] == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is."""',
        "x: Literal['a']",
        "from x import y",
        "@x(y=True)\nclass A: ...",
        "_log.warning('away', x + 1)",
        "trial.note('info', str(1 + 1))",
        "assert x < 1",
        "__all__ = ['x']",
        "if TYPE_CHECKING:\n    x = 1",
        "def __repr__(self): return 1",
        "def recount(self): yield 1 + 1",
        "class A(Protocol):\n    x = 1",
        "x = 'a text for people'",
        "x = f'{1 + 1}'",
        "A = B | None",
        "x = cast('A', 1)",
        "@overload\ndef f() -> None:\n    x()",
    ],
)
def test_what_nobody_could_notice_is_left_alone(source: str) -> None:
    assert mutated(source) == {}


def test_what_an_error_says_is_left_alone_and_the_error_is_not() -> None:
    assert mutated("raise A('x')") == {"deletions": ["pass"]}
    assert mutated("start_soon(f, name='x')")["arguments"] == ["start_soon(f)"]


def test_what_is_the_same_program_is_not_offered() -> None:
    assert mutated("a = zip(x, y, strict=True)") == {"arguments": ["a = zip(y, x, strict=True)"]}
    assert mutated("a = zip(x, y, strict=False)")["names"] == ["a = zip(x, y, strict=True)"]
    assert mutated("a = min(x, y)") == {"confused_calls": ["a = max(x, y)"]}
    assert mutated("a = hmac.compare_digest(x, y)") == {}


def test_a_site_knows_where_it_is() -> None:
    source = """\
        class A:
            def f(self) -> None:
                '''Do it.'''
                if (x and
                        y):
                    z(
                        1,
                    )
        """
    _, found = sites(textwrap.dedent(source))
    by_kind = {type(site.node).__name__: site for site in found}
    assert {site.scope for site in found if not isinstance(site.node, cst.Name)} == {"A.f"}
    assert by_kind["FunctionDef"].lines == range(4, 6)
    assert by_kind["If"].lines == by_kind["BooleanOperation"].lines == range(4, 6)
    assert by_kind["Integer"].lines == range(7, 8)
    assert by_kind["Integer"].statement == range(6, 9)
