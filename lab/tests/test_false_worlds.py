"""Each check says so in a world where what it checks is false: other parts, or networks that learn otherwise.

A check that passes in the world as it is and in every other one, because both of its sides are at their limit, or alike
by their form, or computed from each other, is found here. Nothing is trained: what training would give is drawn.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from itertools import count, cycle, islice
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import torch

from clearhead import config as c
from clearhead.model.attention import Attention
from clearhead_lab.experiment import CONTROL, Figures, Result
from clearhead_lab.experiments import experiment, experiments
from clearhead_lab.experiments.language import coreference, head_roles, stereotypes

Parts = dict[str, Any]
World = Callable[[Any], Parts]
"""What stands in an experiment's module instead of its own parts."""
SHARES = (0.0, 0.2, 0.55, 0.86, 0.96, 1.0)
VERDICTS = {"claim": "does not hold", "limit": "holds with limits", "control": "undecided"}
SLOW = ("attention-importance", "quadratic-cost", "addition", "contextual-words", "saturation")
MOST = 150
"""Draws after which a check that says the same in all of them can say nothing else."""


def drawn(random: Random) -> Parts:
    """What training and reading a network give, at random: each figure anew, and none from another."""

    def share(*_: Any, **__: Any) -> float:
        return random.choice(SHARES)

    def loss(*_: Any, **__: Any) -> torch.Tensor:
        return torch.tensor(10 ** random.uniform(-2, 1))

    @torch.no_grad()
    def learn(network: torch.nn.Module, *_: Any, **__: Any) -> list[float]:
        gain, shift = random.choice((0.0, 1.0, 8.0)), random.choice((-3.0, 0.0, 3.0))
        for name, p in network.named_parameters():
            p.mul_(gain).add_(shift * gain if name.endswith("bias") else 0.0)
        return [9.0] * random.choice((1, 20)) + [loss().item()] * 20

    def table(a: Any, classes: Any, b: Any, **_: Any) -> Any:
        return torch.tensor(random.choices(classes.tolist(), k=b.shape[0])).numpy()

    def known(network: Any, pairs: torch.Tensor, _: Any, removed: torch.Tensor) -> torch.Tensor:
        return torch.rand(len(removed), len(pairs)) < share()

    def ranks(*_: Any) -> float:
        return random.uniform(-1, 1)

    def judged(*_: Any) -> dict[str, float]:
        shares = {name: share() for name in ("preferred", "of the language", "distance")}
        return shares | {"loss": loss().item()}

    sign = random.choice((-1.0, 1.0))
    return {
        **dict.fromkeys(("accuracy", "right", "readable", "mean_over_classes", "found_in"), share),
        "final": lambda _: random.choice((loss().item(), 1.0)) * 1.3863,
        "mean_loss": loss,
        "loss_on": lambda *_: loss().item(),
        "sampled": lambda _, n, __, length: torch.zeros(n, length, dtype=torch.long),
        "generated": lambda _, text: text,
        "ahead": lambda *_: torch.full((8,), sign),
        "insulted": lambda _, starts, *__: torch.full((len(starts),), share()),
        "learn": learn,
        "train": lambda *_: ([9.0] * random.choice((1, 20)) + [0.1] * 9, 10 ** random.uniform(-2, 2)),
        "prefer": lambda *_: None,
        "judge": judged,
        **dict.fromkeys(("walk", "shortest"), lambda *_, **__: random.uniform(1, 13)),
        "miss": lambda *_: 10 ** random.uniform(-6, 0),
        "predicted": table,
        "known": known,
        "rank_correlation": ranks,
        "interval": lambda _: (ranks(), 1.0),
        "gradients": lambda *_: (10 ** random.uniform(-9, 0), 1.0),
        "process_time": lambda: random.uniform(0, 1),
        "next_words": lambda _, texts, words: torch.randn(len(texts), len(words)),
        "read_by_probe": lambda _, labels, n_fitted: torch.rand(len(labels) - n_fitted) < share(),
        "rank": lambda *_: random.choice((1, 30)),
        "looks": lambda *_: lambda *_: torch.rand(12),
        "looking": lambda _: {"decoder.blocks.0.attn.z[h=0]": share()},
    }


# --- worlds of other parts -------------------------------------------------------------------------------------------


