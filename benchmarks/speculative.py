"""`python -m benchmarks.speculative`: tokens a second with a draft over without, one text, in turn; the same tokens."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
from cyclopts import App, Parameter
from torch import Tensor

import clearhead
from benchmarks import speculative_models
from benchmarks.racing.machine import Machine
from clearhead.api import Model
from clearhead.errors import UserError
from clearhead.generation import Draft, Drafts, Finished, Sampler, generate
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig

app = App(name="python -m benchmarks.speculative", help="Speculative decoding over plain decoding, in turn.")
DATA = Path("../shared/data")


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


@app.default
def speculative(
    *,
    target: Path | None = None,
    draft: Path | None = None,
    make: Path | None = None,
    text: Path = DATA / "multi30k/val.en",
    words: Path = DATA / "tokenizers/gpt2",
    train: Path = DATA / "multi30k/train.en",
    steps: Annotated[tuple[int, int, int], Parameter(negative="")] = (800, 800, 400),
    texts: int = 12,
    new_tokens: int = 128,
    temperature: Annotated[tuple[float, ...], Parameter(negative="")] = (0.0, 0.8),
    int8: Annotated[bool, Parameter(negative="")] = False,
    threads: int = 1,
) -> None:
    """Write texts with a draft, by lookup and plainly, in turn.

    Parameters
    ----------
    target: Folder of the large model; with --make it is trained.
    draft: Folder of the small one.
    make: Folder for a target of 124M and a draft of 15M, trained on `train` where they are not there (half an hour).
    text: Text whose lines begin the texts.
    words: Tokenizer of the models that --make trains.
    train: Text that they learn.
    steps: Updates of the draft, of the target's first stage with 3 layers, and of its second with 12.
    texts: Texts to write in each way.
    new_tokens: Tokens of each.
    temperature: Of each race; 0 is greedy.
    int8: Also with the draft in eight bits.
    threads: CPU threads.
    """
    torch.set_num_threads(threads)
    if make is not None:
        updates = dict(zip(("draft", "first", "target"), steps, strict=True))
        speculative_models.make(make, train.read_text(encoding="utf-8"), words, updates)
        target, draft = make / "target", make / "draft"
    if target is None or draft is None:
        raise UserError("--target and --draft: expected two folders of models; or try --make FOLDER, which trains them")
    large, small = (clearhead.load(folder, dtype="float32") for folder in (target, draft))
    eight = clearhead.load(draft, int8=True).network if int8 else None
    prompts = beginnings(large, text, texts)
    for one in temperature:
        config = GenerationConfig(max_new_tokens=new_tokens, min_new_tokens=new_tokens, temperature=one, seed=1)
        drafts: dict[str, Draft | None] = {"none": None, "model": small.network, "lookup": "lookup"}
        if eight is not None:
            drafts["model in int8"] = eight
        found = race(large.network, drafts, prompts, config)
        print(f"\ntemperature {one}, {texts} texts of {new_tokens} tokens\n\n{table(found)}", flush=True)
        written = [[*prompt, *turn.tokens] for prompt, turn in zip(prompts, found["none"], strict=True)]
        same, most = torch.stack([agreement(large.network, small.network, row, config) for row in written]).mean(0)
        if one:
            print(f"\nguesses that agree: {same:.1%} by the same random number, {most:.1%} at most")
    print(f"\n{Machine.now(threads)}")


def beginnings(model: Model, text: Path, n: int) -> list[list[int]]:
    """The first 16 tokens from n places of the text, evenly spaced, each at the beginning of a line."""
    lines = text.read_text(encoding="utf-8").splitlines()
    places = range(0, len(lines) - 3, max(1, (len(lines) - 3) // n))
    return [model.tokenizer.encode("\n".join(lines[i : i + 3]))[:16] for i in places][:n]


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line, or these words of one; a mistake of the user's is one line."""
    try:
        app(words)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
