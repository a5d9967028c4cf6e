"""What becomes here of a field that the reference library reads."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from clearhead.checkpoints.families import Family, HeadMap, families
from clearhead.checkpoints.families.decoders.two_kinds import GEMMA2
from clearhead.checkpoints.families.encoder_decoders.t5gemma import STACKS
from clearhead.checkpoints.families.pictures_and_sounds.any_size import QWEN2_5_TOWER, QWEN2_TOWER
from clearhead.checkpoints.weights.fields import Alias, Field, Ignored
from clearhead.errors import UserError

What = Literal["applied", "only one value", "ignored", "unread", "none"]
"""applied: it sets something, or moves into a field that does. only one value: others are refused. ignored: by name.
unread: listed in unread.toml, with the reason. none: it has no entry."""
OF_A_CONFIG_WITHIN = ("cross_attn_config",)
"""Names of variables that hold a config, not of fields."""
TOWERS = {"qwen2_vl": QWEN2_TOWER, "qwen2_5_vl": QWEN2_5_TOWER}
OWN = re.compile(r"^transformers\.models\.(?!auto\.)")


@cache
def listed(kind: str) -> frozenset[str]:
    """The fields of unread.toml of this kind."""
    table = tomllib.loads(Path(__file__).with_name("unread.toml").read_text())[kind]
    return frozenset(name for names in table.values() for name in names)


def what(family: Family, head: HeadMap, name: str, modules: frozenset[str]) -> What:
    """What becomes of a field that these modules read. One within a table counts as the table."""
    name = name.partition(".")[0]
    fields = family.map_of(head)
    if not fields.unknown([name]):
        entries = [one for one in fields.entries if not isinstance(one, Ignored) and one.theirs == name]
        return "ignored" if not entries else "applied" if isinstance(entries[0], Field | Alias) else "only one value"
    if _moves(family, name):
        return "applied"
    for stack in STACKS.values() if family.model_type == "t5gemma" else ():  # Its modules read the config of a stack.
        if name in OF_A_CONFIG_WITHIN or not stack.map_of(GEMMA2.heads[0]).unknown([name]):
            return "applied"
    tower = TOWERS.get(family.model_type)  # Whose code lies in the same file.
    if tower is not None and not tower.map_of(tower.heads[0]).unknown([name]):
        return "applied"
    own = any(OWN.search(module) for module in modules)
    return "unread" if name in listed("pictures" if own else "shared") else "none"


def _moves(family: Family, name: str) -> bool:
    """Whether the field moves into another one before the table is read."""
    try:
        return name not in family.modernize({name: None})
    except UserError:
        return False


def published() -> Mapping[str, list[tuple[Family, HeadMap]]]:
    """The families and heads of every class of the reference library."""
    import transformers

    found: dict[str, list[tuple[Family, HeadMap]]] = {}
    for family in families():
        for head in family.heads:
            if hasattr(transformers, head.architecture):
                found.setdefault(head.architecture, []).append((family, head))
    return found
