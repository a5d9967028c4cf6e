"""Writes ui/src/core/protocol.ts from the questions and answers of the explorer: `python -m tools.protocol`."""

import ast
import inspect
import sys
import textwrap
import types
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from typing_extensions import is_typeddict

from clearhead.analysis.overview import CURVES, HEADS, LANES, LEAST_WEIGHT, REGIONS, STRETCHES
from clearhead.config import StackName
from clearhead.explorer.answering.overview import DECIDES, TOGETHER
from clearhead.explorer.answering.questions import Asked
from clearhead.explorer.recording.facts import TensorFact
from clearhead.explorer.session import HANDLERS
from clearhead.model.ops import Op

FILE = Path(__file__).parents[1] / "ui" / "src" / "core" / "protocol.ts"
HEAD = """\
/** Generated from clearhead/explorer by `python -m tools.protocol`: the questions of a page, and the replies.
 *
 * A question is JSON: `ask` names a row of `Questions`, the other fields are its arguments. A reply is one safetensors
 * file whose `__metadata__.reply` holds the JSON part. core/host.ts says who answers.
 */

"""
SPARSE = (Asked, Op, TensorFact)
"""Models that are written without their defaults."""
ALWAYS = {"RunRequest": ["target", "edits"], "GenerateSettings": ["top_k", "top_p"]}
"""Fields that a page always states, though Python has defaults for them."""
NULLS = {"RunRequest": ["image", "step"], "WeightsQuestion": ["step"], "DifferenceQuestion": ["step"]}
"""Fields that a page may leave out or state as null. It leaves out all others whose default is None."""
ELSEWHERE = ["walks"]
"""Fields that a file of the page declares (core/walk.ts)."""
WIDTH = 120
NAMES = {
    "Answers": "ChangedAnswers",
    "EditRequest": "Edit",
    "Point": "FaithfulnessReply",
    "TensorFact": "Fact",
    "RecomputeCheck": "Check",
}
NUMBERS = {
    "HEADS": HEADS, "CURVES": CURVES, "LANES": LANES, "REGIONS": REGIONS, "STRETCHES": STRETCHES,
    "LEAST_WEIGHT": LEAST_WEIGHT, "TOGETHER": TOGETHER, "DECIDES": DECIDES,
}  # fmt: skip
"""The limits of an overview, which files keep too."""
PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", types.NoneType: "null", Any: "unknown"}


