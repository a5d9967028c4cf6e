"""`python -m tests.sidecars --cases 300`: counts of what changed folders came to, and every one that went wrong."""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import torch
import transformers

from tests.sidecars.models import run


def main() -> int:
    """Run the cases; 1 if one went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--all", action="store_true", help="print every case")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        for seed in range(chosen.first, chosen.first + chosen.cases):
            case, outcome = run(seed, Path(place))
            counts[outcome.kind] += 1
            if chosen.all or outcome.kind == "wrong":
                print(f"{seed} {outcome.kind}: {case.what}: {outcome.told}", file=sys.stderr)
    print(f"{chosen.cases} folders: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
