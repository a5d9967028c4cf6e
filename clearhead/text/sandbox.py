"""A sandbox for untrusted templates. They cannot reach Python, and everything they make costs allowance.

Jinja's own sandbox forbids attributes. This one also bounds work, which it charges to `meter.py`. The module imports
jinja2, so its users import it lazily.
"""

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache, wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from clearhead.text.meter import FORMATS, MULTIPLIES, check_number, meter, pay, pay_operator

# Filters that pass members on unchanged, so only the number of members costs.
_SHALLOW = frozenset(
    "abs attr count d default dictsort first float groupby int items last length list map max min random reject "
    "rejectattr reverse round select selectattr sort sum unique".split()
)
_WITHHELD = ("lipsum", "striptags", "urlize", "xmlattr")


class Refused(jinja2.TemplateError):
    """The template refused its input by calling raise_exception."""


class PlainNamespace(Namespace):
    """A namespace whose attributes cannot replace Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        fields = dict(*args[1:], **kwargs)
        for name in fields:
            _plain(name)
        Namespace.__init__(args[0], fields)

    def __repr__(self) -> str:
        return "<Namespace>"

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(_plain(name), value)


def _plain(name: str) -> str:
    if str(name).startswith("_"):
        raise jinja2.exceptions.SecurityError(f"namespace attribute {name!r} is unsafe")
    return name


class Dictionary:
    """Stands in for `dict` in templates without exposing the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def _raise(message: object) -> NoReturn:
    raise Refused(str(message))


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON without Jinja's HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks the assistant's own words. The text stays the same."""

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _metered(name: str, function: Callable[..., Any], *, deep: bool) -> Callable[..., Any]:
    """Wraps a filter or test so that it pays for what it reads and makes."""

    @wraps(function)
    def filtered(*args: Any, **kwargs: Any) -> Any:
        pay(name, [*args, *kwargs.values()], deep=deep)
        result = function(*args, **kwargs)
        meter().admit(result)
        return result

    return filtered


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it, where every loop, call, operator and piece of text costs allowance."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[Generation, LoopControlExtension],
            finalize=_shown,
            cache_size=0,
        )
        known = {name: f for name, f in self.filters.items() if name not in _WITHHELD} | {"tojson": _to_json}
        self.filters = {name: _metered(name, f, deep=name not in _SHALLOW) for name, f in known.items()}
        self.tests = {name: _metered(name, f, deep=False) for name, f in self.tests.items()}
        allowed: dict[str, Any] = {name: value for name, value in self.globals.items() if name not in _WITHHELD}
        self.globals = allowed | {
            "dict": Dictionary(),
            "namespace": PlainNamespace,
            "raise_exception": _raise,
            "strftime_now": _now,
        }

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        raise jinja2.exceptions.SecurityError(f"access to {attribute!r} of {type(obj).__name__!r} is unsafe")

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = getattr(function, "__name__", "")
        # The sandbox wraps str.format.
        method = getattr(function, "__wrapped__", function)
        subject = [getattr(method, "__self__", None)] if name in MULTIPLIES | FORMATS else []
        given = [value for key, value in kwargs.items() if not key.startswith("_")]
        pay(name, [*subject, *args, *given], deep=name == "text")
        result = super().call(context, function, *args, **kwargs)
        meter().admit(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        pay_operator(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        check_number(result)
        meter().admit(result)
        return result

    # --- what templates are rewritten to call ---

    def concat(self, parts: Iterable[str]) -> str:
        """Joins the pieces of a template, block or macro."""
        paid: list[str] = []
        for part in parts:
            meter().spend(len(part))
            paid.append(part)
        return "".join(paid)

    def step(self) -> None:
        """One turn of a loop or macro. `call` charges for it."""

    def text(self, *parts: Any) -> str:
        return "".join(map(str, parts))

    def made(self, value: Any) -> Any:
        return value

    def part(self, value: Any, start: Any, stop: Any, stride: Any) -> Any:
        return value[start:stop:stride]


def _shown(value: Any) -> Any:
    """Charges for a value that is printed."""
    meter().spend(meter().weight(value))
    return value


class Rewriter(NodeTransformer):
    """Adds a step to each turn of loops and macros. Turns `a ~ b`, `a[i:j]`, `[a]`, `{a: b}` into calls, which cost."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self.generic_visit(node)
        match node:
            case nodes.For(test=nodes.Expr() as test):
                # Items that the test drops cost a turn too. A step returns None.
                taken = nodes.Not(_call("step", [], node.lineno), lineno=node.lineno)
                node.test = nodes.And(taken, test, lineno=node.lineno)
            case nodes.For() | nodes.Macro() | nodes.CallBlock():
                node.body = [nodes.ExprStmt(_call("step", [], node.lineno), lineno=node.lineno), *node.body]
            case nodes.Concat():
                return _call("text", list(node.nodes), node.lineno)
            case nodes.Getitem(arg=nodes.Slice() as cut):
                bounds = [bound or nodes.Const(None) for bound in (cut.start, cut.stop, cut.step)]
                return _call("part", [node.node, *bounds], node.lineno)
            case nodes.List(items=items) | nodes.Tuple(items=items, ctx="load") | nodes.Dict(items=items):
                if not all(isinstance(item, nodes.Const) for item in items):
                    return _call("made", [node], node.lineno)
            case _:
                pass
        return node


def _call(name: str, args: list[nodes.Expr], line: int) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), args, [], None, None, lineno=line)


@lru_cache(maxsize=16)
def compiled(template: str) -> jinja2.Template:
    """The compiled template. Call and render inside an `allowance`."""
    environment = MeteredEnvironment()
    tree = environment.parse(template)
    Rewriter().visit(tree)
    tree.set_environment(environment)
    return environment.from_string(tree)
