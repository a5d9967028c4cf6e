"""The demo's messages and questions. All go to standard error, because --json prints to standard output."""

import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from clearhead.api import Model
from clearhead.data.phrases import PhraseCorpus
from clearhead.demo.figures import Figures
from clearhead.errors import UserError

WIDTH = 100
"""Cells of a line."""


@dataclass(frozen=True)
class Own:
    """A phrase of the user, its translation, and its words that were not in the training data."""

    source: str
    output: str
    unseen: tuple[str, ...]


def say(text: str) -> None:
    """Prints to standard error."""
    print(text, file=sys.stderr, flush=True)


def report(figures: Figures, corpus: PhraseCorpus, outputs: Sequence[str]) -> None:
    """The figures, and of each kind the first phrase of the test, right or wrong."""
    examples = dict(reversed([(p.kind, (p, o)) for p, o in zip(corpus.test, outputs, strict=True)]))
    say("")
    for kind, share in figures.kinds.items():
        phrase, output = examples[kind]
        say(f"{share:>6.1%} right  {kind}")
        say(line("en", phrase.source))
        if output != phrase.target:
            say(line("wrong", output))
        say(line("right", phrase.target))
    say(
        f"{figures.exact_match:>6.1%} right  all {figures.n_test} phrases, none of which it has seen; "
        f"BLEU {figures.bleu:.1f}\n"
        f"{figures.alignment:>6.1%} of content tokens: the strongest cross-attention of decoder layer {figures.layer}"
        " is on the right word"
    )


def line(label: str, text: str) -> str:
    """A labelled text on one line, cut to WIDTH cells; a Chinese character takes two."""
    whole = f"{label:>12}  {text}"
    return whole if cell_len(whole) <= WIDTH else set_cell_size(whole, WIDTH - 1).rstrip() + "…"


# --- the user's own phrases --------------------------------------------------------------------------------------


def translate_own(model: Model, corpus: PhraseCorpus, texts: Sequence[str]) -> list[Own]:
    """Translates the user's phrases and reports each at once."""
    known = known_words(corpus)
    result: list[Own] = []
    for text in filter(str.strip, texts):
        say(f"\n{text}")
        result.append(answer(model, known, text))
    return result


def answer(model: Model, known: Mapping[str, set[str]], text: str) -> Own:
    """Translates and reports one phrase."""
    unseen = tuple(word for word in words(text) if word not in known.get(word.lower(), ()))
    own = Own(text, model.translate([text])[0], unseen)
    say(f"    {own.output}")
    if unseen:
        # The model is case-sensitive: "france" is as unknown to it as any new word.
        told = [f"{w} (only {min(known[w.lower()])})" if w.lower() in known else w for w in unseen]
        say(f"    (a guess: it has never seen {', '.join(told)})")
    return own


def can_ask() -> bool:
    """Returns True if standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def converse(model: Model, corpus: PhraseCorpus) -> list[Own]:
    """Translates line after line until an empty one, the end of the input or Ctrl-C."""
    say(f"\nYour turn.\n{what_it_knows(corpus)}\nAn empty line ends.")
    known = known_words(corpus)
    result: list[Own] = []
    try:
        while text := input("en> ").strip():
            try:
                result.append(answer(model, known, text))
            except UserError as error:
                say(f"    {error}")
    except (EOFError, KeyboardInterrupt):
        say("")
    return result


def what_it_knows(corpus: PhraseCorpus) -> str:
    """The words that the translator knows, in a line or two."""
    parts = [f"{len(names)} {plural(role)} ({', '.join(names[:2])} ...)" for role, names in corpus.names.items()]
    text = f"It knows {', '.join(parts)}, dates, times, numbers, and lists of these; it has seen no other word."
    return textwrap.fill(text, WIDTH)


def known_words(corpus: PhraseCorpus) -> dict[str, set[str]]:
    """The spellings of every source word in the training data, by the word in lower case."""
    known: dict[str, set[str]] = {}
    for word in (word for phrase in corpus.train for word in words(phrase.source)):
        known.setdefault(word.lower(), set()).add(word)
    return known


def words(text: str) -> list[str]:
    """Runs of letters. Digits are all known, so numbers do not count."""
    return re.findall(r"[^\W\d_]+", text)


def plural(role: str) -> str:
    """The plural of a role's name."""
    return role[:-1] + "ies" if role.endswith("y") and role[-2] not in "aeiou" else role + "s"
