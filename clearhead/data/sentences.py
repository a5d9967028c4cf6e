"""A small language of everyday sentences, English to French, German or Spanish, with the words that belong together.

`sentences.toml` holds the grammar: the frames of sentences and their words. Some sentences have a word that only the
others decide: *bank* by money or by the river, *it* for the animal or for the street.
"""

import random
import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from clearhead.errors import UserError

ADJECTIVE = 0.3
"""Probability of an adjective where a frame allows one."""
HELD_OUT = 8
"""One of so many contexts of ambiguous words is held out."""
UNDECIDED = 0.25
"""Share of the drawn sentences whose *it* is the same for both nouns that are kept."""
_REFERENCE = re.compile(r"\$(\w+)(?:\.(\w+))?(?::(\w+))?")
_MARKED = re.compile(r"<(\w+):([^>]*)>")


@dataclass(frozen=True)
class Span:
    """Characters `[start, end)` of the source and the characters of the target that mean the same."""

    source: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True)
class Sentence:
    """A sentence and its translation. Characters outside all spans are function words and punctuation."""

    source: str
    target: str
    kind: str
    spans: tuple[Span, ...]
    choice: tuple[str, str] | None
    """Patterns of the right and the wrong translation of its ambiguous word."""

    def decides(self, output: str) -> bool:
        """Returns True if a translation has the right word and not the wrong one. Needs a `choice`."""
        assert self.choice is not None
        right, wrong = (re.search(rf"\b(?:{word})\b", output) for word in self.choice)
        return right is not None and wrong is None


@dataclass(frozen=True)
class SentenceCorpus:
    """Splits that share no source, and no context of an ambiguous word."""

    language: str
    train: tuple[Sentence, ...]
    valid: tuple[Sentence, ...]
    test: tuple[Sentence, ...]


def kinds() -> tuple[str, ...]:
    """The kinds of sentences."""
    return tuple(dict.fromkeys(frame["kind"] for frame in _grammar()["frames"]))


def senses() -> list[dict[str, Any]]:
    """What the translations of an ambiguous word mean, in the languages of the explorer."""
    return _grammar()["senses"]


