"""The small world of the course: English sentences with their Spanish translations, in which `bank` has two senses.

`bank` is `banco` beside money and `orilla` beside water. Spanish also puts an adjective after its noun and fits it and
the article to the noun, so a translator must look back and forth. A few hundred sentences teach all of that.
"""

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """An English noun with its Spanish one, and whether that is feminine."""

    english: str
    spanish: str
    feminine: bool

    @property
    def the(self) -> str:
        """The Spanish article."""
        return "la" if self.feminine else "el"


NOUNS = (
    Noun("car", "coche", False), Noun("house", "casa", True), Noun("dog", "perro", False), Noun("table", "mesa", True),
    Noun("book", "libro", False), Noun("shirt", "camisa", True),
)  # fmt: skip
MONEY = (Noun("money", "dinero", False), Noun("coin", "moneda", True), Noun("card", "tarjeta", True))
WATER = (Noun("fish", "pez", False), Noun("boat", "barco", False), Noun("frog", "rana", True))
BANK = {"money": Noun("bank", "banco", False), "water": Noun("bank", "orilla", True)}
ADJECTIVES = (
    ("red", "rojo", "roja"),
    ("old", "viejo", "vieja"),
    ("new", "nuevo", "nueva"),
    ("small", "pequeño", "pequeña"),
)
WHO = (("she", "ella"), ("he", "él"), ("the boy", "el chico"), ("the girl", "la chica"))
VERBS = (("sees", "ve"), ("finds", "encuentra"), ("wants", "quiere"), ("leaves", "deja"))
PLACES = (("at", "en"), ("near", "junto a"))


def _noun_phrase(draw: random.Random, noun: Noun, *, adjective: float = 0.5) -> tuple[str, str]:
    if draw.random() >= adjective:
        return f"the {noun.english}", f"{noun.the} {noun.spanish}"
    english, masculine, feminine = draw.choice(ADJECTIVES)
    return f"the {english} {noun.english}", f"{noun.the} {noun.spanish} {feminine if noun.feminine else masculine}"


def pair(draw: random.Random) -> tuple[str, str]:
    """One sentence and its translation. Half of the sentences have a bank, which another noun tells the sense of."""
    who, verb, place = draw.choice(WHO), draw.choice(VERBS), draw.choice(PLACES)
    if draw.random() < 0.4:
        thing = _noun_phrase(draw, draw.choice(NOUNS), adjective=0.7)
        return f"{who[0]} {verb[0]} {thing[0]}", f"{who[1]} {verb[1]} {thing[1]}"
    sense = draw.choice(("money", "water"))
    clue = _noun_phrase(draw, draw.choice(MONEY if sense == "money" else WATER), adjective=0.3)
    bank = _noun_phrase(draw, BANK[sense], adjective=0.3)
    if draw.random() < 0.6:
        words = (who, verb, clue, place, bank)
    else:
        words = (bank, ("has", "tiene"), clue)
    return " ".join(english for english, _ in words), " ".join(spanish for _, spanish in words)


def people() -> list[tuple[str, str]]:
    """Sentences in which a person is seen, found, wanted or left: there is none among `pairs`. In an order by lot."""
    found = [
        (f"{who[0]} {verb[0]} {english}", f"{who[1]} {verb[1]} {spanish}")
        for who in WHO
        for verb in VERBS
        for english, spanish in WHO[2:]
    ]
    random.Random(0).shuffle(found)
    return found


def pairs(n: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Different sentences with their translations."""
    draw = random.Random(seed)
    found: dict[tuple[str, str], None] = {}
    while len(found) < n:
        found[pair(draw)] = None
    return list(found)


def word_class(word: str) -> str:
    """noun, verb, adjective or other, of an English word of this world."""
    nouns = {noun.english for noun in (*NOUNS, *MONEY, *WATER)} | {"bank", "boy", "girl"}
    verbs = {english for english, _ in VERBS} | {"has"}
    adjectives = {english for english, *_ in ADJECTIVES}
    return "noun" if word in nouns else "verb" if word in verbs else "adjective" if word in adjectives else "other"
