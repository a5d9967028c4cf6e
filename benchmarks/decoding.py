"""`python -m benchmarks.decoding`: tokens written a second, ours against `transformers` and CTranslate2, in turn."""

import json as json_module
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, get_args

import torch
from cyclopts import App, Parameter

from benchmarks.contestants.decoder import Answer, Assignment, Kind
from benchmarks.entry import run_command
from benchmarks.figures import within
from benchmarks.racing.lines import Line, read_rate
from benchmarks.racing.machine import Machine, is_bf16_slow
from benchmarks.racing.processes import Process, in_turn, started
from clearhead.api import Model
from clearhead.checkpoints.families import preset
from clearhead.config import ModelConfig, Sinusoidal
from clearhead.errors import UserError
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer

Flag = Annotated[bool, Parameter(negative="")]

app = App(name="python -m benchmarks.decoding", help="Writing: ours against transformers and CTranslate2, in turn.")


@dataclass(frozen=True)
class Task:
    """What all write. Weights are drawn at random: what is written means nothing, and takes as long as anything."""

    preset: str
    n_inputs: int
    """In one batch."""
    n_read: int
    """Tokens of each prompt or source."""
    n_new: int
    unit: str
    beams: int = 1
    changes: tuple[tuple[str, int], ...] = ()
    """Other sizes, of every stack."""
    vocab_size: int = 50257


SMALL = (("d_model", 288), ("n_layers", 6), ("n_heads", 6), ("d_ff", 1152))
"""21 million parameters, 14 of them in the table of words."""
TASKS = {
    "lm-1": Task("gpt2", 1, 32, 128, "tokens"),
    "lm-8": Task("gpt2", 8, 32, 128, "tokens"),
    "lm-small": Task("gpt2", 1, 32, 128, "tokens", changes=SMALL),
    "translate-greedy": Task("transformer-base", 16, 24, 32, "sentences", vocab_size=32000),
    "translate-beam4": Task("transformer-base", 16, 24, 32, "sentences", beams=4, vocab_size=32000),
}
GOALS: dict[str, list[tuple[Kind, Kind, float]]] = {
    "lm-1": [
        ("clearhead fp32", "transformers fp32", 1.0),
        ("clearhead fp32", "ctranslate2 fp32", 1.0),
        ("clearhead scored", "ctranslate2 fp32", 1.0),
        ("clearhead int8", "ctranslate2 int8", 1.0),
        ("clearhead int4", "clearhead int8", 1.3),
    ],
    "lm-8": [("clearhead int8", "ctranslate2 int8", 1.0)],
    "lm-small": [],
    "translate-greedy": [],
    "translate-beam4": [("clearhead fp32", "transformers fp32", 2.0), ("clearhead int8", "ctranslate2 int8", 0.9)],
}
"""What we aim at: the first over the second, at least (docs/inference.md has what was reached)."""
ALONE: tuple[Kind, ...] = ("clearhead scored",)
"""Contestants that do nothing of their own but for a text that is written alone."""
QUICK = (("d_model", 64), ("n_layers", 1), ("n_heads", 2), ("d_ff", 128))


def network(task: Task) -> Transformer:
    """The network with new weights."""
    config = preset(task.preset)
    stacks = {"encoder": config.encoder, "decoder": config.decoder}
    changed = {}
    for name, stack in stacks.items():
        if stack is not None:
            reads = stack.input.model_copy(update={"vocab_size": task.vocab_size})
            # The layout of positions that the reference library has.
            waves = {"positions": Sinusoidal(layout="concatenated")} if stack.positions.kind == "sinusoidal" else {}
            changed[name] = stack.model_copy(update={"input": reads, **waves, **dict(task.changes)})
    torch.manual_seed(0)
    return Transformer(ModelConfig.model_validate({**dict(config), **changed}))


def prepare(task: Task, folder: Path) -> dict[str, Path | int]:
    """The model in both forms, with a tokenizer of numbered words, which CTranslate2 asks for."""
    from clearhead.cli.share.ctranslate2 import convert

    words = Tokenizer.train([" ".join(f"w{i}" for i in range(task.vocab_size))], Words(vocab_size=task.vocab_size))
    assert words.vocab_size == task.vocab_size
    ids = GenerationConfig(start_id=words.bos_id, end_ids=(words.need("eos"),), pad_id=words.pad_id)
    model = Model(network(task), words, ids)
    hf, ct2 = model.save(folder / "hf"), folder / "ct2"
    ct2.mkdir()
    convert(model, ct2, "float32", name=task.preset)
    return {"hf": hf, "ct2": ct2, "start_id": words.need("bos"), "eos_id": words.need("eos")}


# --- the race -------------------------------------------------------------------------------------------------------


class Writer(Process):
    """One contestant."""

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment.kind, "benchmarks.contestants.decoder", assignment.model_dump_json())
        self.kind = assignment.kind

    def turn(self) -> Answer:
        """Every input once."""
        return Answer.model_validate_json(self.ask(""))


def race(assignments: Sequence[Assignment], rounds: int) -> dict[Kind, list[Answer]]:
    """A turn that does not count, then rounds; who begins changes every round."""
    with started(Writer, assignments) as running:
        for one in running:
            one.turn()
        found: dict[Kind, list[Answer]] = {one.kind: [] for one in running}
        for i in range(rounds):
            for one in in_turn(running, i):
                found[one.kind].append(one.turn())
        return found


