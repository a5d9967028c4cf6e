"""Several processes that train one network, and one of them is killed."""

import random
from pathlib import Path

from benchmarks import ranks
from tests.reliability import Counted


def strikes(folder: Path) -> Counted:
    """One of two processes killed at 20 moments of its run."""
    recipe, chance = ranks.write_recipe(folder, 30), random.Random(9)
    ranks.run(["train", recipe, "--out", folder / "one", "--training.save_every", "5"])
    slowest, worst, n = 0.0, 0.0, 20
    for i in range(n):
        ours = folder / str(i)
        wait = chance.uniform(0.0, 1.0)
        slowest = max(slowest, ranks.strike(ours, recipe, wait=wait, victim=i % 2))
        ranks.run(["resume", ours])
        worst = max(worst, ranks.difference(ours, folder / "one"))
    broken = (slowest > ranks.EXIT_WITHIN) + (worst > ranks.PROMISE)
    said = f"after {n} kills, all processes ended within {slowest:.1f} s,"
    said += f" and the losses of the resumed runs differed by at most {worst:.1g}"
    return Counted(n, broken, said)
