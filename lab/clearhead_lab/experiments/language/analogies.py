"""King - man + woman: vectors of word2vec and GloVe, trained here, and the token tables of two networks."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.api import Model, load
from clearhead.data.files import read_lines
from clearhead_lab.datasets import datasets
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate, storyteller

GROUPS = {
    "gender": "king queen, man woman, boy girl, brother sister, father mother, son daughter, husband wife, uncle aunt, "
    "he she, his her, prince princess, men women, boys girls, lord lady",
    "plural": "car cars, dog dogs, boy boys, girl girls, book books, horse horses, tree trees, house houses, "
    "bird birds, friend friends, day days, hand hands, eye eyes, child children",
    "past": "go went, come came, take took, see saw, eat ate, give gave, make made, know knew, say said, find found, "
    "write wrote, forget forgot, leave left, speak spoke",
}
MOST, NEAR, WIDTH, NEGATIVES = 8000, 5, 64, 5
Pairs = tuple[Tensor, Tensor, Tensor]
"""Words, words near them, and how often; a pair at distance d counts 1/d   (Pennington et al. 2014, 3.1)"""


def text(quick: bool) -> Iterator[list[str]]:
    """The words of plays and of everyday sentences."""
    for name in ("tinyshakespeare", "tatoeba"):
        source = datasets()[name]
        for i, line in enumerate(read_lines(source.path(source.files[0]))):
            if not quick or i < 20_000:
                yield re.findall("[a-z]+(?:'[a-z]+)?", line.partition("\t")[0].lower())


def pairs(sentences: list[list[str]], words: Mapping[str, int]) -> Pairs:
    """The pairs of words of the vocabulary that stand at most NEAR apart in a sentence, in both orders."""
    flat = np.array([i for sentence in sentences for i in [*(words.get(w, -1) for w in sentence), *[-1] * NEAR]])
    counted = np.zeros(0), np.zeros(0)
    for distance in range(1, NEAR + 1):
        one, other = flat[:-distance], flat[distance:]
        there = (one >= 0) & (other >= 0)
        keys = np.concatenate([one[there] * MOST + other[there], other[there] * MOST + one[there], counted[0]])
        weights = np.concatenate([np.full(2 * there.sum(), 1 / distance), counted[1]])
        kept, at = np.unique(keys, return_inverse=True)
        counted = kept, np.bincount(at, weights)
    keys, counts = torch.from_numpy(counted[0]).long(), torch.from_numpy(counted[1])
    return keys // MOST, keys % MOST, counts


def skip_gram(found: Pairs, n: int, steps: int) -> Tensor:
    """Vectors that tell a word's neighbours from words at random   (Mikolov et al. 2013, 4)

    -log s(u v) - k mean log s(-u v'), with the words v' of a batch drawn by frequency to the power 3/4. Frequent pairs
    are drawn by the square root of their number, as subsampling does.
    """
    one, other, counts = found
    u, v = (0.1 * torch.randn(n, WIDTH)).requires_grad_(), torch.zeros(n, WIDTH, requires_grad=True)
    ends = counts.sqrt().cumsum(0)
    noise = torch.zeros(n, dtype=counts.dtype).index_add_(0, other, counts) ** 0.75

    def loss() -> Tensor:
        drawn = torch.searchsorted(ends, torch.rand(4096, dtype=ends.dtype) * ends[-1]).clamp(max=len(ends) - 1)
        a, b = u[one[drawn]], v[other[drawn]]
        wrong = v[torch.multinomial(noise, 64, replacement=True)]
        return -(F.logsigmoid((a * b).sum(1)).mean() + NEGATIVES * F.logsigmoid(-a @ wrong.mT).mean()) * len(a)

    _descend(loss, [u, v], steps, lr=0.2)
    return u.detach()


def glove(found: Pairs, n: int, steps: int) -> Tensor:
    """Vectors with u v + b + c = log of the number of each pair, frequent ones first   (Pennington et al. 2014, 3)"""
    one, other, counts = found
    tables = [(torch.randn(n, width) / WIDTH).requires_grad_() for width in (WIDTH, WIDTH, 1, 1)]
    wanted, weights = counts.log().float(), (counts / 10).clamp(max=1).float() ** 0.75

    def loss() -> Tensor:
        drawn = torch.randint(len(counts), (16384,))
        u, v, b, c = (table[at[drawn]] for table, at in zip(tables, (one, other, one, other), strict=True))
        return (weights[drawn] * ((u * v).sum(1) + b[:, 0] + c[:, 0] - wanted[drawn]) ** 2).sum()

    _descend(loss, tables, steps, lr=0.1)
    return (tables[0] + tables[1]).detach()


def _descend(loss: Callable[[], Tensor], tables: list[Tensor], steps: int, lr: float) -> None:
    optimizer = torch.optim.Adagrad(tables, lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


def token_table(model: Model) -> tuple[Tensor, dict[str, int]]:
    """The rows of the tokens that are whole words in small letters, and their numbers."""
    rows = model.network.last_stack.table.weight.detach()
    tokens = [model.tokenizer.library.id_to_token(i) or "" for i in range(len(rows))]
    mark = "▁" if any(token.startswith("▁") for token in tokens) else ""
    found = {token[len(mark) :]: i for i, token in enumerate(tokens) if re.fullmatch(f"{mark}[a-z]+", token)}
    return rows[list(found.values())], {word: i for i, word in enumerate(found)}


def rank(vectors: Tensor, asked: list[int], wanted: int) -> int:
    """The rank of a word among the nearest to -a + b + c, without a, b and c; with one word, among its nearest."""
    signs = torch.tensor([-1.0, 1.0, 1.0] if len(asked) == 3 else [1.0])
    likeness = vectors @ (signs @ vectors[asked])
    likeness[asked] = -torch.inf
    return int((likeness > likeness[wanted]).sum()) + 1


def measure(_: int, quick: bool) -> Iterator[Row]:
    """The rank of queen, and the share of each group's analogies whose answer is first; an interval over its pairs.

    `alone` asks for the word nearest to king, without the analogy   (Linzen 2016).
    """
    sentences = list(text(quick))
    counted = Counter(word for sentence in sentences for word in sentence)
    words = {word: i for i, (word, _) in enumerate(counted.most_common(MOST))}
    found, steps = pairs(sentences, words), 20 if quick else 1500
    kinds = {
        "word2vec": (skip_gram(found, len(words), steps), words),
        "GloVe": (glove(found, len(words), steps), words),
    }
    kinds["stories"] = token_table(storyteller())
    kinds["sentence encoder"] = token_table(load(datasets()["sentence-encoder"].path(), dtype=torch.float32))
    for kind, (vectors, ids) in kinds.items():
        vectors = F.normalize(vectors, dim=1)
        for group, listed in GROUPS.items():
            known = [pair.split() for pair in listed.split(", ") if ids.keys() >= set(pair.split())]
            first: list[float] = []
            gain: list[float] = []
            for a, b in known:
                asked = [([ids[a], ids[b], ids[c]], ids[d]) for c, d in known if len({a, b, c, d}) == 4]
                first.append(float(np.mean([rank(vectors, one, to) == 1 for one, to in asked])))
                alone = np.mean([rank(vectors, one[2:], to) == 1 for one, to in asked])
                gain.append(first[-1] - float(alone))
            values = estimate(first) | {f"less alone, {name}": value for name, value in estimate(gain).items()}
            yield Row({"vectors": kind, "group": group}, values)
        king = [ids[word] for word in ("man", "woman", "king")]
        ranks = {"rank of queen": rank(vectors, king, ids["queen"]), "alone": rank(vectors, king[2:], ids["queen"])}
        yield Row({"vectors": kind, "group": "king"}, {name: float(value) for name, value in ranks.items()})
