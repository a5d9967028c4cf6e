"""`clearhead lab`: the worked examples and the experiments."""

import json
from collections.abc import Sequence

from clearhead.errors import UserError


def examples_command(ids: Sequence[str], *, errata: bool, as_json: bool) -> None:
    """Prints the verdict of each record, or the page of those that do not reproduce."""
    from clearhead.lab.examples.records import chosen, numbers
    from clearhead.lab.examples.telling import lines, page
    from clearhead.lab.examples.verdicts import judged, tally

    if errata and as_json:
        raise UserError("examples: expected one of --errata and --json, got both; leave one of them out")
    records = chosen(ids)
    if errata:
        print(page(records), end="")
        return
    results = list(judged(records))
    if as_json:
        for one in results:
            printed = one.record.printed
            flat = list(numbers(printed)) if isinstance(printed, list) else printed
            print(json.dumps({"id": one.record.id, "printed": flat, "ours": one.ours, "verdict": one.verdict}))
        return
    print("\n".join(lines(results)).lstrip("\n"))
    print(f"\n{tally(results)}.\n✓ reproduces  ≈ off by rounding  ✗ wrong  · no printed answer  ? cannot be checked")
