"""`python -m benchmarks run NAME`: ours against the well-known libraries, interleaved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from benchmarks.entry import run_command
from benchmarks.page import write_all
from benchmarks.racing import tokenizing, training
from clearhead.errors import UserError

Flag = Annotated[bool, Parameter(negative="")]

app = App(name="python -m benchmarks", help="Speed against the well-known library, in one interleaved run.")


@app.command
def run(
    name: str,
    *,
    quick: Flag = False,
    json: Flag = False,
    threads: int | None = None,
    rounds: int | None = None,
    markdown: Path | None = None,
    data: Path = Path("../shared/data"),
    megabytes: float | None = None,
) -> None:
    """Race ours against the peers; 3 to 7 minutes on two cores that have nothing else to do.

    Args:
        name: encdec-small, encdec-base, gpt-small, gpt-small-fp32 or gpt-124m: a training step; tokenizers;
            encdec-small-compiled, gpt-small-compiled: ours against ours with compile = true.
        quick: A tiny network for seconds, to see that everything works; its figures mean nothing.
        json: Print the figures as one JSON object on the last line.
        threads: CPU threads of every contestant (default: PyTorch's).
        rounds: Turns of each contestant.
        markdown: Write the table here too.
        data: For tokenizers: a text file, or a folder of corpora.
        megabytes: For tokenizers: of text (default: 10); more than there is repeats it.
    """
    names = [*training.BENCHMARKS, "tokenizers"]
    if name not in names:
        raise UserError(f"{name}: expected one of {', '.join(names)}; try {names[0]}")
    if name == "tokenizers":
        report = tokenizing.measure(data=data, megabytes=megabytes, quick=quick, threads=threads, rounds=rounds)
    else:
        report = training.measure(name, quick=quick, threads=threads, rounds=rounds)
    print(report.markdown())
    if markdown is not None:
        markdown.write_text(report.markdown() + "\n", encoding="utf-8")
    if json:
        print(report.model_dump_json())


@app.command(name="all")
def every(
    *only: str,
    out: Path = Path("runs/benchmarks"),
    cap: str = "",
    data: Path = Path("../shared/data"),
    quick: Flag = False,
) -> None:
    """Measure everything, in about an hour, and write one page for this kind of processor.

    Args:
        only: encdec-small, gpt-small, gpt-124m, encdec-base, fine-tuning, decoding, tokenizers, serving, loading,
            explorer (default: all).
        out: Folder of the figures; what it holds is not measured again.
        cap: avx2, avx512 or avx512_bf16: as a processor with these instructions at most.
        data: Folder of corpora, for the tokenizers and fine-tuning.
        quick: Tiny networks, to see that everything works; the figures mean nothing.
    """
    print(write_all(out, cap, only, data=data, quick=quick))


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, or these words of one; a mistake of the user's is one line."""
    run_command(app, words)


if __name__ == "__main__":
    main()
