"""The demo's messages and questions. All go to standard error, because --json prints to standard output."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clearhead.api import Model
from clearhead.data.sentences import SentenceCorpus
from clearhead.demo.figures import Figures, SwitchedOff
from clearhead.errors import UserError


@dataclass(frozen=True)
class Own:
    """A sentence of the user, its translation, and its words that were not in the training data."""

    source: str
    output: str
    unseen: tuple[str, ...]


def say(text: str) -> None:
    """Prints to standard error."""
    print(text, file=sys.stderr, flush=True)


def report(figures: Figures, corpus: SentenceCorpus, outputs: Sequence[str]) -> None:
    """The figures, and of each kind the first sentence of the test, right or wrong."""
    examples = dict(reversed([(one.kind, (one, output)) for one, output in zip(corpus.test, outputs, strict=True)]))
    say("")
    for kind, share in figures.kinds.items():
        sentence, output = examples[kind]
        say(f"{share:>6.1%} right  {kind}")
        wrong = f"\n       wrong  {output}" if output != sentence.target else ""
        say(f"          en  {sentence.source}{wrong}\n       right  {sentence.target}")
    say(
        f"{figures.exact_match:>6.1%} right  all {figures.n_test} sentences, none of which it has seen; "
        f"BLEU {figures.bleu:.1f}\n"
        f"{figures.ambiguous:>6.1%} of ambiguous words (bank, apple, light, hard, key, with), {figures.it:.1%} of it\n"
        f"{figures.alignment:>6.1%} of content tokens: the strongest cross-attention of decoder layer {figures.layer}"
        " is on the right word"
    )


def suggest(edit: SwitchedOff) -> None:
    """The head that decides a word, and how the probabilities change without it."""
    (right, other), before, after = edit.words, edit.before, edit.after
    say(
        f"\n{edit.source}\n    Switch off {place(edit.at)}, and {right} becomes {other}:\n"
        f"    {right} {before[0]:.0%} -> {after[0]:.0%}, {other} {before[1]:.0%} -> {after[1]:.0%}."
        f" So it is in {edit.flipped} of {edit.of} unseen sentences."
    )


def place(at: str) -> str:
    """An address of a head in words: `encoder.blocks.0.attn.z[h=2]` is encoder, block 0, self-attention, head 2."""
    stack, _, block, kind, head = re.split(r"\.z\[h=|[.\]]", at)[:5]
    return f"{stack}, block {block}, {'cross' if kind == 'cross' else 'self'}-attention, head {head}"


# --- the user's own sentences --------------------------------------------------------------------------------------


def translate_own(model: Model, corpus: SentenceCorpus, texts: Sequence[str]) -> list[Own]:
    """Translates the user's sentences and reports each at once."""
    known = known_words(corpus)
    result: list[Own] = []
    for text in filter(str.strip, texts):
        say(f"\n{text}")
        result.append(answer(model, known, text))
    return result


def answer(model: Model, known: Mapping[str, set[str]], text: str) -> Own:
    """Translates and reports one sentence."""
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


def converse(model: Model, corpus: SentenceCorpus) -> list[Own]:
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


EXAMPLES = (
    "I love apple phones.",
    "The animal did not cross the street because it was too tired.",
    "The man saw the astronomer with the telescope.",
)


def what_it_knows(corpus: SentenceCorpus) -> str:
    """How many words the translator knows, and what to try."""
    tries = "\n".join(f"    {text}" for text in EXAMPLES)
    return f"It knows {len(known_words(corpus))} words of everyday sentences and no other. For example:\n{tries}"


def known_words(corpus: SentenceCorpus) -> dict[str, set[str]]:
    """The spellings of every source word in the training data, by the word in lower case."""
    known: dict[str, set[str]] = {}
    for word in (word for sentence in corpus.train for word in words(sentence.source)):
        known.setdefault(word.lower(), set()).add(word)
    return known


def words(text: str) -> list[str]:
    """Runs of letters."""
    return re.findall(r"[^\W\d_]+", text)
