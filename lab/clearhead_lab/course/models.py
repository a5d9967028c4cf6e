"""The small models of the course, each trained in seconds: `translator`, `writer`, `filler`, `seer`, `speller`.

They train in float64, so that another processor's rounding does not change a printed digit.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy

import clearhead
from clearhead import config as c
from clearhead.api import Model
from clearhead.data.images import ImageConfig, ImageProcessor, PixelSize
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.recipe.tokenizers import BPE, Words
from clearhead.text.special_tokens import with_mask
from clearhead.text.tokenizers import Tokenizer
from clearhead_lab.course.corpus import pairs, people

PAIRS = pairs(1600)
"""The sentences that the models learn from."""
_SEEN = frozenset(PAIRS)
UNSEEN = [pair for pair in pairs(1900) if pair not in _SEEN]
"""Sentences that no model has seen."""
PEOPLE = people()
"""Sentences of a kind that no model has seen; `tuned` learns from some."""
IGNORED = -100
SIDE, PATCH = 16, 4
KINDS = ("rows", "columns", "checks", "dot")
LIST = "low low low lower lowest new newer newest wide wider widest"
"""The words whose pieces the chapter on tokens merges."""
Batch = tuple[list[Tokens], Tensor]
"""What each stack reads, and the right answer at each place; IGNORED where none is asked."""


@dataclass(frozen=True)
class Lesson:
    """A small model, what it learns from, and how long."""

    config: c.ModelConfig
    tokenizer: Tokenizer | None
    batches: Callable[[random.Random, Tokenizer | None], Iterator[Batch]]
    lr: float
    steps: int = 300


def stack(vocab_size: int, **changes: object) -> c.StackConfig:
    """Two blocks of two heads, 32 wide."""
    small = {"input": c.TokenInput(vocab_size=vocab_size), "d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 64}
    return c.StackConfig.model_validate({**small, **changes})


def lesson(name: str) -> Lesson:
    """The recipe of a model. Raises KeyError unless LESSONS has the name."""
    return LESSONS[name]()


@contextmanager
def _doubles(seed: int) -> Iterator[None]:
    """Networks are made in float64, with draws of this seed, while the block runs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_default_dtype(before)


def trained(name: str, *, seed: int = 0, steps: int | None = None) -> Model:
    """The model, trained from nothing."""
    made = lesson(name)
    with _doubles(seed):
        network = Transformer(made.config)
        learn(network, made.batches(random.Random(seed), made.tokenizer), lr=made.lr, steps=steps or made.steps)
    images = None
    if made.tokenizer is None:
        images = ImageProcessor(ImageConfig(size=PixelSize(height=SIDE, width=SIDE)))
    return Model(network.float().eval(), made.tokenizer, GenerationConfig(max_new_tokens=16), images=images)


def tune(start: Model, examples: Sequence[tuple[str, str]], *, steps: int = 20, lr: float = 1e-3) -> Model:
    """A copy of a translator whose weights, all of them, have learned on from these sentences."""
    with _doubles(0):
        network = Transformer(start.config)
        network.load_state_dict(start.network.state_dict())
        learn(network, repeat(_translated(examples, start.tokenizer)), lr=lr, steps=steps)
    return Model(network.float().eval(), start.tokenizer, start.generation)


