"""Shows what was decided about data, before the first step."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from clearhead.data.sniffing import Decision

ROLES = ("text", "text_pair", "label", "source", "target", "question", "context", "answer")


def show(decisions: Sequence[Decision]) -> None:
    """Prints the roles of columns as a table and other choices as lines, on standard error."""
    console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
    if columns := [one for one in decisions if one.what in ROLES]:
        table = Table("column", "role", "why", box=None, pad_edge=False, header_style="bold")
        table.add_column("example", no_wrap=True, max_width=max(console.width // 4, 12))
        for one in columns:
            table.add_row(one.value, one.what.replace("_", " "), one.why, " ".join(one.example.split()))
        console.print(table)
        options = dict.fromkeys(one.option for one in columns if one.option)
        console.print(f"change a column: {', '.join(options)}")
    for one in decisions:
        if one.what not in (*ROLES, "left out"):
            why, option = one.why and f" ({one.why})", one.option and f"; another: {one.option}"
            console.print(f"{one.what}: {one.value}{why}{option}")
    left: dict[str, list[str]] = {}
    for one in decisions:
        if one.what == "left out":
            left.setdefault(one.why, []).append(one.value)
    if left:
        each = (f"{', '.join(names)} ({why})" for why, names in left.items())
        console.print(f"left out: {'; '.join(each)}")
    sys.stderr.flush()