class Types:
    """The interfaces that the questions and replies need, in the order in which they are met."""

    def __init__(self) -> None:
        self.interfaces: dict[str, str] = {}

    def of(self, kind: Any) -> str:
        """The type in TypeScript."""
        if kind == StackName:
            return "StackName"
        if kind in PLAIN:
            return PLAIN[kind]
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Annotated, NotRequired):
            return self.of(args[0])
        if origin is Literal:
            return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in args)
        if origin in (Union, types.UnionType):
            return self.union(args)
        if origin is tuple and args[-1] is not ...:
            return f"[{', '.join(map(self.of, args))}]"
        if origin in (list, tuple, frozenset):
            inner = self.of(args[0])
            return f"({inner})[]" if " | " in inner else f"{inner}[]"
        if origin is dict:
            key = self.of(args[0])
            record = f"Record<{key}, {self.of(args[1])}>"
            return f"Partial<{record}>" if key == "StackName" else record
        if isinstance(kind, type) and (issubclass(kind, BaseModel) or is_typeddict(kind) or is_dataclass(kind)):
            return self.interface(kind)
        return "unknown"

    def union(self, members: tuple[Any, ...]) -> str:
        """Several models become one type with the fields of all, of which those that some lack are optional."""
        models = [
            member for member in members if isinstance(bare(member), type) and issubclass(bare(member), BaseModel)
        ]
        parts = [self.of(member) for member in members if member not in models]
        if len(models) == 1 or any(issubclass(bare(model), Asked) for model in models):
            parts[:0] = map(self.of, models)
        elif models:
            each = [self.fields(bare(model)) for model in models]
            names = dict.fromkeys(name for fields in each for name in fields)
            lines = []
            for name in names:
                kinds = [fields[name] for fields in each if name in fields]
                is_partial = len(kinds) < len(each) or any(optional for _, optional in kinds)
                values = dict.fromkeys(part for kind, _ in kinds for part in kind.split(" | "))
                lines.append(f"{name}{'?' * is_partial}: {' | '.join(values)}")
            parts.insert(0, f"{{ {'; '.join(lines)} }}")
        return " | ".join(dict.fromkeys(parts))

    def fields(self, model: type) -> dict[str, tuple[str, bool]]:
        """The type of each field, and whether it may be missing."""
        hints = get_type_hints(model, include_extras=True)
        if not issubclass(model, BaseModel):
            kinds = {name: kind for name, kind in hints.items() if name not in ELSEWHERE}
            return {name: (self.of(kind), get_origin(kind) is NotRequired) for name, kind in kinds.items()}
        always = ALWAYS.get(model.__name__, [])
        found = {}
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            is_optional = not field.is_required() and (default is None or isinstance(default, bool | BaseModel))
            is_optional = is_optional if issubclass(model, Asked) else not field.is_required()
            is_optional = is_optional and issubclass(model, SPARSE) and name not in always
            kind = self.of(hints[name])
            if is_optional and name not in NULLS.get(model.__name__, []):
                kind = kind.removesuffix(" | null")
            found[field.alias or name] = (kind, is_optional)
        return found

    def interface(self, model: type) -> str:
        """Adds an interface; its name."""
        name = NAMES.get(model.__name__, model.__name__)
        if name not in self.interfaces:
            self.interfaces[name] = ""
            is_told = issubclass(model, Asked) or not (is_dataclass(model) or issubclass(model, BaseModel))
            notes = comments(model) if is_told else {}
            lines = [""]
            for field, (kind, is_optional) in self.fields(model).items():
                note = notes.get(field) or notes.get(f"{field}_")
                row = f"{field}{'?' * is_optional}: {kind};"
                if note:
                    lines += [f"  /** {note} */", f"  {row}", ""]
                elif len(lines[-1]) + len(row) > WIDTH:
                    lines.append(f"  {row}")
                else:
                    lines[-1] = f"{lines[-1] or ' '} {row}"
            lines = [line for line in lines if line]
            said = f"/** {' '.join((model.__doc__ or '').split())} */\n"
            self.interfaces[name] = f"{said}export interface {name} {{\n" + "\n".join(lines) + "\n}\n"
        return name


def bare(kind: Any) -> Any:
    """A type without its annotations."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def comments(model: type) -> dict[str, str]:
    """The docstring below each field of a class and of those that it extends."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if kind.__module__.startswith("clearhead") and kind.__qualname__ == kind.__name__:
            try:
                body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
            except (OSError, TypeError):
                continue
            fields = body.body if isinstance(body, ast.ClassDef) else []
            for field, after in pairwise(fields):
                is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
                    found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def protocol() -> str:
    """The text of the file."""
    made, rows = Types(), []
    for name, handler in HANDLERS.items():
        asked = "object" if handler.question is Asked else made.of(handler.question)
        summary = (handler.question.__doc__ or "").splitlines()[0]
        rows.append(f"  /** {summary} */\n  {name}(asked: {asked}): {made.of(handler.reply)};")
    questions = "/** Every question by its name, with its arguments and its reply. */\nexport interface Questions {\n"
    parts = ['export type StackName = "encoder" | "decoder";\n', *made.interfaces.values()]
    numbers = ", ".join(f"{name} = {value}" for name, value in NUMBERS.items())
    parts.append(f"/** The limits of an overview (clearhead/analysis/overview.py). */\nexport const {numbers};\n")
    return HEAD + "\n".join([questions + "\n".join(rows) + "\n}\n", *parts])


if __name__ == "__main__":
    FILE.write_text(protocol(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")
