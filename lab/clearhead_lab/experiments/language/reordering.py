"""A white dog, un chien blanc: where a translator of real captions looks when it writes noun and adjective."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.data.files import read_lines
from clearhead.model import Tokens, Transformer
from clearhead.trace import trace
from clearhead_lab.datasets import Words, datasets
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate
from clearhead_lab.learning import IGNORED, Paired, learn, stack

COLORS = """white blanc, black noir, red rouge, blue bleu, green vert, yellow jaune, brown brun marron, gray gris,
grey gris, purple violet, pink rose"""
BEFORE = "young jeune, two deux, three trois, four quatre, little petit, other autre, big grand, large grand"
NOUNS = """dog chien, shirt chemise t-shirt maillot, jacket veste, dress robe, pants pantalon, shorts short,
hat chapeau casquette bonnet, coat manteau, hair cheveux, top haut, helmet casque, car voiture, uniform uniforme tenue,
horse cheval, ball balle ballon, bag sac, building bâtiment, wall mur, suit costume, truck camion, boat bateau,
man homme, men hommes, woman femme, women femmes, boy garçon, girl fille, girls filles, boys garçons, dogs chiens,
child enfant, children enfants, people personnes, group groupe, crowd foule"""
ORDERS = {"the other order": COLORS, "the same order": BEFORE}
WIDTH, BATCH, STEPS, LONGEST = 128, 64, 1500, 15
Caption = tuple[str, str]
"""In English and in French, with spaces between all words."""


class Found(NamedTuple):
    """An adjective and its noun in a caption, the place of the first in English, and of the first of both in French."""

    caption: Caption
    pair: tuple[str, str]
    asked: int
    written: int

    @property
    def is_new(self) -> bool:
        """True if no caption with this pair is learned."""
        return sum(map(ord, "".join(self.pair))) % 3 == 0


def captions() -> list[Caption]:
    """The captions of the training part that have few words."""
    texts = [read_lines(datasets()["multi30k"].path(f"train.{end}")) for end in ("en", "fr")]
    apart = [[re.findall(r"\w+(?:-\w+)*'?|[.,]", line.lower()) for line in lines] for lines in texts]
    return [(" ".join(a), " ".join(b)) for a, b in zip(*apart, strict=True) if a and len(a) < LONGEST > len(b) > 0]


def pairs(caption: Caption, adjectives: str, *, swapped: bool) -> Iterator[Found]:
    """The adjectives before a noun whose translation stands in the order that is looked for."""
    first, second = ({one.split()[0]: one.split()[1:] for one in text.split(",")} for text in (adjectives, NOUNS))
    for asked, (adjective, noun) in enumerate(pairwise(caption[0].split())):
        wanted = [(b, a) if swapped else (a, b) for a in first.get(adjective, []) for b in second.get(noun, [])]
        for written, (one, other) in enumerate(pairwise(caption[1].split())):
            if any(one.startswith(a) and other.startswith(b) for a, b in wanted):
                yield Found(caption, (adjective, noun), asked, written)
                break


@torch.no_grad()
def read(network: Transformer, found: Sequence[Found], english: Words, french: Words) -> tuple[Tensor, Tensor]:
    """n 2 2 h: the weights from both French words to adjective and noun; n: the first is likelier than the second."""
    weights, right = list[Tensor](), list[Tensor]()
    for one in found:
        at, to, target = one.asked + 1, one.written, french.tokens(one.caption[1:]).ids
        with trace(network) as seen:
            said = network(english.tokens(one.caption[:1]), target[:, :-1])[0, to]
        heads = torch.cat([seen[f"decoder.blocks.{i}.cross.weights"][0] for i in range(2)])
        weights.append(heads[:, to : to + 2, at : at + 2].permute(1, 2, 0))
        right.append(said[target[0, to + 1]] > said[target[0, to + 2]])
    return torch.stack(weights), torch.stack(right)


def crosses(weights: Tensor) -> Tensor:
    """n ...: the first French word looks at the noun more than at the adjective, and the second does the opposite."""
    return (weights[:, 0, 1] > weights[:, 0, 0]) & (weights[:, 1, 0] > weights[:, 1, 1])


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """The share of captions with new pairs where attention goes as the words do; an interval over these pairs."""
    everything, draw = captions(), torch.Generator().manual_seed(seed)
    found = {name: [p for one in everything for p in pairs(one, a, swapped=a is COLORS)] for name, a in ORDERS.items()}
    hidden = {one.caption for some in found.values() for one in some if one.is_new}
    learned = [one for one in everything if one not in hidden]
    english, french = (Words.of(texts) for texts in zip(*learned, strict=True))
    translator = Paired(*(stack(one.size, WIDTH, positions=c.Learned(max_length=LONGEST)) for one in (english, french)))

    def batch() -> tuple[Any, Tensor]:
        source, target = zip(*(learned[i] for i in torch.randint(len(learned), (BATCH,))), strict=True)
        written = french.tokens(target)
        labels = written.ids if written.valid is None else written.ids.masked_fill(~written.valid, IGNORED)
        return (english.tokens(source), Tokens(written.ids[:, :-1])), labels[:, 1:]

    def drawn(name: str, *, new: bool) -> list[Found]:
        some = [one for one in found[name] if one.is_new == new]
        return [some[i] for i in torch.randperm(len(some), generator=draw)[: 40 if quick else 300]]

    learn(translator, batch, steps=5 if quick else STEPS, lr=2e-3, warmup=100, cooled=True)
    known, _ = read(translator.network, drawn("the other order", new=False), english, french)
    best = crosses(known).double().mean(0).argmax()
    for name in ORDERS:
        some = drawn(name, new=True)
        weights, right = read(translator.network, some, english, french)
        goes = crosses(weights if name == "the other order" else weights.flip(2))
        means = crosses((weights if name == "the other order" else weights.flip(2)).mean(-1))
        for where, values in {"all heads": means, "the best head": goes[:, best], "written": right}.items():
            by_pair: dict[tuple[str, str], list[float]] = {}
            for one, value in zip(some, values.double().tolist(), strict=True):
                by_pair.setdefault(one.pair, []).append(value)
            yield Row({"order": name, "where": where}, estimate([mean(of_pair) for of_pair in by_pair.values()]))
