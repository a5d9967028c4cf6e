"""`python -m benchmarks.convergence NAME`: whether what makes training fast costs anything in what is learned.

The same recipe, data, seeds and number of updates, three times: with all defaults; in plain float32, padded, with the
same optimizer; and so with AdamW. The losses are those of the validation split at the end, by each side's own
arithmetic.
"""

import math
from pathlib import Path
from statistics import mean
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.figures import Data, Figure, clearhead, show, within

WORSE = 1.005
"""Our loss over the plain one's, at most."""
PLAIN = {
    "precision": "fp32",
    "matmul_precision": "highest",
    "packed": "false",
    "attention": "fused",
    "chunked_loss": "false",
    "keep_freed_memory": "false",
}
ADAMW = {
    "shakespeare": '{"kind": "adamw", "lr": 3e-3, "betas": [0.9, 0.95]}',
    "multi30k": '{"kind": "adamw", "lr": 1e-3}',
}
FOLDERS = {"shakespeare": "tinyshakespeare", "multi30k": "multi30k"}
STEPS = {"shakespeare": 600, "multi30k": 2400}
Steps = Annotated[int | None, Parameter(help="Updates of each run (default: 600 and 2,400, about 10 minutes of ours).")]


app = App(name="python -m benchmarks.convergence", help="What is learned, fast against plain.")


@app.default
def convergence(
    name: str,
    *,
    seeds: int = 3,
    steps: Steps = None,
    same_optimizer: bool = True,
    data: Data = Path("../shared/data"),
) -> None:
    """Train shakespeare or multi30k with each side and seed.

    `--no-same-optimizer` leaves out the plain run with our optimizer.
    """
    n_steps = steps or STEPS[name]
    variants: dict[str, dict[str, str]] = {
        "defaults": {},
        **({"plain fp32, padded": PLAIN} if same_optimizer else {}),
        "plain fp32, padded, AdamW": {**PLAIN, "optimizer": ADAMW[name]},
    }

    def measure(scratch: Path) -> None:
        losses: dict[str, list[float]] = {variant: [] for variant in variants}
        for seed in range(seeds):
            for variant, changes in variants.items():
                options = {"steps": str(n_steps), "minutes": "null", "evaluate_every": "100000", **changes}
                line = [word for field, value in options.items() for word in (f"--training.{field}", value)]
                found = clearhead(
                    *("train", name, "--seed", str(seed), "--data.folder", str(data / FOLDERS[name]), *line),
                    *("--out", str(scratch / f"{variant}-{seed}")),
                )
                loss = math.log(found["perplexity"])
                losses[variant].append(loss)
                print(f"seed {seed}, {variant}: {loss:.4f} in {found['wall']:.0f} s", flush=True)
        ours, *others = (mean(losses[variant]) for variant in variants)
        show(
            f"{name}, {n_steps} updates, mean of {seeds} seeds",
            [
                Figure(f"defaults over {variant}", ours / other, WORSE, at_most=True)
                for variant, other in zip(list(variants)[1:], others, strict=True)
            ],
        )

    within(measure)


if __name__ == "__main__":
    run_command(app)