class Apart:
    """An attention whose fused kernel gives something else."""

    def __init__(self, config: c.StackConfig) -> None:
        self.real, self.kernel = Attention(config), "explicit"

    def __call__(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return self.real(x, *rest) + (self.kernel == "fused")


def elsewhere(at: torch.Tensor, _: object) -> Callable[[torch.Tensor], torch.Tensor]:
    """A rotation whose angle also depends on the place."""
    return lambda x: x * at.flatten()[:, None].float()


def by_place(positions: list[int], width: int) -> torch.Tensor:
    """Another random vector for each position."""
    return torch.stack([torch.randn(width, generator=torch.Generator().manual_seed(p + 500)) for p in positions])


def nearer(positions: list[int], width: int) -> torch.Tensor:
    """Vectors whose product with that of position p + k falls with k."""
    at = torch.tensor(positions, dtype=torch.float64)
    return torch.stack([at.sub(5000).mul(i / 9e4).cos() for i in range(1, 1 + width)], 1)


def scaled(factor: float) -> World:
    return lambda m: {"scores_of": lambda q, k, **how: factor * m["scores_of"](q, k, **how)}


def exchanged(one: str, other: str) -> World:
    return lambda m: {one: m[other], other: m[one]}


def changed(part: str, **fixed: Any) -> World:
    """A part that is called with other arguments."""
    return lambda m: {part: lambda *given, **named: m[part](*given, **(named | fixed))}


def inverted(m: Any) -> Parts:
    return {"through": lambda blocks, x, *, residual, **how: m["through"](blocks, x, residual=not residual, **how)}


def fading(_: Any) -> Parts:
    """Blocks that add nothing, and pass a third of the gradient."""

    def through(blocks: Any, x: torch.Tensor, **_: object) -> Iterator[torch.Tensor]:
        for _ in blocks.last_stack.blocks:
            x = x / 3 + x.detach() * 2 / 3
            yield x

    return {"through": through}


def still(_: Any) -> Parts:
    """Blocks that add nothing."""
    return {"through": lambda blocks, x, **_: iter([x * 1.0 for _ in blocks.last_stack.blocks])}


def widths(*wide: int) -> World:
    """The kinds of vectors in other widths."""
    return lambda m: {"KINDS": {kind: (n, 16, 16) for kind, n in zip(m["KINDS"], wide, strict=True)}}


def all_one(m: Any) -> Parts:
    """Words and positions without a vector: each place has the same."""

    def build(*given: Any, **named: Any) -> Any:
        network = m["published"](*given, **named)
        network.last_stack.table.weight.data.zero_()
        return network

    return {"published": build}


def answers(network: Any, inputs: list[torch.Tensor], _: Any) -> torch.Tensor:
    """Logits that say what followed the last symbol before."""
    text = inputs[0]
    at = (text[:, :-1] == text[:, -1:]).int().argmax(1, keepdim=True) + 1
    said = torch.nn.functional.one_hot(text.gather(1, at), network.last_stack.table.weight.shape[0])
    return said.expand(-1, text.shape[1], -1).float()


def one_expert(m: Any) -> Parts:
    """A mixture of a single expert."""
    return {"with_experts": lambda network, _: m["with_experts"](network, 1)}


def saying(plural: Callable[[list[str]], str]) -> World:
    """A network whose verb is plural if this word of the text is."""
    return lambda _: {
        "next_words": lambda _, texts, words: torch.tensor(
            [[0.0, 2.0 * plural(t.split()).endswith("s") - 1] for t in texts]
        )
    }


def resolving(whole: int, half: int, *, turns: bool) -> World:
    """Right (1) or wrong (0) with the whole sentence and with its half; heads that look to what is meant, or away."""

    def looks(sentence: list[str]) -> Callable[[int, int], torch.Tensor]:
        first = any(line.startswith(" ".join(sentence[:-1])) for line in coreference.TWINS)
        return lambda _, to: torch.full((12,), 0.9 if (to == 1) == (first == turns) else 0.1)

    return lambda _: {
        "next_words": lambda _, texts, __: (
            (torch.eye(2) - 0.5) * (2 * (whole if len(texts[0].split()) > 5 else half) - 1)
        ),
        "looks": lambda _, sentence: looks(sentence),
    }


def gendered(sign: float) -> World:
    """A network that says he after the first words of the pairs and she after the others, or the other way round."""
    his = {pair.split()[0] for pairs in stereotypes.PAIRS.values() for pair in pairs.split(", ")}

    def said(_: Any, texts: list[str], __: Any) -> torch.Tensor:
        signs = torch.tensor([sign if his & set(text.split()) else -sign for text in texts])
        return torch.stack([signs, -signs], 1)

    return lambda _: {"next_words": said}


def answering(told: bool, asked: float) -> World:
    """A network that says the color of the thing, or another one, and a color at all with some probability."""

    def said(_: Any, texts: list[str], words: list[str]) -> torch.Tensor:
        own = [text.partition(". Tom")[0].split()[-2] for text in texts]
        right = torch.tensor([[(word == one) == told for word in words] for one in own])
        return (right.double() + 0.01).log().log_softmax(1) + math.log(asked)

    return lambda _: {"next_words": said}


def knowing(m: Any) -> Parts:
    """Heads that look at the word to which the phrase belongs, which its four words do not tell."""

    def looks(_: Any, words: list[str]) -> Callable[[int, int], torch.Tensor]:
        return lambda _, to: torch.full((12,), 0.9 if (to == 1) == (words[0] == "I") else 0.1)

    return {"looks": looks, "predicted": m["predicted"]}


def crossing(random: Random) -> World:
    """Heads of which each looks in its own order, and a French order, at random."""

    def read(_: Any, found: list[Any], *__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        straight = torch.eye(2) if random.random() < 0.5 else 1 - torch.eye(2)
        heads = torch.tensor([random.random() < 0.5 for _ in range(8)])
        weights = torch.where(heads, straight[..., None], 0.9 - straight[..., None] * 0.8)
        return weights.expand(len(found), 2, 2, 8), torch.full((len(found),), random.random() < 0.5)

    return lambda _: {"read": read}


def backwards(random: Random) -> World:
    """Heads that look at English words in their own order or in the French one, and words that are right, at random."""

    def read(_: Any, found: list[Any], *__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        order = [*found[0].order] if random.random() < 0.5 else random.choice(([0, 1, 2], [2, 1, 0]))
        looks = torch.eye(3)[order][..., None].expand(len(found), 3, 3, 8)
        return looks, torch.full((len(found),), random.random() < 0.5)

    return lambda _: {"read": read}


def reading(random: Random) -> World:
    """A network whose attention looks at the subject, and whose answers follow its value, in a share at random."""
    return lambda _: {"read_at_subject": lambda *_: {name: random.choice(SHARES) for name in ("weight", "follows")}}


def sending(_: Any) -> Parts:
    """A router that knows every subject."""
    subject = count()
    return {"chosen": lambda _, texts: torch.full((len(texts),), next(subject))}


def keeping(random: Random) -> World:
    """Attention alone that keeps much or little of the differences between tokens, at random."""
    return lambda _: {"kept": lambda _: random.choice((0.01, 0.03, 0.9))}


def joining(random: Random) -> World:
    """Heads of which each joins the words of a role, or one distance between them does, at random."""

    def found(*_: Any) -> dict[str, tuple[torch.Tensor, list[int]]]:
        roles = (*head_roles.GRAMMAR, head_roles.NEIGHBOUR, head_roles.ENDS, *head_roles.TWO)
        shares = {role: (random.random() < 0.5, random.random() < 0.5) for role in roles}
        return {
            role: (torch.full((9, 24), float(head)), [1] * 9 if near else [*range(9)])
            for role, (head, near) in shares.items()
        }

    def marked(*_: Any) -> dict[str, torch.Tensor]:
        kinds = (head_roles.PUNCTUATION, head_roles.SPECIAL)
        return {kind: torch.full((9, 12), random.choice((0.1, 0.9))) for kind in kinds}

    return lambda _: {"found": found, "marked": marked}


def ranking(whole: int, alone: int) -> World:
    return lambda _: {"rank": lambda _, asked, __: whole if len(asked) == 3 else alone}


WORLDS: dict[str, tuple[World, ...]] = {
    "addition": (all_one,),
    "add-or-join": (widths(32, 64, 32), widths(64, 32, 64), widths(32, 44, 64)),
    "analogies": (ranking(1, 30), ranking(30, 1)),
    "insults": (lambda _: {"insulting": lambda texts, _: torch.arange(len(texts)) % 2 * 0.001},),
    "invention": (answering(True, 0.9), answering(False, 0.9), answering(True, 0.01)),
    "stereotypes": (gendered(5.0), gendered(-5.0)),
    "reordering": (crossing(Random(0)),),
    "phrase-order": (backwards(Random(0)),),
    "over-smoothing": (keeping(Random(0)),),
    "specialists": (sending,),
    "telescope": (knowing, lambda _: {"looks": lambda *_: lambda *_: torch.zeros(12)}),
    "agreement": (saying(lambda text: text[1 if text[0] == "The" else 5]), saying(lambda text: text[-1])),
    "coreference": (resolving(1, 0, turns=True), resolving(0, 1, turns=False)),
    "attention-importance": (
        lambda _: {
            "taken_away": lambda _, tokens: torch.arange(tokens.ids.shape[1] - 1.0),
            "attended": lambda _, tokens: torch.arange(tokens.ids.shape[1] - 1.0),
            "evenly": lambda one, tokens: -one(tokens),
        },
    ),
    "causal-mask": (exchanged("decoder", "encoder"), changed("Chain", followers=16)),
    "compression": (lambda _: {"rounded_to": lambda *_: None},),
    "ffn-memory": (reading(Random(0)),),
    "ffn-ratio": (lambda m: {"WIDTHS": dict.fromkeys(m["WIDTHS"], dict.fromkeys((1, 2, 4, 8), 32))},),
    "head-count": (changed("decoder", d_head=8),),
    "heads": (changed("decoder", d_head=8),),
    "head-roles": (joining(Random(0)),),
    "induction": (lambda _: {"without": answers},),
    "linear-attention": (
        lambda _: {"make_linear": lambda attention: attention},
        lambda m: {"Attention": lambda config: m["make_linear"](m["Attention"](config))},
    ),
    "lora": (lambda m: {"AdapterConfig": lambda rank, alpha: m["AdapterConfig"](rank=8 * rank, alpha=alpha)},),
    "mixture-of-experts": (one_expert,),
    "modalities": (lambda m: {"encoder": lambda n, **how: m["encoder"](n, **(how | {"d_ff": 8 * n}))},),
    "norm-padding": (lambda m: {"NORMS": dict(zip(m["NORMS"], reversed(m["NORMS"].values()), strict=True))},),
    "norm-training": (
        lambda m: {"with_batch_norm": lambda network: network},
        lambda m: {"decoder": lambda *a, **how: m["with_batch_norm"](m["decoder"](*a, **how))},
    ),
    "order-blindness": (
        lambda m: {"KINDS": {name: (build, c.Sinusoidal()) for name, (build, _) in m["KINDS"].items()}},
    ),
    "position-shift": (
        lambda _: {"encoding": by_place, "rotation": elsewhere},
        lambda _: {"encoding": nearer, "rotary_products": lambda *_: torch.zeros(3)},
    ),
    "quadratic-cost": (
        lambda _: {"reckoned": lambda n, **_: (n, n)},
        lambda _: {"reckoned": lambda n, **_: (n * n, n * n)},
        lambda _: {"Attention": Apart},
    ),
    "residual-ablation": (inverted, still, fading),
    "router": (lambda m: {"WIDTHS": dict.fromkeys(m["WIDTHS"], (16, 1))},),
    "saturation": (scaled(0.01), scaled(100.0)),
    "weight-tying": (
        lambda m: {"decoder": lambda *a, head, **how: m["decoder"](*a, head=c.LanguageHead(tied=not head.tied), **how)},
    ),
}
"""Worlds of other parts, beside those that are drawn."""


def worlds(name: str) -> Iterator[Figures]:
    """What an experiment measures in each of its worlds, and in none twice."""
    one, random = experiment(name), Random(0)
    module: Any = import_module(one.measure.__module__)
    real = vars(module).copy()
    for seed, world in enumerate(islice(cycle(((lambda _: {}), *WORLDS.get(name, ()))), MOST)):
        torch.manual_seed(seed)
        with ExitStack() as stack:
            own = {part: fake for part, fake in drawn(random).items() if part in real}
            for part, fake in (own | world(real)).items():
                stack.enter_context(patch.object(module, part, fake))
            yield Figures(list(one.measure(seed, True)))


def judged(name: str, values: dict[str, float]) -> tuple[str, str]:
    """The verdict of these values of the checks, and what is said of them."""
    one = experiment(name)
    checks = [replace(check, figure=lambda _, value=values[check.what]: value) for check in one.checks]
    result = Result(replace(one, checks=checks), {0: Figures([])}, quick=True, wanted=1)
    return result.verdict, result.finding


def test_every_drawn_part_is_one_of_an_experiment():
    known = {part for name in experiments() for part in vars(import_module(experiment(name).measure.__module__))}
    assert drawn(Random(0)).keys() <= known


@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in experiments()]
)
def test_every_check_can_fail_and_pass(name: str):
    """And each that fails alone changes the verdict of a world where all others pass."""
    one = experiment(name)
    found: dict[bool, dict[str, float]] = {True: {}, False: {}}
    for figures in worlds(name):
        for check in one.checks:
            value = check.figure(figures)
            found[check.passes(value)][check.what] = value
        if len(found[True]) == len(found[False]) == len(one.checks):
            break
    for passes, values in found.items():
        assert {check.what for check in one.checks} - values.keys() == set(), f"never {passes}"
    assert judged(name, found[True]) == ("holds", one.claim)
    for check in one.checks:
        says = CONTROL if check.role == "control" else check.otherwise
        assert judged(name, found[True] | {check.what: found[False][check.what]}) == (VERDICTS[check.role], says)
        assert says
