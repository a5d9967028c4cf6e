"""`python -m benchmarks.sweep`: a patching sweep over a GPT-2-small shape, and an attention score as a sum."""

import time

import torch
from cyclopts import App

from benchmarks.entry import run_command
from benchmarks.figures import Figure, show
from benchmarks.racing.machine import Machine
from clearhead.analysis.scores import split_score
from clearhead.analysis.shares import Shares
from clearhead.analysis.sweep import PARTS, PatchingSweep
from clearhead.checkpoints.families import preset
from clearhead.model import Transformer
from clearhead.model.heads import LanguageHead

FIRST, ALL = 2.0, 15.0

app = App(name="python -m benchmarks.sweep", help="Patching of all streams of a GPT-2-small shape, random weights.")


@app.default
def sweep(*, tokens: int = 20, model: str = "gpt2", threads: int | None = None, quick: bool = False) -> None:
    """Patch every state of one text into another that differs in all tokens, so that no patch is left out.

    Parameters
    ----------
    tokens: Tokens of each text.
    model: The preset.
    threads: Threads of PyTorch (default: all cores).
    quick: A small network, to see that everything works; its figures mean nothing.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    print(Machine.now(threads))
    torch.manual_seed(0)
    network = Transformer(preset("nano" if quick else model)).eval()
    assert isinstance(network.head, LanguageHead)
    vocab = network.head.output.out_features
    clean = torch.randint(vocab, (1, tokens))
    corrupt = (clean + 1) % vocab
    began, worked = time.perf_counter(), time.process_time()

    def since() -> tuple[float, float]:
        """Seconds by the clock, and of CPU time, which says on a busy machine what an idle one would take."""
        return time.perf_counter() - began, time.process_time() - worked

    patching = PatchingSweep(network, [clean], [corrupt], 1, minus=2)
    first: tuple[float, float] | None = None
    ends: dict[str, tuple[float, float]] = {}
    for part in PARTS:
        for _ in patching.rows(part):
            first = first or since()
        ends[part] = since()
        print(f"{part}: {len(patching.sites(part))} rows, until {ends[part][0]:.2f} s ({ends[part][1]:.2f} s of CPU)")
    assert first is not None
    print(f"the first row after {first[0]:.2f} s ({first[1]:.2f} s of CPU)")
    shares = Shares.traced(network, [clean])
    start, at = time.perf_counter(), f"decoder.blocks.{len(network.last_stack.blocks) - 1}.attn.scores"
    one = split_score(shares, f"{at}[h=0,t={tokens - 1},s=1]")
    split = time.perf_counter() - start
    figures = [
        Figure("seconds to the first row", first[0], FIRST, at_most=True),
        Figure(f"seconds to all {tokens} positions of all streams", ends["resid"][0], ALL, at_most=True),
        Figure("seconds to the terms of a score of the last block", split, 0.5, at_most=True),
        Figure("sum of its terms against the score", abs(one.total - one.score), 1e-5, at_most=True),
    ]
    if not quick:
        show(f"{model}, 2 x {tokens} tokens", figures)


if __name__ == "__main__":
    run_command(app)
