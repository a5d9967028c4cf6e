"""`python -m tests.sidecars --cases 300`: what mutated folders came to, half models and half tokenizers."""

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers

from tests.sidecars import models, tokenizers

WRONG = "wrong"


def outcomes(n: int, first: int, place: Path) -> Iterator[tuple[str, str]]:
    """The kind of each outcome, and what to tell of it."""
    n_models = n // 2
    for seed in range(first, first + n_models):
        case, outcome = models.run(seed, place)
        yield outcome.kind, f"model {seed}: {case.what}: {outcome.told}"
    for case in tokenizers.cases(n - n_models, seed=first):
        kind, wrong = tokenizers.verdict(case)
        yield (kind, f"tokenizer {case.name}") if wrong is None else (WRONG, wrong)


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
        for kind, told in outcomes(chosen.cases, chosen.first, Path(place)):
            counts[kind] += 1
            if chosen.all or kind == WRONG:
                print(f"{kind}: {told}", file=sys.stderr)
    print(f"{chosen.cases} folders: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}")
    return 1 if counts[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())
