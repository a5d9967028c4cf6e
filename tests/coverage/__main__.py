"""`python -m tests.coverage` writes docs/coverage.md; `random` and `fields` look for silent differences.

python -m tests.coverage                                  # a verdict for every modelling folder
python -m tests.coverage random --configs 2000 --seed 0
python -m tests.coverage fields --only bert
"""

import argparse
import json
import os
import platform
import resource
import sys
import warnings
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.coverage import page
from tests.coverage.folders import folders, rows
from tests.coverage.outcome import WRONG
from tests.coverage.search import Tally, field_trials, named, random_trials

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 8 << 30
"""A random config may ask for more memory than there is: that is refused, where the system would end the run."""
SHARED_DATA = "CLEARHEAD_SHARED_DATA"
PAGE = ROOT / "docs" / "coverage.md"


def counts() -> Path:
    """The counts of the hub's repositories, beside the folder of real data."""
    return Path(os.environ.get(SHARED_DATA) or ROOT.parent / "shared" / "data").parent / "anchors" / "hub_counts.json"


def write(only: str) -> None:
    """Judges every folder and writes the page; with `only` prints the lines of those folders."""
    import torch
    import transformers

    done: list[page.Line] = []
    for one in (one for folder in folders() if only in folder for one in rows(folder)):
        found = page.line(one)
        print(f"{found.model_type}: {found.kind} {found.why}", file=sys.stderr)
        done.append(found)
    stamp = f"transformers {transformers.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    of_hub = json.loads(counts().read_text()) if counts().is_file() else None
    text = page.page(done, of_hub, f"{stamp}, {datetime.now(UTC):%Y-%m-%d}")
    if only:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
        print("\n".join(page.summary(done, of_hub, stamp)))


def search(given: argparse.Namespace) -> int:
    """Tries configs and prints what is wrong. Returns the number of errors."""
    tally = Tally()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    if given.what == "random":
        found = random_trials(first=given.first, n=given.configs, seed=given.seed, only=given.only)
    else:
        each = partial(field_trials, values=given.values, seed=given.seed)
        found = (trial for case in named(given.only) for trial in each(case))
    for number, trial in enumerate(found):
        tally.add(trial)
        if given.all or trial.found.what in WRONG:
            print(f"{number}: {trial}", flush=True)
    print(", ".join(f"{n} {name}" for name, n in tally.counts.most_common()))
    return len(tally.wrong)


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="page", choices=["page", "random", "fields"])
    parser.add_argument("--only", default="", help="in names of folders or classes; with commas, any of several")
    parser.add_argument("--configs", type=int, default=2000, help="configs that the reference builds")
    parser.add_argument("--first", type=int, default=0, help="the number of the first random config")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--values", type=int, default=100, help="values of each field at most")
    parser.add_argument("--all", action="store_true", help="print what became of each config")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    if given.what == "page":
        write(given.only)
    elif search(given):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