def rate(task: Task, answer: Answer, *, cpu: bool = False) -> float:
    """Tokens or sentences a second, of the clock or of processor time."""
    assert all(len(text) >= task.n_new - 1 for text in answer.texts), "a text ended early"
    n = task.n_inputs * (task.n_new if task.unit == "tokens" else 1)
    return n / (answer.cpu_seconds if cpu else answer.seconds)


BYTES_A_WEIGHT = {"fp32": 4, "scored": 4, "bf16": 2, "int8": 1, "int4": 0.5}


def report(
    name: str, task: Task, found: dict[Kind, list[Answer]], *, n_weights: int = 0, reads: float = 0.0
) -> tuple[str, list[Line]]:
    """The table, and each promised ratio: of medians, by the clock and by processor time.

    One text that is written alone reads every weight for each token, so its ceiling is what memory gives: `reads`
    bytes a second.
    """
    lines = [f"| {name} | {task.unit}/s | slowest to fastest | a CPU-second | peak GB |", "|---|---:|---:|---:|---:|"]
    rates = {kind: [rate(task, a) for a in turns] for kind, turns in found.items()}
    cpu_rates = {kind: [rate(task, a, cpu=True) for a in turns] for kind, turns in found.items()}
    for kind, turns in found.items():
        spread = f"{min(rates[kind]):.1f} to {max(rates[kind]):.1f}"
        peak = max(a.peak_gb for a in turns)
        lines.append(f"| {kind} | {median(rates[kind]):.1f} | {spread} | {median(cpu_rates[kind]):.1f} | {peak:.2f} |")
    ratios: list[Line] = []
    for mine, theirs, goal in GOALS[name]:
        if mine in rates and theirs in rates:
            ratio = median(rates[mine]) / median(rates[theirs])
            by_cpu = median(cpu_rates[mine]) / median(cpu_rates[theirs])
            each = [a / b for a, b in zip(rates[mine], rates[theirs], strict=True)]
            n_bytes = n_weights * BYTES_A_WEIGHT[mine.split()[1]]
            share = median(rates[mine]) * n_bytes / reads if reads and task.n_inputs * task.beams == 1 else None
            ratios.append(
                Line(
                    what=f"{name}, {mine}", peer=theirs, ratio=round(ratio, 3), low=min(each), high=max(each),
                    share=share, ceiling="memory",
                )
            )  # fmt: skip
            lines += ["", f"{mine} / {theirs}: **{ratio:.2f}** (by CPU time {by_cpu:.2f}; goal {goal})"]
    return "\n".join(lines), ratios


@app.default
def decoding(
    *,
    only: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    kinds: Annotated[tuple[Kind, ...], Parameter(negative="")] = (),
    rounds: int = 5,
    threads: int = 2,
    quick: Flag = False,
    json: Flag = False,
) -> None:
    """Write with each library in a process of its own, in turn; about ten minutes on two cores with nothing else to do.

    Parameters
    ----------
    only: Of lm-1, lm-8, lm-small, translate-greedy, translate-beam4 (default: all).
    kinds: Contestants (default: all but a slow bf16; log-probabilities where a text is written alone).
    rounds: Turns of each contestant, of which the median counts.
    threads: CPU threads of every contestant.
    quick: A tiny network, to see that everything works; its figures mean nothing.
    json: Print the ratios as one JSON object on the last line.
    """
    wrong = [name for name in only if name not in TASKS]
    if wrong:
        raise UserError(f"--only: expected one of {', '.join(TASKS)}, got {wrong[0]}; try {next(iter(TASKS))}")
    chosen: Sequence[Kind] = kinds or get_args(Kind)
    if not kinds and is_bf16_slow():
        chosen = [kind for kind in chosen if not kind.endswith("bf16")]

    def measure(scratch: Path) -> None:
        every: list[Line] = []
        reads = read_rate(threads)
        places: dict[Task, dict[str, Path | int]] = {}
        n_weights: dict[Task, int] = {}
        for name in only or TASKS:
            task = TASKS[name]
            if quick:
                task = replace(task, changes=QUICK, vocab_size=200, n_new=6, n_inputs=min(task.n_inputs, 2))
            model = replace(task, n_inputs=1, n_read=1, n_new=1, beams=1)
            if model not in places:
                (scratch / name).mkdir()
                places[model] = prepare(task, scratch / name)
                n_weights[model] = sum(w.numel() for w in network(task).parameters())
            generator = torch.Generator().manual_seed(1)
            rows = torch.randint(10, task.vocab_size, (task.n_inputs, task.n_read), generator=generator).tolist()
            common = {"inputs": rows, "new_tokens": task.n_new, "beams": task.beams}
            common["translates"] = task.unit == "sentences"
            assignments = [
                Assignment.model_validate({"kind": kind, "threads": threads, **common, **places[model]})
                for kind in chosen
                if kind not in ALONE or task.n_inputs == 1
            ]
            found = race(assignments, 1 if quick else rounds)
            table, lines = report(name, task, found, n_weights=n_weights[model], reads=reads)
            every += lines
            print(table + "\n", flush=True)
        machine = Machine.now(threads)
        print(
            f"{machine.processor} ({machine.capability}), {threads} threads on {machine.cores} cores,"
            f" load {machine.load}, {reads / 1e9:.0f} GB/s of memory; torch {machine.torch}, {machine.date}"
        )
        if json:
            print(json_module.dumps({"lines": [one.model_dump() for one in every]}))

    within(measure)


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, or these words of one; a mistake of the user's is one line."""
    run_command(app, words)


if __name__ == "__main__":
    main()
