"""Operators: the changes of a piece of code, each of a kind that people make by mistake.

Each operator takes a node of a LibCST tree and yields nodes that could replace it. It does not ask where the node is:
that is the affair of `tests.mutants.sites`. A change of which nobody could notice anything (of a text for people, of an
annotation) is not offered there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import libcst as cst

Variants: TypeAlias = Iterator[cst.CSTNode]
Operator: TypeAlias = Callable[[Any], Variants]

#: Numbers up to this one count something; larger ones are limits and sizes, where one more is not a mistake.
MOST_COUNTED = 10

_COMPARISONS: dict[type[cst.BaseCompOp], tuple[type[cst.BaseCompOp], ...]] = {
    cst.LessThan: (cst.LessThanEqual, cst.GreaterThan),
    cst.LessThanEqual: (cst.LessThan, cst.GreaterThan),
    cst.GreaterThan: (cst.GreaterThanEqual, cst.LessThan),
    cst.GreaterThanEqual: (cst.GreaterThan, cst.LessThan),
    cst.Equal: (cst.NotEqual,),
    cst.NotEqual: (cst.Equal,),
    cst.Is: (cst.IsNot,),
    cst.IsNot: (cst.Is,),
    cst.In: (cst.NotIn,),
    cst.NotIn: (cst.In,),
}
_ARITHMETIC: dict[type[cst.BaseBinaryOp], type[cst.BaseBinaryOp]] = {
    cst.Add: cst.Subtract,
    cst.Subtract: cst.Add,
    cst.Multiply: cst.FloorDivide,
    cst.Divide: cst.Multiply,
    cst.FloorDivide: cst.Multiply,
    cst.Modulo: cst.FloorDivide,
    cst.BitAnd: cst.BitOr,
    cst.BitOr: cst.BitAnd,
    cst.BitXor: cst.BitAnd,
    cst.LeftShift: cst.RightShift,
    cst.RightShift: cst.LeftShift,
    cst.Power: cst.Multiply,
}
_AUGMENTED: dict[type[cst.BaseAugOp], type[cst.BaseAugOp]] = {
    cst.AddAssign: cst.SubtractAssign,
    cst.SubtractAssign: cst.AddAssign,
    cst.MultiplyAssign: cst.AddAssign,
    cst.BitAndAssign: cst.BitOrAssign,
    cst.BitOrAssign: cst.BitAndAssign,
}
#: Functions and methods that are taken for one another.
_CONFUSED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "append": "appendleft",
    "appendleft": "append",
    "popleft": "pop",
    "startswith": "endswith",
    "endswith": "startswith",
    "partition": "rpartition",
    "rpartition": "partition",
    "setdefault": "get",
    "items": "copy",
    "add": "discard",
    "discard": "add",
}
#: Only deques have these.
_OF_DEQUES = frozenset({"appendleft", "popleft"})
#: Calls for which the order of their arguments does not matter.
_SYMMETRICAL = frozenset({"min", "max", "compare_digest", "suppress"})
#: Calls that only arrange what they are given.
_ARRANGING = frozenset({"sorted", "reversed"})
#: Calls whose last argument is what there is otherwise; by the number of arguments that they have with it.
_WITH_DEFAULT = {"get": 2, "pop": 2, "next": 2, "getattr": 3}


def comparisons(target: cst.ComparisonTarget) -> Variants:
    for other in _COMPARISONS.get(type(target.operator), ()):
        yield target.with_changes(operator=other())


def arithmetic(operation: cst.BinaryOperation) -> Variants:
    """Not of texts, which `+` joins and `%` fills."""
    texts = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
    if isinstance(operation.left, texts) or isinstance(operation.right, texts):
        return
    other = _ARITHMETIC.get(type(operation.operator))
    if other is not None:
        yield operation.with_changes(operator=other())


def augmented_assignments(assignment: cst.AugAssign) -> Variants:
    other = _AUGMENTED.get(type(assignment.operator))
    if other is not None:
        yield assignment.with_changes(operator=other())
    yield cst.Assign(targets=[cst.AssignTarget(assignment.target)], value=assignment.value)


def booleans(operation: cst.BooleanOperation) -> Variants:
    """`and` for `or`, and each side alone."""
    other = cst.Or() if isinstance(operation.operator, cst.And) else cst.And()
    # `and` binds more tightly: without parentheses more would change than one word.
    yield parenthesized(
        operation.with_changes(left=parenthesized(operation.left), operator=other, right=parenthesized(operation.right))
    )
    yield parenthesized(operation.left)
    yield parenthesized(operation.right)


def negations(operation: cst.UnaryOperation) -> Variants:
    if isinstance(operation.operator, cst.Not | cst.Minus):
        yield parenthesized(operation.expression)


def conditions(node: cst.If | cst.While | cst.IfExp | cst.CompIf) -> Variants:
    """The other branch; or a condition that is always one way."""
    yield node.with_changes(test=negated(node.test))
    yield node.with_changes(test=cst.Name("False"))
    if isinstance(node, cst.If | cst.CompIf):
        yield node.with_changes(test=cst.Name("True"))


def integers(number: cst.Integer) -> Variants:
    value = number.evaluated_value
    if value <= MOST_COUNTED:
        yield cst.Integer(str(value + 1))
        if value:
            yield cst.Integer(str(value - 1))
    else:
        yield cst.Integer(str(value * 2))
        yield cst.Integer(str(value // 2))


def floats(number: cst.Float) -> Variants:
    value = number.evaluated_value
    yield cst.Float(repr(value * 2 if value else 1.0))
    if value:
        yield cst.Float(repr(value / 2))


def names(name: cst.Name) -> Variants:
    if name.value in ("True", "False"):
        yield cst.Name("False" if name.value == "True" else "True")


def strings(text: cst.SimpleString) -> Variants:
    """Not of sentences, which are for people."""
    value = text.evaluated_value
    if isinstance(value, bytes):
        yield cst.SimpleString('b""' if value else 'b"XX"')
    elif " " not in value:
        yield cst.SimpleString('""' if value else '"XX"')


def lengths(call: cst.Call) -> Variants:
    """One too many, or one too few."""
    if isinstance(call.func, cst.Name) and call.func.value == "len":
        yield parenthesized(cst.BinaryOperation(call, cst.Add(), cst.Integer("1")))
        yield parenthesized(cst.BinaryOperation(call, cst.Subtract(), cst.Integer("1")))
    elif isinstance(call.func, cst.Name) and call.func.value == "range" and len(call.args) <= 2:
        last = call.args[-1]
        more = cst.BinaryOperation(parenthesized(last.value), cst.Add(), cst.Integer("1"))
        yield call.with_changes(args=[*call.args[:-1], last.with_changes(value=more)])


def confused_calls(call: cst.Call) -> Variants:
    """Another function or method of those that are mixed up; or what an arranging call is given, as it is."""
    function = call.func
    if isinstance(function, cst.Name):
        if function.value in _CONFUSED and function.value not in _OF_DEQUES:
            yield call.with_changes(func=cst.Name(_CONFUSED[function.value]))
        if function.value in _ARRANGING and call.args:
            yield cst.Call(cst.Name("list"), [cst.Arg(call.args[0].value)])
    elif isinstance(function, cst.Attribute) and function.attr.value in _CONFUSED:
        name = function.attr.value
        if name not in ("min", "max", "any", "all", "append", "items"):
            yield call.with_changes(func=function.with_changes(attr=cst.Name(_CONFUSED[name])))


def arguments(call: cst.Call) -> Variants:
    """Two exchanged, or one left out that need not be there."""
    positional = [argument for argument in call.args if argument.keyword is None and not argument.star]
    function = call.func
    name = function.attr.value if isinstance(function, cst.Attribute) else getattr(function, "value", None)
    if name not in _SYMMETRICAL and len(positional) >= 2 and list(call.args[:2]) == positional[:2]:
        first, second, *rest = call.args
        yield call.with_changes(
            args=[first.with_changes(value=second.value), second.with_changes(value=first.value), *rest]
        )
    if isinstance(name, str) and len(positional) == len(call.args) == _WITH_DEFAULT.get(name, -1):
        yield call.with_changes(args=_without(call.args, len(call.args) - 1))
    for number, argument in enumerate(call.args):
        if argument.keyword is not None and not is_strict(argument):
            yield call.with_changes(args=_without(call.args, number))


def is_strict(argument: cst.Arg) -> bool:
    """Tell whether it asks for an assertion: that what is joined by `zip` is equally long."""
    return argument.keyword is not None and argument.keyword.value == "strict"


def _without(args: Sequence[cst.Arg], number: int) -> list[cst.Arg]:
    kept = [*args[:number], *args[number + 1 :]]
    if kept and number == len(args) - 1:
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return kept


def returned_values(statement: cst.Return) -> Variants:
    """None; nothing is offered where that is returned already, or a constant that has operators of its own."""
    value = statement.value
    if value is None or (isinstance(value, cst.Name) and value.value in ("None", "True", "False")):
        return
    yield statement.with_changes(value=cst.Name("None"), whitespace_after_return=cst.SimpleWhitespace(" "))
    if isinstance(value, cst.Comparison | cst.BooleanOperation):
        yield statement.with_changes(value=negated(value), whitespace_after_return=cst.SimpleWhitespace(" "))


def deletions(statement: cst.BaseSmallStatement) -> Variants:
    """Nothing, in the place of what is done: a call, a field or an entry that is set, a jump, an error."""
    if isinstance(statement, cst.Expr):
        value = statement.value
        if isinstance(value, cst.Await):
            value = value.expression
        if not isinstance(value, cst.Call):
            return
    elif isinstance(statement, cst.Assign):
        if not all(isinstance(one.target, cst.Attribute | cst.Subscript) for one in statement.targets):
            return
    elif isinstance(statement, cst.Return):
        if statement.value is not None:
            return
    elif not isinstance(statement, cst.AugAssign | cst.Raise | cst.Break | cst.Continue | cst.Del):
        return
    yield cst.Pass()


def jumps(statement: cst.Break | cst.Continue) -> Variants:
    yield cst.Continue() if isinstance(statement, cst.Break) else cst.Break()


def early_exits(function: cst.FunctionDef) -> Variants:
    """A function that does nothing, where its caller expects no value."""
    returns = function.returns
    if returns is None or not isinstance(returns.annotation, cst.Name) or returns.annotation.value != "None":
        return
    body = function.body
    if function.name.value == "__init__" or not isinstance(body, cst.IndentedBlock) or _yields(function):
        return
    leave = cst.SimpleStatementLine([cst.Return()])
    has_docstring = function.get_docstring() is not None
    first, rest = (list(body.body[:1]), body.body[1:]) if has_docstring else ([], body.body)
    if rest:
        yield function.with_changes(body=body.with_changes(body=[*first, leave, *rest]))


def _yields(function: cst.FunctionDef) -> bool:
    found: list[cst.CSTNode] = []

    class Look(cst.CSTVisitor):
        def visit_Yield(self, node: cst.Yield) -> None:
            found.append(node)

    function.body.visit(Look())
    return bool(found)


def short_loops(loop: cst.For) -> Variants:
    """A loop that ends after its first turn."""
    if isinstance(loop.body, cst.IndentedBlock):
        leave = cst.SimpleStatementLine([cst.Break()])
        yield loop.with_changes(body=loop.body.with_changes(body=[*loop.body.body, leave]))


def handlers(handler: cst.ExceptHandler) -> Variants:
    """One kind of error less that is handled."""
    if isinstance(handler.type, cst.Tuple) and len(handler.type.elements) > 1:
        for number in range(len(handler.type.elements)):
            kept = [one for index, one in enumerate(handler.type.elements) if index != number]
            if len(kept) == 1:
                kept = [kept[0].with_changes(comma=cst.Comma())]
            yield handler.with_changes(type=handler.type.with_changes(elements=kept))


def parenthesized(expression: cst.BaseExpression) -> cst.BaseExpression:
    changed = expression.with_changes(
        lpar=[cst.LeftParen(), *expression.lpar], rpar=[*expression.rpar, cst.RightParen()]
    )
    assert isinstance(changed, cst.BaseExpression)
    return changed


def negated(expression: cst.BaseExpression) -> cst.BaseExpression:
    return cst.UnaryOperation(cst.Not(), parenthesized(expression), lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


#: By the kind of node that they take.
OPERATORS: dict[type[cst.CSTNode], tuple[Operator, ...]] = {
    cst.ComparisonTarget: (comparisons,),
    cst.BinaryOperation: (arithmetic,),
    cst.AugAssign: (augmented_assignments, deletions),
    cst.BooleanOperation: (booleans,),
    cst.UnaryOperation: (negations,),
    cst.If: (conditions,),
    cst.While: (conditions,),
    cst.IfExp: (conditions,),
    cst.CompIf: (conditions,),
    cst.Integer: (integers,),
    cst.Float: (floats,),
    cst.Name: (names,),
    cst.SimpleString: (strings,),
    cst.Call: (lengths, confused_calls, arguments),
    cst.Return: (returned_values, deletions),
    cst.Expr: (deletions,),
    cst.Assign: (deletions,),
    cst.Raise: (deletions,),
    cst.Break: (jumps, deletions),
    cst.Continue: (jumps, deletions),
    cst.Del: (deletions,),
    cst.FunctionDef: (early_exits,),
    cst.For: (short_loops,),
    cst.ExceptHandler: (handlers,),
}
