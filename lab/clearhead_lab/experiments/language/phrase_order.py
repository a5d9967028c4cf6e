"""European Economic Area, Espace Économique Européen: where a translator of made sentences looks."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearhead import config as c
from clearhead.model import Tokens, Transformer
from clearhead.trace import trace
from clearhead_lab.datasets import Words
from clearhead_lab.experiment import Row
from clearhead_lab.language import estimate
from clearhead_lab.learning import IGNORED, Paired, learn, stack

ORIGINS = "european européen, african africain, american américain, asian asiatique, arab arabe, nordic nordique"
SIZES = "great grand, small petit, first premier, former ancien, vast vaste, bad mauvais"
SUBJECTS = """economic économique, monetary monétaire, social social, political politique, scientific scientifique,
cultural culturel, military militaire, medical médical"""
NOUNS = """area espace, market marché, council conseil, agreement accord, institute institut, fund fonds,
project projet, congress congrès"""
FRAMES = {"": "", "we study": "nous étudions", "she often discusses": "elle évoque souvent", "you know": "tu connais"}
TURNED, KEPT = "the other order", "the first word before the noun"
DOCUMENT = ("european", "economic", "area")
BATCH, BLOCKS = 64, 2


class Phrase(NamedTuple):
    """Two adjectives and a noun in a sentence, and the places of the English words in the order of the French ones."""

    kind: str
    words: tuple[str, ...]
    english: str
    french: str
    order: tuple[int, ...]

    @property
    def is_new(self) -> bool:
        """True if no sentence with these three words is learned."""
        return self.words == DOCUMENT or sum(map(ord, "".join(self.words))) % 4 == 0


def phrases() -> list[Phrase]:
    """Every phrase in every frame."""
    kinds = {TURNED: (ORIGINS, (2, 1, 0)), KEPT: (SIZES, (0, 2, 1))}
    found = list[Phrase]()
    for kind, (firsts, order) in kinds.items():
        listed = ([tuple(one.split()) for one in text.split(",")] for text in (firsts, SUBJECTS, NOUNS))
        for three, (start, begin) in product(product(*listed), FRAMES.items()):
            french = [three[i][1] for i in order]
            article = "l'" if french[0][0] in "aeiouéh" else "le"
            words = tuple(one for one, _ in three)
            texts = " ".join([*start.split(), "the", *words]), " ".join([*begin.split(), article, *french])
            found.append(Phrase(kind, words, *texts, order))
    return found


@torch.no_grad()
def read(network: Transformer, found: Sequence[Phrase], english: Words, french: Words) -> tuple[Tensor, Tensor]:
    """n 3 3 h: weights from the French words of the phrase to its English ones; n: all three are the likeliest."""
    weights, right = list[Tensor](), list[Tensor]()
    for one in found:
        source, target = english.tokens([one.english]), french.tokens([one.french]).ids
        with trace(network) as seen:
            said = network(source, target[:, :-1])[0, -3:]
        heads = torch.cat([seen[f"decoder.blocks.{i}.cross.weights"][0] for i in range(BLOCKS)])
        weights.append(heads[:, -3:, -3:].permute(1, 2, 0))
        right.append((said.argmax(-1) == target[0, -3:]).all())
    return torch.stack(weights), torch.stack(right)


def follows(weights: Tensor, found: Sequence[Phrase]) -> Tensor:
    """n: each French word of the phrase looks most at its own English word, of the three."""
    return (weights.argmax(2) == torch.tensor([one.order for one in found])).all(1)


def measure(seed: int, quick: bool) -> Iterator[Row]:
    """The share of new phrases in which attention goes as the French words do, and the phrase of the document."""
    everything, draw = phrases(), torch.Generator().manual_seed(seed)
    learned = [one for one in everything if not one.is_new]
    english, french = Words.of([one.english for one in everything]), Words.of([one.french for one in everything])
    places = c.Learned(max_length=12)
    translator = Paired(stack(english.size, positions=places), stack(french.size, positions=places))

    def batch() -> tuple[Any, Tensor]:
        some = [learned[i] for i in torch.randint(len(learned), (BATCH,))]
        written = french.tokens([one.french for one in some])
        labels = written.ids if written.valid is None else written.ids.masked_fill(~written.valid, IGNORED)
        return (english.tokens([one.english for one in some]), Tokens(written.ids[:, :-1])), labels[:, 1:]

    learn(translator, batch, steps=5 if quick else 400, cooled=True)
    new = [one for one in everything if one.is_new]
    drawn = [new[i] for i in torch.randperm(len(new), generator=draw)]
    groups = {kind: [one for one in drawn if one.kind == kind][: 40 if quick else 150] for kind in (TURNED, KEPT)}
    groups["European Economic Area"] = [one for one in new if one.words == DOCUMENT]
    for name, some in groups.items():
        weights, right = read(translator.network, some, english, french)
        looks = estimate(follows(weights.mean(-1), some).double())
        backwards = (weights.mean(-1).argmax(2).diff(dim=1) < 0).all(1).double().mean().item()
        yield Row({"phrase": name}, looks | {"written": right.double().mean().item(), "backwards": backwards})
