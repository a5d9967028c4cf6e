"""Numbers of texts on their way in and out against Python's: ids and merges, and what is written token by token."""

import json
import math
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import pytest
import torch

from clearhead import config as c
from clearhead.explorer.answering.passes import LOCK
from clearhead.model import Tokens
from clearhead.recipe.tokenizers import BPE, ByteBPE
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.browser.conftest import Open, Serve
from tests.explorer.browser.numbers import agrees
from tests.explorer.browser.page import Opened, eventually
from tests.explorer.browser.seeing import INPUTS, Seen, column
from tests.explorer.browser.trained import random_model, stack
from tests.explorer.browser.views import show
from tests.small_models import TEXTS

# --- tokens -----------------------------------------------------------------------------------------------------


def chips(opened: Opened, text: int) -> list[list[str]]:
    """Of each token of a text: its piece, its id, and where it stands."""
    cards = opened.page.locator("main section.card").nth(text)
    return cards.locator(".tokens .chip").evaluate_all(
        "chips => chips.map((chip) => [...chip.children].map((part) => part.textContent.trim()))"
    )


@pytest.mark.parametrize("name", ["translator", "writer", "filler"])
def test_ids_of_words(see, name: str) -> None:
    """Every id that the network reads, and the characters that it stands for; marks stand for none."""
    seen: Seen = see(name)
    show(seen.opened, "tokens")
    model, texts = seen.served.model, [text for text in INPUTS[name] if text is not None]
    inputs = model.reader.inputs(*INPUTS[name], model.generation)
    for i, (text, given) in enumerate(zip(texts, inputs, strict=True)):
        ids, places = given.ids[0].tolist(), iter(model.tokenizer.offsets(text))
        words = set(model.tokenizer.encode(text, target=i > 0))
        for (piece, shown, place), expected in zip(chips(seen.opened, i), ids, strict=True):
            assert int(shown) == expected
            assert piece == model.tokenizer.tokens([expected])[0]
            assert place == ("{}–{}".format(*next(places)) if expected in words else "mark")
        assert next(places, None) is None


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(BPE(vocab_size=80), marks=pytest.mark.slow), ByteBPE(vocab_size=320)],
    ids=lambda scheme: scheme.kind,
)
def test_merges(open_page: Open, serve: Serve, scheme: BPE | ByteBPE) -> None:
    """Each word from its characters to its ids, by the list of merges in the tokenizer's file."""
    tokenizer = Tokenizer.train(TEXTS, scheme)
    config = c.ModelConfig(decoder=stack(input=c.TokenInput(vocab_size=tokenizer.vocab_size)))
    text = "seven three five"
    opened = open_page(serve(scheme.kind, random_model(config, tokenizer), text=text))
    show(opened, "tokens")
    shown = chips(opened, 0)
    assert [int(one) for _, one, _ in shown] == tokenizer.encode(text)
    for piece, _, place in shown:
        start, end = map(int, place.split("–"))
        assert text[start:end].strip() == piece.strip("▁␣")

    ranks = {tuple(pair): rank for rank, pair in enumerate(json.loads(tokenizer.library.to_str())["model"]["merges"])}
    space = "Ġ" if isinstance(scheme, ByteBPE) else "▁"
    words = opened.page.locator("main .word-of")
    assert words.count() == 3
    merged = 0
    for i, word in enumerate(text.split()):
        words.nth(i).click()
        first = "" if i == 0 and not shown[0][0].startswith(("▁", "␣")) else space
        story = list(merges_of(list(first + word), ranks))
        merged += len(story)
        eventually(partial(tells, opened, tokenizer, story))
    assert merged > 6


