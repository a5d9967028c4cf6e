"""Tensor tables, one for each family, which convert names both ways.

A name may hold fields: `h.{i}.ln_1.{p}` stands for every layer i and every parameter p. Each tensor must be
used exactly once; an error names one that is not. Loading copies nothing: our tensors are views of theirs. Imports no
torch before a tensor is converted.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from clearhead.brief import brief
from clearhead.checkpoints.weights.documents import shown
from clearhead.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

OLDER = {"gamma": "weight", "beta": "bias"}
"""Names of a norm's parameters in older checkpoints -> ours."""
AGAIN = "try the config.json it was saved with"

Tensors: TypeAlias = "dict[str, Tensor]"
Turn: TypeAlias = "Callable[[Sequence[Tensor]], Sequence[Tensor]]"


def _as_they_are(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
    return tensors


@dataclass(frozen=True)
class Rule:
    """Tensors of theirs and the tensors of ours that hold the same numbers."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    load: Turn = _as_they_are
    save: Turn = _as_they_are
    copies: bool = False
    """Whether theirs repeats a tensor of another rule. It may then be absent, and is not written."""
    note: str | None = None
    """The reason, which users see, why theirs is left out; empty if theirs follows from the config."""
    writes: bool = False
    """Whether theirs is written although no tensor of ours holds it."""
    turned: bool = False
    """Whether a matrix of theirs is ours transposed."""
    columns: bool = False
    """Whether the columns of theirs, not its rows, lie in another order."""


def rename(theirs: str, ours: str) -> Rule:
    """Rename a tensor."""
    return Rule((theirs,), (ours,))


def renames(theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rename modules within `theirs`, if it is named, to modules within `ours`, with all their parameters."""
    within = f"{theirs}." if theirs else ""
    return tuple(rename(f"{within}{there}.{{p}}", f"{ours}.{here}.{{p}}") for there, here in names.items())


def modules(stack: str, block: str, names: Mapping[str, str]) -> tuple[Rule, ...]:
    """Rename modules to those of a stack, with all their parameters.

    Our names that begin with attn, mix, cross or ffn are parts of a block, whose name there is `block`.
    """
    return tuple(
        rename(f"{block}.{theirs}.{{p}}", f"{stack}.blocks.{{i}}.{ours}.{{p}}")
        if ours.startswith(("attn", "mix", "cross", "ffn"))
        else rename(f"{theirs}.{{p}}", f"{stack}.{ours}.{{p}}")
        for theirs, ours in names.items()
    )


def sides(stack: str, order: str = "qkv") -> list[str]:
    """The names of a stack's queries, keys and values."""
    return [f"{stack}.blocks.{{i}}.attn.{side}.{{p}}" for side in order]


def transpose(theirs: str, ours: str) -> Rule:
    """A matrix that is stored transposed."""
    return Rule((theirs,), (ours,), lambda t: [_turned_over(t[0])], lambda t: [t[0].mT.contiguous()], turned=True)


def _turned_over(tensor: "Tensor") -> "Tensor":
    if tensor.ndim != 2:
        raise UserError(f"expected a matrix, got shape {list(tensor.shape)}")
    return tensor.mT


def split(theirs: str, ours: Sequence[str], *, transposed: bool = False) -> Rule:
    """One tensor of theirs holds several equal ones of ours, one below the other, or with `transposed` side by side."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = _turned_over(tensors[0]) if transposed else tensors[0]
        if whole.ndim == 0 or len(whole) % len(ours):
            raise UserError(f"expected {len(ours)} equal parts, got shape {list(tensors[0].shape)}")
        return whole.chunk(len(ours))

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        whole = torch.cat(tuple(tensors))
        return [whole.mT.contiguous() if transposed else whole]

    return Rule((theirs,), tuple(ours), load, save, turned=transposed)


def reshape(theirs: str, ours: str, *, there: Sequence[int], here: Sequence[int]) -> Rule:
    """Reshape a tensor, with its numbers in the same order."""

    def turn(old: Sequence[int], new: Sequence[int]) -> Turn:
        def apply(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
            if list(tensors[0].shape) != list(old) or prod(old) != prod(new):
                raise UserError(f"expected shape {list(old)}, got {list(tensors[0].shape)}")
            return [tensors[0].reshape(tuple(new))]

        return apply

    return Rule((theirs,), (ours,), turn(there, here), turn(here, there))


def tie(theirs: str, ours: str) -> Rule:
    """Theirs is a second copy of ours. It may be absent, must be equal if present, and is not written."""
    return Rule((theirs,), (ours,), copies=True)


def ignore(*theirs: str) -> Rule:
    """Buffers that follow from the config: masks, position numbers, frequencies."""
    return Rule(theirs, (), note="")


def derive(theirs: str, make: "Callable[[], Tensor]") -> Rule:
    """A buffer that follows from the config, but that the other library needs in the file."""
    return Rule((theirs,), (), save=lambda _: [make()], note="", writes=True)


def leave_out(*theirs: str, because: str) -> Rule:
    """Trained tensors that this network does not use. A message gives the reason why they are left out."""
    return Rule(theirs, (), note=because)


# --- reading a table ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """Tensors under our names, the origin of each, and the tensors left out with the reasons."""

    __repr__ = brief

    tensors: Tensors
    origin: dict[str, str]
    left_out: dict[str, str]


def load(rules: Sequence[Rule], theirs: "Mapping[str, Tensor]", *, where: str) -> Loaded:
    """Theirs -> ours. Raises UserError for a tensor that no rule names, and for a copy that is not equal."""
    left = dict(theirs)
    found = Loaded({}, {}, {})
    copies: list[tuple[str, Tensor, str]] = []
    for rule in rules:
        if rule.note is not None:
            for name in [name for name in left if any(_pattern(p).fullmatch(name) for p in rule.theirs)]:
                del left[name]
                if rule.note:
                    found.left_out[name] = rule.note
            continue
        for values in _matches(rule.theirs, left):
            sources = _filled(rule.theirs, values)
            tensors, origin = [_take(left, name, where) for name in sources], sources[0]
            turned = _turned(rule.load, tensors, origin, where)
            ours = _filled(rule.ours, {field: OLDER.get(value, value) for field, value in values.items()})
            if rule.copies:
                copies.append((origin, turned[0], ours[0]))
                continue
            origins = sources if len(sources) == len(ours) else [origin] * len(ours)
            for name, tensor, origin in zip(ours, turned, origins, strict=True):
                if name in found.tensors:
                    raise UserError(f"{where}:{origin}: expected one source of {name}, got {found.origin[name]} too")
                found.tensors[name], found.origin[name] = tensor, origin
    for name, tensor, original in copies:
        _check_copy(name, tensor, found, original, where)
    _drop_idle(left, found)
    if left:
        name, tensor = min(left.items(), key=lambda item: item[0])
        place = f"{where}:{shown(name)}"
        raise UserError(f"{place}: expected no such tensor in this architecture, got {list(tensor.shape)}; {AGAIN}")
    return found


def _drop_idle(left: Tensors, found: Loaded) -> None:
    """Leaves out biases of zeros, as quantizers add them to maps without a bias."""
    used = {*found.origin.values()}
    for name in [name for name in left if name.endswith(".bias") and f"{name[:-4]}weight" in used]:
        if not left[name].any():
            del left[name]
            found.left_out[name] = "a bias of zeros changes nothing"


def save(rules: Sequence[Rule], ours: "Mapping[str, Tensor]") -> Tensors:
    """Ours -> theirs: the inverse of `load`, without copies and tensors that were left out."""
    left = dict(ours)
    theirs: Tensors = {}
    for rule in rules:
        if rule.writes:
            theirs |= zip(rule.theirs, rule.save([]), strict=True)
        if rule.copies or rule.note is not None:
            continue
        for values in _matches(rule.ours, left):
            tensors = [left.pop(name) for name in _filled(rule.ours, values)]
            theirs |= zip(_filled(rule.theirs, values), rule.save(tensors), strict=True)
    assert not left, f"no rule writes {sorted(left)}"
    return theirs


def names_one_of(rules: Sequence[Rule]) -> "Callable[[str], bool]":
    """Returns a function that tells whether one of these rules names a tensor of theirs."""
    patterns = [_pattern(name) for rule in rules for name in rule.theirs]
    return lambda name: any(pattern.fullmatch(name) for pattern in patterns)


def origins(rules: Sequence[Rule], ours: Iterable[str]) -> dict[str, str]:
    """Our names -> their names, for messages."""
    left = dict.fromkeys(ours)
    return {
        name: _filled(rule.theirs, values)[0]
        for rule in reversed(rules)  # of several names, the first
        if not rule.copies and rule.note is None
        for pattern in rule.ours
        for values in _matches((pattern,), left)
        for name in _filled((pattern,), values)
    }


@dataclass(frozen=True)
class Pair:
    """The name of one of their tensors, and the names of the tensors of ours that together contain its numbers."""

    theirs: str
    ours: tuple[str, ...]
    rule: Rule

    def divided(self, up: "Tensor", down: "Tensor") -> "tuple[Sequence[Tensor], Tensor]":
        """Divides a change B A of their tensor: B for each of our tensors, and the A that these share."""
        if self.rule.columns:
            return [up], self.rule.load([down])[0]
        return self.rule.load([up.mT if self.rule.turned else up]), down

    def composed(self, ups: "Sequence[Tensor]", down: "Tensor") -> "tuple[Tensor, Tensor]":
        """The inverse of `divided`."""
        if self.rule.columns:
            return ups[0], self.rule.save([down])[0]
        whole = self.rule.save(ups)[0]
        return (whole.mT if self.rule.turned else whole).contiguous(), down


def pairs(rules: Sequence[Rule], ours: Iterable[str]) -> list[Pair]:
    """The tensors of theirs that hold the numbers of these of ours, in their order; those of several are left out."""
    left = dict.fromkeys(ours)
    found: list[Pair] = []
    for rule in rules:
        if rule.copies or rule.note is not None:
            continue
        if len(rule.theirs) == 1:
            matches = _matches(rule.ours, left)
            found += (Pair(_filled(rule.theirs, v)[0], tuple(_filled(rule.ours, v)), rule) for v in matches)
        elif rule.load is _as_they_are:
            plain = (rename(*names) for names in zip(rule.theirs, rule.ours, strict=True))
            found += pairs([*plain], left)
    return found


def _filled(patterns: Sequence[str], values: Mapping[str, str]) -> list[str]:
    return [pattern.format(**values) for pattern in patterns]


def _matches(patterns: Sequence[str], names: Mapping[str, object]) -> list[dict[str, str]]:
    """The fields of every name that fits the first pattern."""
    first = _pattern(patterns[0])
    return [match.groupdict() for name in names if (match := first.fullmatch(name))]


@cache
def _pattern(name: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", name)
    return re.compile("".join(f"(?P<{p[1:-1]}>[^.]+)" if p.startswith("{") else re.escape(p) for p in parts))


def _take(left: Tensors, name: str, where: str) -> "Tensor":
    if name not in left:
        raise UserError(f"{where}:{shown(name)}: expected a tensor, got none; try the complete checkpoint")
    return left.pop(name)


def _turned(turn: Turn, tensors: "Sequence[Tensor]", name: str, where: str) -> "Sequence[Tensor]":
    try:
        return turn(tensors)
    except UserError as error:
        raise UserError(f"{where}:{shown(name)}: {error}; {AGAIN}") from None
    except (RuntimeError, IndexError, TypeError, ValueError):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
        raise UserError(f"{where}:{shown(name)}: expected another shape, got {shapes}; {AGAIN}") from None


def _same(a: "Tensor", b: "Tensor") -> bool:
    """Returns True if two tensors share their memory or are equal."""
    import torch

    alike = (a.dtype, a.shape) == (b.dtype, b.shape)
    return alike and (a.data_ptr() == b.data_ptr() or torch.equal(a, b))


def _check_copy(name: str, copy: "Tensor", found: Loaded, original: str, where: str) -> None:
    """Raises UserError if two stored copies of a tied tensor differ. Uses the copy if the original is missing."""
    if original not in found.tensors:
        found.tensors[original], found.origin[original] = copy, name
    elif not _same(copy, found.tensors[original]):
        raise UserError(
            f"{where}:{name}: expected the numbers of {found.origin[original]}, to which the config ties it, got"
            " others; try tie_word_embeddings = false in config.json"
        )


# --- rows in another order -----------------------------------------------------------------------------------------


def fused(theirs: str, ours: Sequence[str], *, rows: Sequence[int], groups: int = 1) -> Rule:
    """Theirs holds `groups` groups of rows; each group has rows[0] of ours[0], then rows[1] of ours[1], and so on."""

    def load(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        whole = tensors[0]
        if whole.ndim == 0 or len(whole) != groups * sum(rows):
            raise UserError(f"expected {groups * sum(rows)} rows, got shape {list(whole.shape)}")
        return [part.flatten(0, 1) for part in whole.unflatten(0, (groups, sum(rows))).split(list(rows), 1)]

    def save(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        import torch

        parts = [tensor.unflatten(0, (groups, n)) for tensor, n in zip(tensors, rows, strict=True)]
        return [torch.cat(parts, 1).flatten(0, 1)]

    return Rule((theirs,), tuple(ours), load, save)


def turned_first(rule: Rule, *places: int, width: int, turned: int) -> Rule:
    """The same rule for heads of `width` rows whose last `turned` ones rotate; ours are the first."""

    def rolled(tensor: "Tensor", n: int) -> "Tensor":
        return tensor.unflatten(0, (-1, width)).roll(n, 1).flatten(0, 1)

    return _each(rule, places, lambda tensor: rolled(tensor, turned), lambda tensor: rolled(tensor, -turned))


def paired(rule: Rule, *places: int, width: int, rotated: int) -> Rule:
    """The same rule for heads that rotate neighbours, (0, 1), (2, 3), ...; ours rotate halves, (0, r/2), (1, r/2 + 1).

    `places` are the numbers of the queries and keys among ours, whose heads have `width` rows, `rotated` of which turn.
    """

    def gridded(tensor: "Tensor", grid: tuple[int, int]) -> "Tensor":
        import torch

        heads = tensor.unflatten(0, (-1, width))
        turned = heads[:, :rotated].unflatten(1, grid).transpose(1, 2).flatten(1, 2)
        return torch.cat([turned, heads[:, rotated:]], 1).flatten(0, 1)

    half = rotated // 2
    return _each(rule, places, lambda tensor: gridded(tensor, (half, 2)), lambda tensor: gridded(tensor, (2, half)))


def squeezed(rule: Rule) -> Rule:
    """The same rule for tensors of theirs with an axis of length 1 after the first."""
    return _each(rule, range(len(rule.ours)), lambda tensor: tensor.flatten(1), lambda tensor: tensor[:, None])


def _each(
    rule: Rule, places: Sequence[int], load: "Callable[[Tensor], Tensor]", save: "Callable[[Tensor], Tensor]"
) -> Rule:
    """The same rule, after which these of our tensors are turned, and before which they are turned back."""

    def each(turn: "Callable[[Tensor], Tensor]", tensors: "Sequence[Tensor]") -> "list[Tensor]":
        return [turn(tensor) if i in places else tensor for i, tensor in enumerate(tensors)]

    return replace(
        rule,
        load=lambda tensors: each(load, rule.load(tensors)),
        save=lambda tensors: rule.save(each(save, tensors)),
    )
