"""Formulas that run: an equation in Python's notation is evaluated with the numbers of the page, and set as MathML."""

import ast
from collections.abc import Callable
from html import escape
from typing import Any

import torch
from torch import Tensor

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "epsilon": "ε", "theta": "θ", "mu": "μ", "sigma": "σ", "omega": "ω",
    "pi": "π", "eta": "η",
}  # fmt: skip


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


def _softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def _concat(*x: Tensor) -> Tensor:
    return torch.cat(x, -1)


def _sqrt(x: Tensor | float) -> Tensor | float:
    return x**0.5


SPACE: dict[str, Callable[..., Any]] = {
    "softmax": _softmax, "sqrt": _sqrt, "exp": torch.exp, "log": torch.log, "sin": torch.sin, "cos": torch.cos,
    "relu": torch.relu, "mean": _mean, "concat": _concat,
}  # fmt: skip
"""Functions that a formula may use besides the names of the page. They work along the last axis."""
TOLERANCE = 1e-4
"""The tolerance of values in float32, relative to the largest."""


def holds(line: str, space: dict[str, Any]) -> bool:
    """True if both sides of the equation are equal. Raises what its evaluation raises."""
    return equal(*sides(line, space))


def sides(line: str, space: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The values of both sides of the equation."""
    left, right = (torch.as_tensor(eval(side, space | SPACE), dtype=torch.float64) for side in _sides(line))
    return left, right


def equal(a: Tensor, b: Tensor) -> bool:
    """True if the sides of an equation are equal up to the rounding of float32."""
    return a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * max(1.0, float(a.abs().max())))


def _sides(line: str) -> tuple[str, str]:
    left, equals, right = line.partition(" = ")
    if not equals:
        raise SyntaxError(f"expected an equation with ` = `, got {line!r}")
    return left.strip(), right.strip()


def mathml(line: str) -> str:
    """The equation as MathML, which a browser sets without a script."""
    left, right = (_set(ast.parse(side, mode="eval").body) for side in _sides(line))
    return f'<math display="block"><mrow>{left}<mo>=</mo>{right}</mrow></math>'


def _name(name: str) -> str:
    base, _, index = name.partition("_")
    shown = f"<mi>{GREEK.get(base, escape(base))}</mi>"
    return f"<msub>{shown}<mi>{GREEK.get(index, escape(index))}</mi></msub>" if index else shown


def _grouped(node: ast.expr, inside: ast.AST) -> str:
    """The node, in parentheses where its operator binds less than the one that it stands in."""
    loose = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
    tight = isinstance(inside, ast.Mult | ast.MatMult | ast.Pow | ast.USub)
    product = isinstance(node, ast.BinOp | ast.UnaryOp) and isinstance(inside, ast.Pow)
    return f"<mrow><mo>(</mo>{_set(node)}<mo>)</mo></mrow>" if (loose and tight) or product else _set(node)


def _set(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return _name(name)
        case ast.Constant(value=value):
            return f"<mn>{escape(f'{value:,}' if isinstance(value, int) else str(value))}</mn>"
        case ast.UnaryOp(op=ast.USub(), operand=of):
            return f"<mrow><mo>−</mo>{_grouped(of, node.op)}</mrow>"
        case ast.Attribute(value=of, attr="T" | "mT"):
            return f"<msup>{_set(of)}<mi>T</mi></msup>"
        case ast.Subscript(value=of, slice=index):
            shown = "<mo>,</mo>".join(map(_set, index.elts if isinstance(index, ast.Tuple) else [index]))
            return f"<msub>{_set(of)}<mrow>{shown}</mrow></msub>"
        case ast.BinOp(left=left, op=op, right=right):
            return _operation(left, op, right)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call(name, args)
        case _:
            raise SyntaxError(f"a formula cannot hold {ast.unparse(node)}")


def _operation(left: ast.expr, op: ast.operator, right: ast.expr) -> str:
    if isinstance(op, ast.Div):
        return f"<mfrac><mrow>{_set(left)}</mrow><mrow>{_set(right)}</mrow></mfrac>"
    a, b = _grouped(left, op), _grouped(right, op)
    if isinstance(op, ast.Pow):
        return f"<msup>{a}<mrow>{_set(right)}</mrow></msup>"
    if isinstance(op, ast.MatMult):
        return f'<mrow>{a}<mspace width="0.25em"/>{b}</mrow>'
    signs: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "−", ast.Mult: "·"}
    return f"<mrow>{a}<mo>{signs[type(op)]}</mo>{b}</mrow>"


def _call(name: str, args: list[ast.expr]) -> str:
    if name == "sqrt":
        return f"<msqrt>{_set(args[0])}</msqrt>"
    if name == "sum" and isinstance(args[0], ast.GeneratorExp):
        made, over = args[0], args[0].generators[0]
        return f"<mrow><munder><mo>∑</mo><mrow>{_set(over.target)}</mrow></munder>{_set(made.elt)}</mrow>"
    inside = "<mo>,</mo>".join(map(_set, args))
    return f'<mrow><mi mathvariant="normal">{escape(name)}</mi><mo>(</mo>{inside}<mo>)</mo></mrow>'
