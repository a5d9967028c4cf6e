"""What other packages add to this one, through entry points.

A package names what it adds in its pyproject.toml, and nothing of this package is edited:

    [project.entry-points."clearhead.tasks"]
    sorting = "my_package.sorting:Sorting"

The groups are `clearhead.tasks`, `clearhead.families`, `clearhead.mechanisms`, `clearhead.places` and
`clearhead.commands`. The parts of this package stand in tables of the same form, and are found in the same way.
"""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import Any, Literal

from clearhead.errors import UserError, reason

__all__ = ["extensions", "load_extension"]

Group = Literal["tasks", "families", "mechanisms", "places", "commands"]


@cache
def extensions(group: Group) -> Mapping[str, str]:
    """The extensions of a group by name: `module:object` of each. Raises UserError if two have the same name."""
    found: dict[str, str] = {}
    for point in entry_points(group=f"clearhead.{group}"):
        if found.setdefault(point.name, point.value) != point.value:
            raise UserError(
                f"clearhead.{group}: expected one extension named {point.name}, got {found[point.name]} and"
                f" {point.value}; uninstall one of the packages"
            )
    return found


def parts(group: Group, own: Mapping[str, str]) -> Mapping[str, str]:
    """The parts of this package and the extensions of a group: `module:object` of each by name.

    Raises UserError if an extension has the name of a part of this package.
    """
    added = extensions(group)
    if both := sorted(own.keys() & added.keys()):
        raise UserError(
            f"clearhead.{group}: expected another name than {both[0]}, which this package has, got"
            f" {added[both[0]]}; uninstall the package"
        )
    return {**own, **added}


def load_extension(group: Group, name: str, where: str) -> Any:
    """The object at `where`, which is `module:object`. Raises UserError if it cannot be imported."""
    try:
        return resolve_name(where)
    except Exception as error:  # The module of another package may raise anything.
        raise UserError(
            f"clearhead.{group}: expected {name} at {where}, got {reason(error)}; reinstall its package"
        ) from error
