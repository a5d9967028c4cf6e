"""Four small models, trained for a second or two: what they say is a real answer, not noise.

Each is saved to a folder and loaded from it: the code that the page writes opens the same one.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from clearhead import config as c
from clearhead.api import Model
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import Words
from clearhead.text.tokenizers import Tokenizer
from tests.training.tiny import number_pairs

Batch = tuple[list[Tokens], Tensor]
"""What each stack reads, and what to say at each place; -100: nothing is asked there."""
NOTHING = -100
PAIRS = number_pairs(400)
TOKENIZER = Tokenizer.train([*PAIRS.source, *PAIRS.target], Words())
V = TOKENIZER.vocab_size
SIDE, PATCH = 16, 4
MOST = 24
"""Positions of the models that have a table of them."""


def stack(**fields: object) -> c.StackConfig:
    small = {"input": c.TokenInput(vocab_size=V), "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24}
    return c.StackConfig.model_validate({**small, **fields})


LEARNED = {"positions": c.Learned(max_length=MOST), "activation": "gelu"}
CONFIGS = {
    "translator": c.ModelConfig(encoder=stack(), decoder=stack(), share_embeddings=True, init=c.Init(std=0.25)),
    "writer": c.ModelConfig(decoder=stack(**{**LEARNED, "activation": "gelu_tanh"}, n_heads=4), init=c.Init(std=0.1)),
    "filler": c.ModelConfig(
        encoder=stack(input=c.TokenInput(vocab_size=V, n_types=2, norm=True), norm_place="post", **LEARNED),
        head=c.LanguageHead(transform=True, bias=True),
        init=c.Init(std=0.3, depth_scaled=False),
    ),
    "seer": c.ModelConfig(
        encoder=stack(
            input=c.PatchInput(image_size=SIDE, patch_size=PATCH),
            **{**LEARNED, "positions": c.Learned(max_length=(SIDE // PATCH) ** 2 + 1)},
        ),
        head=c.ClassificationHead(n_labels=4, labels=("rows", "columns", "checks", "dot")),
        init=c.Init(std=0.1, depth_scaled=False),
    ),
}

RATES = {"translator": 0.03, "writer": 0.02, "filler": 0.01, "seer": 0.02}


def trained(name: str, folder: Path, *, steps: int = 200) -> Model:
    """The model, after so many batches of what it should learn; saved in the folder."""
    torch.manual_seed(1)
    draw = random.Random(1)
    network = Transformer(CONFIGS[name]).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATES[name])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATES[name], total_steps=steps)
    for (inputs, wanted), _ in zip(TASKS[name](draw), range(steps), strict=False):
        loss = cross_entropy(network(*inputs).flatten(0, -2), wanted.flatten(), ignore_index=NOTHING)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    images = ImageProcessor(ImageConfig(size=PixelSize(height=SIDE, width=SIDE))) if name == "seer" else None
    words = None if name == "seer" else TOKENIZER
    model = Model(network.eval(), words, GenerationConfig(max_new_tokens=8), images=images)
    model.save(folder)
    return model


def random_model(config: c.ModelConfig, tokenizer: Tokenizer | None) -> Model:
    """A model that was not trained: with opinions, though not about anything."""
    torch.manual_seed(0)
    network = Transformer(config)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return Model(network.eval(), tokenizer)


# --- what they learn --------------------------------------------------------------------------------------------


def _rows(rows: list[list[int]], *, fill: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows])


def _translations(draw: random.Random) -> Iterator[Batch]:
    """Numbers, and the same in another language backwards."""
    eos, bos, pad = TOKENIZER.need("eos"), TOKENIZER.need("bos"), TOKENIZER.need("pad")
    sources, targets = (TOKENIZER.encode_batch(side) for side in (PAIRS.source, PAIRS.target))
    while True:
        chosen = draw.sample(range(len(sources)), 48)
        read = _rows([[*sources[i], eos] for i in chosen], fill=pad)
        written = _rows([[bos, *targets[i]] for i in chosen], fill=pad)
        said = _rows([[*targets[i], eos] for i in chosen], fill=NOTHING)
        yield [Tokens(read, valid=read != pad), Tokens(written, valid=written != pad)], said


def _counting(draw: random.Random) -> Iterator[Batch]:
    """Numbers that go up by one, from ten to one again."""
    numbers = TOKENIZER.encode("one two three four five six seven eight nine ten")
    while True:
        starts = [draw.randrange(10) for _ in range(48)]
        rows = torch.tensor([[numbers[(start + i) % 10] for i in range(9)] for start in starts])
        yield [Tokens(rows[:, :-1])], rows[:, 1:]


def _gaps(draw: random.Random) -> Iterator[Batch]:
    """The same rows, with words that are not known: say which they are."""
    unknown = TOKENIZER.need("unk")
    for _, rows in _counting(draw):
        hidden = torch.rand(rows.shape) < 0.25
        yield [Tokens(rows.masked_fill(hidden, unknown))], rows.masked_fill(~hidden, NOTHING)


def _pictures(draw: random.Random) -> Iterator[Batch]:
    rng = np.random.default_rng(draw.randrange(1000))
    while True:
        kinds = rng.integers(4, size=32)
        pixels = np.stack([picture(int(kind), rng) for kind in kinds]).astype(np.float32) / 127.5 - 1
        yield [Tokens(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())], torch.from_numpy(kinds)


def picture(kind: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Rows, columns, checks or a dot in two colours."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] + rng.integers(4)
    cy, cx = rng.integers(4, SIDE - 4, size=2)
    figure = (y // 2 % 2, x // 2 % 2, (x // 4 + y // 4) % 2, np.hypot(y - cy, x - cx) < 4)[kind]
    ground, ink = rng.integers(0, 90, size=3), rng.integers(160, 256, size=3)
    return np.where(figure[..., None], ink, ground).astype(np.uint8)


TASKS: dict[str, Callable[[random.Random], Iterator[Batch]]] = {
    "translator": _translations, "writer": _counting, "filler": _gaps, "seer": _pictures,
}  # fmt: skip
