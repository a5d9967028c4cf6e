"""Tensors under the names of another class of the same family: with or without a prefix, or of another head."""

from collections.abc import Collection, Mapping
from typing import TypeVar

from clearhead.checkpoints.families.family import Document, Family, HeadMap
from clearhead.checkpoints.weights.mapping import Rule, leave_out, names_one_of
from clearhead.errors import UserError

T = TypeVar("T")


def respelled(
    family: Family, head: HeadMap, document: Document, tensors: Mapping[str, T], *, where: str
) -> dict[str, T]:
    """The tensors under the names that checkpoints of this class use, where they have those of another class."""
    others = sorted({"", *(one.prefix for one in family.heads)} - {head.prefix}, key=len, reverse=True)
    is_usual = {name: bool(head.prefix) and name.startswith(head.prefix) for name in tensors}
    odd = [name for name in tensors if not is_usual[name] and name.startswith((*others,))]
    if not odd:
        return dict(tensors)
    is_own = names_one_of(family.table(family.read(document, where=where)[0], head))
    names = {name: name for name in tensors}
    for name in odd:
        spellings = (head.prefix + name.removeprefix(one) for one in others if name.startswith(one))
        if not is_own(name) and (own := next((one for one in spellings if is_own(one)), None)) is not None:
            names[name] = own if own not in tensors else name
    return {names[name]: tensor for name, tensor in tensors.items()}


def other_heads(
    family: Family, head: HeadMap, document: Document, names: Collection[str], rules: list[Rule], *, where: str
) -> list[Rule]:
    """Rules that leave out the tensors of heads that this class does not have."""
    is_own = names_one_of(rules)
    left, found = [name for name in names if not is_own(name)], list[Rule]()
    for other in family.heads if left else ():
        if other is head:
            continue
        try:
            config, _ = family.read({**document, "architectures": [other.architecture]}, where=where)
        except UserError:
            continue
        is_theirs = names_one_of(family.table(config, other))
        if theirs := [name for name in left if is_theirs(name)]:
            found.append(leave_out(*theirs, because=f"{head.architecture} has no head of {other.architecture}"))
            left = [name for name in left if name not in theirs]
    return found
