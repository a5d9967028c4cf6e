"""One architecture for words, pictures and digits: the same blocks, another embedding and another head."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.brief import brief
from clearhead.model import Tokens, Transformer
from clearhead.tasks.images.data import idx
from clearhead_lab.classifiers import counts, predicted, standardised
from clearhead_lab.datasets import LONGEST, Reviews, Words, batches, datasets
from clearhead_lab.experiment import Row
from clearhead_lab.learning import accuracy, encoder, learn, size

WIDTH, DIGITS, CLASSES = 64, 8, 10
PIXELS, PATCH = 28, 7
MEAN, DEVIATION = 0.13, 0.31
"""Mean and standard deviation of the pixels, which are from 0 to 1."""
Examples = tuple[Tokens | Tensor, Tensor]


@dataclass(frozen=True)
class Modality:
    """What the blocks read and say, examples to learn from, new ones, and the accuracy of a linear classifier."""

    __repr__ = brief

    network: Transformer
    batch: Callable[[], Examples]
    unseen: Examples
    linear: float


def words(n: int) -> Modality:
    """Classifies sentences of reviews as favourable or not; the linear classifier reads TF-IDF."""
    train, test = Reviews.read("train"), Reviews.read("test").some(n)
    vocabulary, positions = Words.of(train.texts), c.Learned(max_length=LONGEST + 1)
    head = c.ClassificationHead(n_labels=2, pool="mean")
    network = encoder(vocabulary.size, head=head, d_model=WIDTH, positions=positions)
    seen, unseen = counts(train.texts, test.texts, tf_idf=True)
    said = predicted(seen, train.labels.numpy(), unseen)
    linear = float((said == test.labels.numpy()).mean())
    return Modality(network, batches(train, vocabulary, 64), (vocabulary.tokens(test.texts), test.labels), linear)


def pictures(n: int) -> Modality:
    """Which digit is written in a picture; the linear classifier reads its pixels."""
    (x, y), (test_x, test_y) = written("train", 8000), written("t10k", n)
    seen, unseen = standardised(x.flatten(1).numpy(), test_x.flatten(1).numpy())
    linear = float((predicted(seen, y.numpy(), unseen, strength=0.01) == test_y.numpy()).mean())
    return Modality(reader(), lambda: some_of(x, y), (Tokens(test_x), test_y), linear)


def reader(width: int = WIDTH, n_layers: int = 2) -> Transformer:
    """Says which digit is written in a picture, cut into 16 patches."""
    reads = c.PatchInput(image_size=PIXELS, patch_size=PATCH, n_channels=1)
    shape = dict(d_model=width, n_layers=n_layers, input=reads, positions=c.Sinusoidal())
    return encoder(CLASSES, head=c.ClassificationHead(n_labels=CLASSES, pool="mean"), **shape)


def some_of(x: Tensor, y: Tensor) -> Examples:
    """64 pictures at random, and their digits."""
    some = torch.randint(0, len(x), (64,))
    return Tokens(x[some]), y[some]


def written(split: str, n: int) -> tuple[Tensor, Tensor]:
    """n 1 y x, and n: pictures of digits and the digits   (LeCun et al. 1998)."""
    source = datasets()["mnist"]
    images = torch.tensor(idx(source.path(f"{split}-images-idx3-ubyte.gz"), 3)[:n])
    labels = torch.tensor(idx(source.path(f"{split}-labels-idx1-ubyte.gz"), 1)[:n])
    return (images[:, None].float() / 255 - MEAN) / DEVIATION, labels.long()


def digits(n: int) -> Modality:
    """The digits of a sequence in ascending order; the linear classifier reads the digit of each place."""
    head = c.TaggingHead(n_labels=CLASSES)
    network = encoder(CLASSES, head=head, d_model=WIDTH, positions=c.Learned(max_length=DIGITS))
    (x, y), (test_x, test_y) = ordered(2000), ordered(n)
    seen, unseen = (torch.nn.functional.one_hot(one, CLASSES).flatten(1).numpy() for one in (x, test_x))
    right = [
        float((predicted(seen, y[:, i].numpy(), unseen, strength=1.0) == test_y[:, i].numpy()).mean())
        for i in (0, DIGITS // 2)
    ]
    return Modality(network, lambda: ordered(32), (test_x, test_y), sum(right) / len(right))


def ordered(n: int) -> tuple[Tensor, Tensor]:
    """n t: random digits, and the same in ascending order."""
    found = torch.randint(0, CLASSES, (n, DIGITS))
    return found, found.sort(1).values


def measure(_: int, quick: bool) -> Iterator[Row]:
    """Accuracy on unseen examples, that of a linear classifier, and the weights of the blocks and of the rest."""
    n = 500 if quick else 1000
    for name, build, steps in (("words", words, 200), ("pictures", pictures, 700), ("digits", digits, 300)):
        one = build(n)
        learn(one.network, one.batch, steps=steps if quick else 2 * steps)
        blocks = size(one.network.last_stack.blocks)
        values = {
            "accuracy": accuracy(one.network, *one.unseen),
            "linear": one.linear,
            "weights of the blocks": float(blocks),
            "other weights": float(size(one.network) - blocks),
        }
        yield Row({"reads": name}, values)
