"""A target of 124M and a draft of 15M, trained on the same text in minutes, for `benchmarks.speculative`.

Both begin as one trained model of 15M. The target is that model grown (`benchmarks.growth`), so that it need not learn
from nothing what the draft knows. Training then makes it a model of its own, which is kept after several
numbers of updates.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.growth import grown
from clearhead.api import Model, load
from clearhead.data.encoded import EncodedText
from clearhead.data.sequences import Sequences
from clearhead.model import Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.training import AdamW, Training, WarmupStableDecay
from clearhead.tasks.language_model import LanguageModel
from clearhead.text.tokenizers import Tokenizer
from clearhead.training.events import Stepped
from clearhead.training.run import Run
from clearhead.training.train import train

LENGTH = 256
"""Tokens of a training example."""
BATCH = 1024
"""Tokens of an update."""
N_VALID = 20
"""Examples at the end of the text that are kept from training."""
TARGET = {"d_model": 768, "n_heads": 16, "d_ff": 2560, "n_layers": 12}
"""123.7 million parameters, grown from the 15.2 million of stories15M."""
LR = {"draft": 3e-4, "target": 1e-4}


def make(folder: Path, start: Path, words: Path, text: str, *, draft_steps: int, steps: Sequence[int]) -> None:
    """Writes folder/draft, and folder/target-N for each number N of updates, unless all of them are there."""
    tokenizer = Tokenizer.load(words)
    ids = torch.tensor(tokenizer.encode(text))
    data = ids[: -N_VALID * LENGTH], ids[-N_VALID * LENGTH :]
    print(f"{len(data[0]):,} tokens to learn", flush=True)
    draft = load(folder / "draft" if (folder / "draft").is_dir() else start, dtype="float32").network

    def save(network: Transformer, name: str) -> None:
        Model(network, tokenizer, GenerationConfig(max_new_tokens=LENGTH // 2)).save(folder / name)

    if not (folder / "draft").is_dir():
        for _ in learn(draft, data, tokenizer, draft_steps, LR["draft"], seed=0):
            pass
        save(draft, "draft")
    if not all((folder / f"target-{n}").is_dir() for n in steps):
        target = grown(draft, TARGET)
        for step in learn(target, data, tokenizer, max(steps), LR["target"], seed=1):
            if step in steps:
                save(target, f"target-{step}")


def learn(
    network: Transformer, data: tuple[Tensor, Tensor], tokenizer: Tokenizer, n_steps: int, lr: float, *, seed: int
) -> Iterator[int]:
    """Trains in place, through the loop of `clearhead train lm`; yields 0 and the number of each update after it."""
    step = 0
    yield step
    if not n_steps:
        return
    train_text, valid_text = (EncodedText(Sequences.of([one.tolist()]), True, 1, "") for one in data)
    written = GenerationConfig(max_new_tokens=1, start_id=0)
    task = LanguageModel(tokenizer, train_text, valid_text, length=LENGTH, max_tokens=BATCH, generation=written)
    config = Training(
        steps=n_steps,
        evaluate_every=n_steps,
        max_tokens=BATCH,
        optimizer=AdamW(lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.01),
        schedule=WarmupStableDecay(warmup=max(1, n_steps // 10), decay_fraction=0.4),
        seed=seed,
        threads=torch.get_num_threads(),
        device="cpu",
        check_memory=False,
    )
    began = time.process_time()
    for event in train(Run(network, task, config, None)):
        if isinstance(event, Stepped):
            step = event.step
            if step % 20 == 0 or step < 4:
                took = time.process_time() - began
                print(f"update {step} of {n_steps}: loss {event.loss:.3f}, {took:.0f} CPU seconds", flush=True)
            yield step
    if step < n_steps:  # Training ends by itself on Ctrl-C.
        raise KeyboardInterrupt