def learn(network: Transformer, batches: Iterator[Batch], *, lr: float, steps: int) -> list[float]:
    """Trains by AdamW with a rate that rises and falls. Returns the loss of each step in nats."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    losses: list[float] = []
    network.train()
    for (inputs, wanted), _ in zip(batches, range(steps), strict=False):
        loss = cross_entropy(network(*inputs).flatten(0, -2), wanted.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    network.eval()
    return losses


def ready(folder: Path, names: Sequence[str] = ()) -> Path:
    """Trains and saves the models that the folder does not have yet. Returns the folder."""
    for name in names or (*LESSONS, TUNED):
        if not (folder / name).is_dir():
            if name == TUNED:
                tune(clearhead.load(ready(folder, ["translator"]) / "translator"), PEOPLE[:8]).save(folder / name)
                continue
            trained(name).save(folder / name)
            if name == "seer":
                Image.fromarray(picture(3, np.random.default_rng(9))).save(folder / "seer.png")
    return folder


def named(page: str) -> list[str]:
    """The models that a page reads."""
    return [name for name in (*LESSONS, TUNED) if re.search(rf"['\"]{name}(?:\.png)?['\"]", page)]


# --- what they learn from -----------------------------------------------------------------------------------------


def _rows(rows: Sequence[Sequence[int]], *, fill: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def _chosen(draw: random.Random, n: int = 48) -> Iterator[list[int]]:
    while True:
        yield draw.sample(range(len(PAIRS)), n)


def _translations(draw: random.Random, words: Tokenizer | None) -> Iterator[Batch]:
    """English sentences; for each, the Spanish one a word at a time."""
    for chosen in _chosen(draw):
        yield _translated([PAIRS[i] for i in chosen], words)


def _translated(chosen: Sequence[tuple[str, str]], words: Tokenizer | None) -> Batch:
    assert words is not None
    eos, bos, pad = words.need("eos"), words.need("bos"), words.need("pad")
    sources, targets = (words.encode_batch([pair[i] for pair in chosen]) for i in (0, 1))
    read = _rows([[*source, eos] for source in sources], fill=pad)
    written = _rows([[bos, *target] for target in targets], fill=pad)
    said = _rows([[*target, eos] for target in targets], fill=IGNORED)
    return [Tokens(read, valid=read != pad), Tokens(written, valid=written != pad)], said


def _sentences(draw: random.Random, words: Tokenizer | None) -> Iterator[Batch]:
    """English sentences; at each word, the next."""
    assert words is not None
    eos, bos, pad = words.need("eos"), words.need("bos"), words.need("pad")
    texts = words.encode_batch([source for source, _ in PAIRS])
    for chosen in _chosen(draw):
        read = _rows([[bos, *texts[i]] for i in chosen], fill=pad)
        yield [Tokens(read, valid=read != pad)], _rows([[*texts[i], eos] for i in chosen], fill=IGNORED)


def _gaps(draw: random.Random, words: Tokenizer | None) -> Iterator[Batch]:
    """English sentences with a quarter of their words masked; at each mask, the word."""
    assert words is not None
    eos, bos, pad = words.need("eos"), words.need("bos"), words.need("pad")
    mask = words.need("mask")
    texts = words.encode_batch([source for source, _ in PAIRS])
    for chosen in _chosen(draw):
        whole = _rows([[bos, *texts[i], eos] for i in chosen], fill=pad)
        hidden = (torch.rand(whole.shape) < 0.25) & (whole != pad) & (whole != bos) & (whole != eos)
        read = whole.masked_fill(hidden, mask)
        yield [Tokens(read, valid=whole != pad)], whole.masked_fill(~hidden, IGNORED)


def _spelled(draw: random.Random, pieces: Tokenizer | None) -> Iterator[Batch]:
    """Three words of the list; at each piece, the next."""
    assert pieces is not None
    eos, bos, pad = pieces.need("eos"), pieces.need("bos"), pieces.need("pad")
    while True:
        texts = pieces.encode_batch([" ".join(draw.choices(LIST.split(), k=3)) for _ in range(16)])
        read = _rows([[bos, *text] for text in texts], fill=pad)
        yield [Tokens(read, valid=read != pad)], _rows([[*text, eos] for text in texts], fill=IGNORED)


def _pictures(draw: random.Random, _: Tokenizer | None) -> Iterator[Batch]:
    """Pictures of stripes, checks and dots; which it is."""
    rng = np.random.default_rng(draw.randrange(1000))
    while True:
        kinds = rng.integers(4, size=32)
        pixels = np.stack([picture(int(kind), rng) for kind in kinds]) / 127.5 - 1
        yield [Tokens(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous())], torch.from_numpy(kinds)


def picture(kind: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Rows, columns, checks or a dot in two colours, 16 x 16."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] + rng.integers(4)
    cy, cx = rng.integers(4, SIDE - 4, size=2)
    figure = (y // 2 % 2, x // 2 % 2, (x // 4 + y // 4) % 2, np.hypot(y - cy, x - cx) < 4)[kind]
    ground, ink = rng.integers(0, 90, size=3), rng.integers(160, 256, size=3)
    return np.where(figure[..., None], ink, ground).astype(np.uint8)


# --- the models ---------------------------------------------------------------------------------------------------


def _words(sides: Sequence[int]) -> Tokenizer:
    return Tokenizer.train([pair[i] for pair in PAIRS for i in sides], Words())


def _translator() -> Lesson:
    words = _words((0, 1))
    both = stack(words.vocab_size)
    config = c.ModelConfig(encoder=both, decoder=both, share_embeddings=True, init=c.Init(std=0.3))
    return Lesson(config, words, _translations, lr=0.01)


def _writer() -> Lesson:
    words = _words((0,)).templated("{begin} $A", "{begin} $A $B:1")
    learned = stack(words.vocab_size, positions=c.Learned(max_length=16), activation="gelu_tanh")
    return Lesson(c.ModelConfig(decoder=learned, init=c.Init(std=0.1)), words, _sentences, lr=0.02, steps=200)


def _filler() -> Lesson:
    words = with_mask(_words((0,)))
    reads = c.TokenInput(vocab_size=words.vocab_size, n_types=2, norm=True)
    learned = c.Learned(max_length=16)
    both_ways = stack(words.vocab_size, input=reads, norm_place="post", positions=learned, activation="gelu")
    config = c.ModelConfig(
        encoder=both_ways,
        head=c.LanguageHead(transform=True, bias=True),
        init=c.Init(std=0.15, depth_scaled=False),
    )
    return Lesson(config, words, _gaps, lr=0.01)


def _seer() -> Lesson:
    length = (SIDE // PATCH) ** 2 + 1
    reads = c.PatchInput(image_size=SIDE, patch_size=PATCH)
    sees = stack(1, input=reads, positions=c.Learned(max_length=length), activation="gelu", d_model=16, d_ff=24)
    config = c.ModelConfig(
        encoder=sees,
        head=c.ClassificationHead(n_labels=len(KINDS), labels=KINDS),
        init=c.Init(std=0.1, depth_scaled=False),
    )
    return Lesson(config, None, _pictures, lr=0.02, steps=200)


def _speller() -> Lesson:
    pieces = Tokenizer.train([LIST] * 4, BPE(vocab_size=28)).templated("{begin} $A", "{begin} $A $B:1")
    learned = stack(pieces.vocab_size, positions=c.Learned(max_length=64), n_layers=1, d_model=16, d_ff=32)
    return Lesson(c.ModelConfig(decoder=learned, init=c.Init(std=0.1)), pieces, _spelled, lr=0.02, steps=100)


LESSONS: dict[str, Callable[[], Lesson]] = {
    "translator": _translator, "writer": _writer, "filler": _filler, "seer": _seer,
    "speller": _speller,
}  # fmt: skip
TUNED = "tuned"
"""The translator that has learned on from eight sentences about people."""