def merges_of(pieces: list[str], ranks: dict[tuple[str, ...], int]) -> Iterator[tuple[str, str, int, list[str]]]:
    """Of all pairs side by side, the one learned first, again and again."""
    while known := [(ranks[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in ranks]:
        rank, at = min(known)
        left, right = pieces[at : at + 2]
        pieces = [*pieces[:at], left + right, *pieces[at + 2 :]]
        yield left, right, rank, pieces


def tells(opened: Opened, tokenizer: Tokenizer, story: list[tuple[str, str, int, list[str]]]) -> None:
    def name(piece: str) -> str:
        found = tokenizer.library.token_to_id(piece)
        assert found is not None
        return tokenizer.tokens([found])[0].replace(" ", "␣")

    expected = [
        [str(i + 1), f"{name(left)} + {name(right)}", str(rank), " ".join(map(name, pieces))]
        for i, (left, right, rank, pieces) in enumerate(story)
    ]
    assert opened.rows("Rank") == expected


# --- what is written --------------------------------------------------------------------------------------------

PATHS = """(root) => {
  const paths = [];
  const walk = (list, path) => {
    for (const item of list.children) {
      path = [...path, item.firstChild.textContent.trim()];
      paths.push(path);
      for (const branch of item.querySelectorAll(":scope > ul > li > ol")) walk(branch, path);
    }
  };
  walk(root.querySelector("ol"), []);
  return paths;
}"""


NODE = re.compile(r".+: probability (.+), log-probability (.+), score (.+), (?:kept|dropped|an end), step (\d+)")


class Continued:
    """What the network says after a text and more tokens, each time read from the beginning."""

    def __init__(self, seen: Seen, name: str) -> None:
        self.model = seen.served.model
        text, target = INPUTS[name]
        self.given = self.model.reader.inputs(text, None if target is None else "", self.model.generation)
        self.known: dict[tuple[int, ...], torch.Tensor] = {}

    def after(self, written: tuple[int, ...]) -> torch.Tensor:
        """v, log probabilities."""
        if written not in self.known:
            *source, start = self.given
            ids = torch.cat([start.ids, torch.tensor([written], dtype=torch.long)], -1)
            with LOCK, torch.no_grad():
                self.known[written] = self.model.network(*source, Tokens(ids))[0, -1].double().log_softmax(-1)
        return self.known[written]

    def greedy(self, most: int) -> list[int]:
        ends, ids = self.model.settings().end_ids, list[int]()
        while len(ids) < most and not (ids and ids[-1] in ends):
            ids.append(int(self.after(tuple(ids)).argmax()))
        return ids


def field(opened: Opened, label: str, value: int) -> None:
    one = opened.page.locator(".settings label", has_text=label).locator("input")
    one.fill(str(value))
    one.press("Tab")


@pytest.mark.parametrize("name", ["translator", "writer"])
def test_what_is_written(see, name: str) -> None:
    """The likeliest tokens at every step, over the whole vocabulary; then a beam search's scores on every path."""
    seen: Seen = see(name)
    opened, network = seen.opened, Continued(seen, name)
    names = network.model.tokenizer.tokens(range(network.model.tokenizer.vocab_size))
    show(opened, "generation")
    field(opened, "tokens at most", 5)
    opened.button("Write", "main").click()
    written = network.greedy(5)
    texts = opened.page.locator(".text.A button")
    eventually(lambda: same(texts.all_inner_texts(), [names[i] for i in written]))
    for i, taken in enumerate(written):
        texts.nth(i).click()
        shares = network.after(tuple(written[:i])).exp()
        top = shares.topk(10).indices.tolist()
        rows = opened.rows(f"Likeliest at step {i + 1}")
        assert [row[0] for row in rows] == ["▸ " * (one == taken) + names[one] for one in top]
        column(rows, shares[top])
    assert paths_are_right(opened, network, names, written) > 3 * len(written)

    field(opened, "beams", 3)
    opened.button("Write", "main").click()
    opened.page.locator("main figure", has_text="Beam tree").wait_for()
    best = [names.index(one) for one in texts.all_inner_texts()]
    assert paths_are_right(opened, network, names, best) > 2 * len(best)


def same(got: object, wanted: object) -> None:
    assert got == wanted


def paths_are_right(opened: Opened, network: Continued, names: list[str], best: list[int]) -> int:
    """Every token of the tree: its probability, its logarithm, and the score of the path to it. How many there are."""
    paths: list[list[str]] = opened.page.locator("main .lists").evaluate(PATHS)
    scores: dict[tuple[int, ...], float] = {}
    penalty = network.model.settings().length_penalty
    for path in paths:
        assert path[0] == "start"
        ids = tuple(names.index(said.partition(": probability ")[0]) for said in path[1:])
        if ids:
            scores[ids] = node_is_right(network, ids, path[-1], penalty)
    ended = {ids: score for ids, score in scores.items() if ids[-1] in network.model.settings().end_ids}
    assert tuple(best) in scores
    if len(ended) > 1 and tuple(best) in ended:
        assert scores[tuple(best)] == max(ended.values()) or opened.page.get_by_text("Beam tree").count() == 0
    return len(scores)


def node_is_right(network: Continued, ids: tuple[int, ...], said: str, penalty: float) -> float:
    """Its score, by the network."""
    logs = [float(network.after(ids[:i])[ids[i]]) for i in range(len(ids))]
    score = sum(logs) / len(logs) ** penalty
    found = NODE.fullmatch(said)
    assert found is not None, said
    for text, value in zip(found.groups(), (math.exp(logs[-1]), logs[-1], score, len(ids)), strict=True):
        assert agrees(text, value), (said, value)
    return score
