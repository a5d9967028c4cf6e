"""`python -m benchmarks.operations NAME`: every tensor operation of one training step, with its shapes and its count.

Two commits whose lists are equal ask the same work of PyTorch. Where a machine's timings differ by more than what a
change may cost, `diff` of two such lists shows what no clock does.
"""

from collections import Counter

from cyclopts import App
from torch.profiler import ProfilerActivity, profile

from benchmarks.contestants.ours import Ours
from benchmarks.entry import run_command
from benchmarks.racing.training import BENCHMARKS

app = App(name="python -m benchmarks.operations", help="Every tensor operation of one training step.")
WARM_UP = 3
"""Steps before the counted one: the first ones choose precision and kernels."""


@app.default
def operations(name: str = "encdec-small") -> None:
    """Print one operation a line: its count, its name, the shapes of its inputs.

    Args:
        name: A training benchmark, such as encdec-small or gpt-small.
    """
    ours = Ours(BENCHMARKS[name].workload, None)
    ours.steps(WARM_UP)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
        ours.steps(1)
    counts = Counter((event.name, str(event.input_shapes)) for event in profiled.events() or ())
    for (operation, shapes), count in sorted(counts.items()):
        print(count, operation, shapes)


if __name__ == "__main__":
    run_command(app)