def compose(
    language: str, *, n_train: int = 20000, n_valid: int = 500, n_test: int = 500, seed: int = 0
) -> SentenceCorpus:
    """The corpus of (`language`, `seed`): every kind equally often in every split, one target for each source.

    Raises UserError for a language other than French, German and Spanish.
    """
    _, *targets = _grammar()["languages"]
    if language not in targets:
        raise UserError(f"language: expected {', '.join(targets)}, got {language!r}; try {targets[0]}")
    names = kinds()
    wanted = {"test": n_test, "valid": n_valid, "train": n_train}
    splits: dict[str, list[Sentence]] = {split: [] for split in wanted}
    seen: set[str] = set()
    for i, kind in enumerate(names):
        draws = _draws(kind, language, seed)
        for split, n in wanted.items():
            for _ in range(n // len(names) + (i < n % len(names))):
                held_out, sentence = next(draws)
                while sentence.source in seen or held_out not in (None, split != "train"):
                    held_out, sentence = next(draws)
                seen.add(sentence.source)
                splits[split].append(sentence)
    for split, sentences in splits.items():
        random.Random(f"{seed} {split}").shuffle(sentences)
    return SentenceCorpus(language, **{split: tuple(sentences) for split, sentences in splits.items()})


def _draws(kind: str, language: str, seed: int) -> Iterator[tuple[bool | None, Sentence]]:
    """Sentences of a kind without end, and whether the context is held out; None without an ambiguous word."""
    rng = random.Random(f"{language} {seed} {kind}")
    frames = [frame for frame in _grammar()["frames"] if frame["kind"] == kind]
    while True:
        frame = rng.choice(frames)
        draft = Draft(rng.choice(frame["slots"]), rng)
        context = [draft.lemma(slot) for slot in frame.get("context", "").split()]
        held_out = zlib.crc32(f"{seed} {context}".encode()) % HELD_OUT == 0 if context else None
        sentence = draft.sentence(frame, rng.choice(frame["say"]), language)
        if sentence.choice or kind != "it" or rng.random() < UNDECIDED:
            yield held_out, sentence


@cache
def _grammar() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Word:
    """A word in all languages. A noun has a determiner too, and perhaps an adjective."""

    forms: Mapping[str, Mapping[str, Sequence[str]]]
    """By language: groups of forms by name, such as those of the past."""
    gender: Mapping[str, str]
    """By language: m, f or n, and 1 for the first person. Empty unless it is a noun."""
    determiner: str = ""
    plural: bool = False
    adjective: "Word | None" = None


@cache
def _words(part: str, name: str) -> tuple[Word, ...]:
    """The words of a class."""
    names = _grammar()["forms"].get(part, {})
    words: list[Word] = []
    for line in _grammar()[part][name]["words"].strip().splitlines():
        texts = dict(zip(_grammar()["languages"], line.split(" | "), strict=True))
        gender = {side: text.split()[0] for side, text in texts.items() if part == "nouns"}
        groups = {
            side: dict(
                zip(
                    names.get(side, "base").split(),
                    [one.split()[bool(gender) :] for one in text.split(";")],
                    strict=True,
                )
            )
            for side, text in texts.items()
        }
        words.append(Word(groups, gender))
    return tuple(words)


class Draft:
    """Words drawn for the slots of a frame, such as `S=person,name V=eat O=food/taste/the,a`."""

    def __init__(self, slots: str, rng: random.Random) -> None:
        self._slots = {name: _draw(text, rng) for name, _, text in (slot.partition("=") for slot in slots.split())}

    def sentence(self, frame: Mapping[str, Any], patterns: Sequence[str], language: str) -> Sentence:
        """What one of the frame's patterns says."""
        at = _grammar()["languages"].index(language)
        (source, there), (target, here) = self._text("en", patterns[0]), self._text(language, patterns[at])
        spans = tuple(Span(a, b) for slot in there for a in there[slot] for b in here.get(slot, ()))
        words = _MARKED.sub(r"\2", self._fill(language, frame.get("choice", [""] * 4)[at])).split()
        choice = (words[0], words[1]) if len({*words}) == 2 else None
        return Sentence(source, target, frame["kind"], spans, choice)

    def lemma(self, slot: str) -> str:
        """The English word of a slot."""
        return next(iter(self._slots[slot].forms["en"].values()))[0]

    def _text(self, side: str, pattern: str) -> tuple[str, dict[str, list[tuple[int, int]]]]:
        """What a pattern says, and where the word of each slot stands in it."""
        text = self._fill(side, pattern) + "." * (pattern[-1] != "?")
        for old, new in _grammar()["alike"] + _grammar()[side]["rules"]:
            text = re.sub(old, new, text)
        plain, *rest = _MARKED.split(text)
        places: dict[str, list[tuple[int, int]]] = {}
        for slot, word, after in zip(*[iter(rest)] * 3, strict=True):
            places.setdefault(slot, []).append((len(plain), len(plain) + len(word)))
            plain += word + after
        return re.sub(r"[^\W\d_]", lambda first: first[0].upper(), plain, count=1), places

    def _fill(self, side: str, pattern: str) -> str:
        return _REFERENCE.sub(lambda match: self._say(side, *match.groups("")), pattern)

    def _say(self, side: str, name: str, form: str, agree: str) -> str:
        """What a reference `$name.form:agree` stands for, with the words of slots marked as `<name:word>`."""
        word = self._slots.get(name)
        if word is not None and word.gender:
            return self._phrase(side, name, form or "nom")
        groups = (
            word.forms[side] if word else {key: text.split() for key, text in _grammar()[side]["words"][name].items()}
        )
        form, index, plural = form or next(iter(groups)), 0, False
        if agree:
            noun = self._slots[agree]
            gender, plural = noun.gender[side], noun.plural
            index = int("1" not in gender) if form in ("pres", "past") else "mfn".index(gender[0])
        text = _pick(groups[form], index, plural)
        return _marked(name, text) if word else text

    def _phrase(self, side: str, slot: str, case: str) -> str:
        """A noun with its determiner and adjective."""
        noun, rules = self._slots[slot], _grammar()[side]
        index, at = "mfn".index(noun.gender[side][0]), _grammar()["cases"].index(case)

        def row(table: str) -> str:
            rows = rules[table][noun.determiner].split(" / ")
            return _pick(rows[min(at, len(rows) - 1)].split(), index, noun.plural)

        *forms, last = noun.forms[side]["base"]
        other = len(forms) == 2 and at > 0 and not noun.plural
        parts = [_marked(slot, last if other else _pick([*forms, last][:2], 0, noun.plural))]
        if noun.adjective:
            groups = noun.adjective.forms[side]
            after = rules["after"] != groups["base"][0].startswith("^")
            text = _pick(groups.get("stem", groups["base"]), index, noun.plural)
            ending = row("endings") if "endings" in rules and not after else ""
            parts.insert(after, _marked(f"{slot}a", text + ending))
        return " ".join([row("determiners"), *parts])


def _draw(text: str, rng: random.Random) -> Word:
    """A word of `CLASS,CLASS/ADJECTIVES/DETERMINERS`."""
    classes, adjectives, determiners = (part.split(",") for part in (text + "//").split("/")[:3])
    grammar = _grammar()
    part = next(part for part in ("nouns", "verbs", "adjectives", "others") if classes[0] in grammar[part])
    name, word = rng.choice([(name, word) for name in classes for word in _words(part, name)])
    if part != "nouns":
        return word
    usual, counted = grammar[part][name], len(word.forms["en"]["base"]) > 1
    choices = determiners if determiners[0] else usual.get("det", grammar["det"]).split()
    determiner = rng.choice([one for one in choices if counted or one.rstrip("+") not in ("a", "two")])
    wanted = adjectives if adjectives[0] else usual["adj"].split() if rng.random() < ADJECTIVE else ["-"]
    possible = [adjective for kind in wanted if kind != "-" for adjective in _words("adjectives", kind)]
    return replace(
        word,
        determiner=determiner.rstrip("+"),
        plural=(counted and determiner.endswith("+")) or "+" in word.gender["en"],
        adjective=rng.choice(possible) if possible else None,
    )


def _pick(forms: Sequence[str], index: int, plural: bool) -> str:
    """The form of a gender or person, in the singular or plural."""
    text = forms[(index if len(forms) > 2 else 0) + len(forms) // 2 * plural]
    return text.strip("^-").replace("_", " ")


def _marked(slot: str, text: str) -> str:
    return f"<{slot}:{text}>" if text else ""
