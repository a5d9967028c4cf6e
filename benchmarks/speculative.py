"""`python -m benchmarks.speculative`: tokens a second with a draft over without, one text, in turn; the same tokens."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import torch.nn.functional as F
from cyclopts import App, Parameter
from torch import Tensor

import clearhead
from benchmarks import speculative_models
from benchmarks.entry import run_command
from benchmarks.racing.machine import Machine
from benchmarks.served import ask, served
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.generation import Draft, Drafts, Finished, Sampler, generate
from clearhead.generation.decoding import PATIENCE, Decoding
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig

app = App(name="python -m benchmarks.speculative", help="Speculative decoding over plain decoding, in turn.")
DATA = Path("../shared/data")
N_JUDGED = 16
"""Examples of a text that no model has learned."""
ROWS = [1, 3, 5, 9]
"""Tokens of passes that are timed."""


@dataclass
class Turn:
    """One text."""

    tokens: tuple[int, ...]
    seconds: float
    cpu_seconds: float
    drafts: Drafts | None


def write(network: Transformer, prompt: Sequence[int], config: GenerationConfig, draft: Draft | None) -> Turn:
    """Write one text after a prompt."""
    began, cpu = time.perf_counter(), time.process_time()
    *_, last = generate(network, Tokens(torch.tensor([prompt])), config=config, draft=draft)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert isinstance(last, Finished)
    return Turn(last.hypotheses[0][0].tokens, took, cpu, last.drafts)


def race(
    network: Transformer, drafts: dict[str, Draft | None], prompts: Sequence[Sequence[int]], config: GenerationConfig
) -> dict[str, list[Turn]]:
    """Every prompt by each way to write; which comes first changes with each prompt."""
    for draft in drafts.values():  # Matrices are packed.
        write(network, prompts[0], config.model_copy(update={"max_new_tokens": 24}), draft)
    found: dict[str, list[Turn]] = {name: [] for name in drafts}
    order = list(drafts)
    for prompt in prompts:
        for name in order:
            found[name].append(write(network, prompt, config, drafts[name]))
        order = [*order[1:], order[0]]
    return found


def table(found: dict[str, list[Turn]]) -> str:
    """Medians over the texts of the gain over plain decoding on the same prompt."""
    lines = ["| draft | tokens/s | over plain | by CPU time | the same tokens | right guesses | tokens a pass |"]
    lines.append("|---|---:|---:|---:|---:|---:|---:|")
    plain = found["none"]
    for name, turns in found.items():
        rate = median(len(t.tokens) / t.seconds for t in turns)
        gain = median(p.seconds / t.seconds for p, t in zip(plain, turns, strict=True))
        by_cpu = median(p.cpu_seconds / t.cpu_seconds for p, t in zip(plain, turns, strict=True))
        same = sum(p.tokens == t.tokens for p, t in zip(plain, turns, strict=True))
        row = f"| {name} | {rate:.1f} | **{gain:.2f}** | {by_cpu:.2f} | {same} of {len(turns)} |"
        done = [t.drafts for t in turns if t.drafts is not None]
        guessed, right = sum(d.n_guessed for d in done), sum(d.n_right for d in done)
        tokens, passes = sum(d.n_tokens for d in done), sum(d.n_passes for d in done)
        lines.append(
            row + (f" {right / max(1, guessed):.1%} of {guessed} | {tokens / passes:.2f} |" if done else " | |")
        )
    return "\n".join(lines)


@torch.inference_mode()
def agreement(target: Transformer, draft: Transformer, text: Sequence[int], config: GenerationConfig) -> Tensor:
    """How often the draft's next token is the target's: by the same random number, and at most (2).

    The second is the sum of min(p, q), the acceptance rate of Leviathan et al. 2023, 3.2, which no method exceeds.
    """
    sampler = Sampler(config.model_copy(update={"temperature": config.temperature or 1.0}))
    logits = (network(torch.tensor([text]))[0].float() for network in (target, draft))
    p, q = (sampler.narrow(one).softmax(-1).double() for one in logits)
    ends = p.cumsum(-1), q.cumsum(-1)
    starts = ends[0] - p, ends[1] - q
    overlap = (torch.minimum(*ends) - torch.maximum(*starts)).clamp(min=0)
    return torch.stack([overlap.sum(-1).mean(), torch.minimum(p, q).sum(-1).mean()])


def over_http(
    folder: Path, draft: Path, prompts: Sequence[Sequence[int]], *, new_tokens: int, threads: int
) -> tuple[float, int]:
    """The gain of a draft in `clearhead serve` for one client, the median of all prompts, and how many texts agree."""
    with served(folder, threads, "--prefix-cache", "0", "--draft", str(draft)) as (url, _):
        gains, n_same = list[float](), 0
        for drafts in (True, False):
            ask(url, prompts[0], n_written=new_tokens, draft=drafts)  # Warm-up.
        for i, prompt in enumerate(prompts):
            order = (True, False) if i % 2 else (False, True)
            found = {drafts: ask(url, prompt, n_written=new_tokens, draft=drafts) for drafts in order}
            plain, fast = found[False], found[True]
            gains.append((plain.ended - plain.began) / (fast.ended - fast.began))
            n_same += plain.tokens == fast.tokens
    return median(gains), n_same


@torch.inference_mode()
def judged(networks: Sequence[Transformer], text: Sequence[int]) -> tuple[list[float], float]:
    """The loss of a target and of its draft on a text, and the share of places with the same likeliest token."""
    size = speculative_models.LENGTH
    rows = torch.tensor(text[: len(text) // size * size]).view(-1, size)
    logits = [torch.cat([network(row[None])[:, :-1].float() for row in rows]) for network in networks]
    losses = [float(F.cross_entropy(one.flatten(0, 1), rows[:, 1:].flatten())) for one in logits]
    first, second = (one.argmax(-1) for one in logits)
    return losses, float((first == second).float().mean())


def costs(network: Transformer, prompt: Sequence[int], rows: Sequence[int], *, rounds: int = 7) -> list[float]:
    """Milliseconds of CPU time of a pass over so many tokens after a prompt, the numbers in turn."""
    decoding = Decoding(network)
    decoding.feed(Tokens(torch.tensor([prompt])))
    n, found = decoding.n_read, {n: list[float]() for n in rows}
    for i in range(PATIENCE + rounds):
        for t in rows:
            began = time.process_time()
            decoding.logits(Tokens(torch.tensor([[*prompt, *prompt][:t]])), t)
            found[t] += [time.process_time() - began] if i >= PATIENCE else []
            decoding.cut(n)
    return [1000 * median(took) for took in found.values()]


@app.default
def speculative(
    *,
    target: Annotated[tuple[Path, ...], Parameter(negative="")] = (),
    draft: Path | None = None,
    make: Path | None = None,
    text: Path = DATA / "multi30k/val.en",
    start: Path = DATA / "checkpoints/stories15M",
    words: Path = DATA / "tokenizers/llama2",
    train: Path = DATA / "multi30k/train.en",
    draft_steps: int = 150,
    steps: Annotated[tuple[int, ...], Parameter(negative="")] = (0, 25, 100),
    texts: int = 12,
    new_tokens: int = 128,
    temperature: Annotated[tuple[float, ...], Parameter(negative="")] = (0.0, 0.8),
    no_repeat_ngram: int | None = None,
    serve: Annotated[bool, Parameter(negative="")] = False,
    threads: int = 1,
) -> None:
    """Write texts with a draft, by lookup and plainly, in turn.

    Parameters
    ----------
    target: Folders of large models; with --make they are trained.
    draft: Folder of the small one.
    make: Folder for a target of 124M and a draft of 15M, trained on `train` where they are not there (15 minutes).
    text: Text that no model has learned. Its lines begin the texts.
    start: Model that --make begins with.
    words: Its tokenizer.
    train: Text that both learn.
    draft_steps: Updates of the draft.
    steps: Updates of the target, a grown draft, after each of which it is a target of its own.
    texts: Texts to write in each way.
    new_tokens: Tokens of each.
    temperature: Of each race; 0 is greedy.
    no_repeat_ngram: So many tokens occur once at most, so that a greedy text does not run in circles.
    serve: Only by one client of `clearhead serve`, greedily.
    threads: CPU threads.
    """
    torch.set_num_threads(threads)
    if make is not None:
        speculative_models.make(
            make, start, words, train.read_text(encoding="utf-8"), draft_steps=draft_steps, steps=steps
        )
        target, draft = tuple(make / f"target-{n}" for n in steps), make / "draft"
    if not target or draft is None:
        raise UserError("--target and --draft: expected two folders of models; or try --make FOLDER, which trains them")
    small, eight = clearhead.load(draft, dtype="float32"), clearhead.load(draft, int8=True)
    for folder in target:
        large = clearhead.load(folder, dtype="float32")
        prompts = beginnings(large, text, texts)
        if serve:
            gain, n_same = over_http(folder, draft, prompts, new_tokens=new_tokens, threads=threads)
            print(f"{folder.name} by one client: {gain:.2f} over plain, {n_same} of {len(prompts)} texts the same")
            continue
        drafts: dict[str, Draft | None] = {"none": None, "model in int8": eight.network}
        if folder == target[-1]:
            drafts |= {"model": small.network, "lookup": "lookup"}
        ids = large.tokenizer.encode(text.read_text(encoding="utf-8"))
        print(f"\n{folder.name}: {described(large.network, small.network, eight.network, ids)}")
        for one in temperature:
            config = GenerationConfig(
                max_new_tokens=new_tokens,
                min_new_tokens=new_tokens,
                temperature=one,
                seed=1,
                no_repeat_ngram=no_repeat_ngram,
            )
            raced(large.network, small.network, drafts, prompts, config)
    print(f"\n{Machine.now(threads)}")


def described(large: Transformer, small: Transformer, eight: Transformer, ids: Sequence[int]) -> str:
    """How good both are and how alike on a text, and what a pass and a guess take."""
    losses, same = judged((large, small), ids[: N_JUDGED * speculative_models.LENGTH])
    passes = ", ".join(f"{ms:.1f}" for ms in costs(large, ids[:32], ROWS))
    guesses = ", ".join(f"{costs(one, ids[:32], [1])[0]:.2f}" for one in (eight, small))
    return (
        f"loss {losses[0]:.3f}, the draft's {losses[1]:.3f}; likeliest token the same: {same:.1%}\n"
        f"ms of a pass over {ROWS} tokens: {passes}; of a guess in int8, in float32: {guesses}"
    )


def raced(
    large: Transformer,
    small: Transformer,
    drafts: dict[str, Draft | None],
    prompts: Sequence[Sequence[int]],
    config: GenerationConfig,
) -> None:
    """Prints the table of a race, and how often sampled guesses can agree."""
    found = race(large, drafts, prompts, config)
    print(
        f"\ntemperature {config.temperature}, {len(prompts)} texts of {config.max_new_tokens} tokens\n\n{table(found)}",
        flush=True,
    )
    written = [[*prompt, *turn.tokens] for prompt, turn in zip(prompts, found["none"], strict=True)]
    same, most = torch.stack([agreement(large, small, row, config) for row in written]).mean(0)
    if config.temperature:
        print(f"\nguesses that agree: {same:.1%} by the same random number, {most:.1%} at most")


def beginnings(model: Model, text: Path, n: int) -> list[list[int]]:
    """The first 16 tokens from n places of the text, evenly spaced, each at the beginning of a line."""
    lines = text.read_text(encoding="utf-8").splitlines()
    places = range(0, len(lines) - 3, max(1, (len(lines) - 3) // n))
    return [model.tokenizer.encode("\n".join(lines[i : i + 3]))[:16] for i in places][:n]


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, or these words of one; a mistake of the user's is one line."""
    run_command(app, words)


if __name__ == "__main__":
    main()
