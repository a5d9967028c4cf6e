"""`clearhead patch`."""

from itertools import groupby
from typing import Literal

from clearhead.cli.look.prompts import ONE_PAIR, SHOWN, Pairs, print_effects
from clearhead.cli.options import Device, Named, OneObject

WIDE = 7
"""Columns of a cell."""


def patch(
    model: Named,
    /,
    *,
    pairs: Pairs = ONE_PAIR,
    of: Literal["resid", "attn", "ffn", "heads", "all"] = "resid",
    json: OneObject = False,
    device: Device = "cpu",
) -> None:
    """Patch the states of one text into another, one at a time, and say how much of its answer each restores.

    Prints a row for each block, the last one first: 0 is the answer of the corrupt text, 1 that of the clean one. Texts
    of different lengths are aligned by their common tokens; a position that has no partner stays empty. With --pairs
    the numbers are means over the pairs, and the largest follow with their 95% bootstrap intervals.

    Args:
        of: The states: residual streams, attention outputs or feed-forward outputs by position, heads, or all of these.
    """
    from clearhead.api import load
    from clearhead.capture.prompts import read_prompt
    from clearhead.text.schemes import SPACE

    opened = load(model, device=device)
    found = pairs.measure(opened, "patch", of, name=model)
    if json:
        print_effects(found, json=True)
        return
    names: dict[str, list[str]] = {}
    if pairs.pairs is None and opened.has_tokenizer:
        read = zip(opened.network.stacks(), read_prompt(opened, pairs.read()[0]).sides[1], strict=True)
        names = {stack: opened.tokenizer.tokens(tokens.ids[0].tolist()) for stack, tokens in read}
    before = ""
    for at, row in groupby(found, key=lambda one: one.site.partition("[")[0]):
        stack, _, block, value = at.split(".", 3)
        cells, labels = dict[int, str](), dict(enumerate(names.get(stack, [])))
        for one in row:
            axis, _, where = one.site.removesuffix("]").partition("[")[2].partition("=")
            i, _, slot = where.partition(" ")
            labels |= {int(i): slot or f"h={i}"} if slot or axis == "h" else {}
            cells[int(i)] = f"{one.mean:.2f}"
        columns = range(max(cells) + 1)
        if before != (before := f"{stack} {value}"):
            shown = (labels.get(i, f"{i}").replace(SPACE, " ").strip()[: WIDE - 1] for i in columns)
            print(f"{before}\n{'block':>6}" + "".join(f"{label:>{WIDE}}" for label in shown))
        print(f"{block:>6}" + "".join(f"{cells.get(i, ''):>{WIDE}}" for i in columns), flush=True)
    if pairs.pairs is not None:
        print_effects(found, json=False, top=SHOWN)
