"""Requests for more memory than any machine has."""

import io
import json
import shlex
from contextlib import redirect_stderr
from pathlib import Path

from clearhead.cli import main
from tests.hostile import peak, reset_peak
from tests.reliability import Counted
from tests.training.tiny import write_recipe

MOST_BYTES = 256 << 20
"""How much a refusal may take, such as for the description of a thousand layers."""
WIDE, DEEP = {"d_model": 1 << 18, "d_ff": 1 << 20}, {"d_model": 1 << 15, "d_ff": 1 << 17, "n_layers": 256}
STACKS = (
    *(WIDE | {"n_layers": n} for n in (6, 64, 1024)),
    *(DEEP | {"n_heads": n} for n in (1, 8, 1024)),
    *({"d_model": 1 << n, "d_ff": 1 << n, "n_layers": 100} for n in (16, 18, 20)),
    {"d_ff": 1 << 32},
)
"""Sizes of a network, each of at least a hundred gigabytes."""


def oversize(folder: Path) -> Counted:
    """20 trainings, of a translator and of a language model."""
    recipe = write_recipe(folder)
    (folder / "book.txt").write_text("one two three four five\n" * 400, encoding="utf-8")
    starts = (["train", str(recipe)], ["train", "lm", "--text", str(folder / "book.txt")])
    broken, most = 0, 0
    _asked([*starts[0], "--training.steps", "0"])  # What is imported then counts for none.
    for start in starts:
        for i, sizes in enumerate(STACKS):
            out = folder / f"run-{start[1]}-{i}"
            before = reset_peak()
            code, says = _asked([*start, "--out", str(out), "--model.stacks", json.dumps(sizes)])
            grown = peak() - before
            most = max(most, grown)
            is_one_line = sum(line.startswith("error: ") for line in says.splitlines()) == 1 and "Traceback" not in says
            is_refused = code == 3 and is_one_line and not out.exists() and grown < MOST_BYTES
            if not is_refused:
                print(f"    {shlex.join(start)} {sizes}: {code}, {grown >> 20} MB: {says[-300:]}")
            broken += not is_refused
    n = len(starts) * len(STACKS)
    return Counted(n, broken, f"{n} trainings too large refused with at most {max(0, most) >> 20} MB allocated")


def _asked(words: list[str]) -> tuple[int, str]:
    """The exit code of a command, and what it says."""
    with redirect_stderr(io.StringIO()) as said:
        try:
            main(words)
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()
