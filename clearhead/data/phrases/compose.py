"""Composes an English -> LOCALE parallel corpus from CLDR alone, with an exact alignment."""

import difflib
import random
from collections.abc import Mapping
from dataclasses import dataclass

from clearhead.data.phrases.draft import Phrase, Stock
from clearhead.data.phrases.locale_text import LocaleText, catalog, read_locale
from clearhead.data.phrases.templates import SHAPES, Composer
from clearhead.errors import UserError
from clearhead.recipe.generation import language_names

KINDS: tuple[str, ...] = tuple(SHAPES)
_WORKING = "fr, de, es, ja"
_ORDINAL_FIRST = ("fr", "it", "pt", "ca", "oc", "br")
"""Languages that write the first of a month as an ordinal ("1er mai"), which CLDR's patterns cannot express."""
_TRIES = 30
"""Maximum draws per wanted phrase before a kind counts as exhausted."""


@dataclass(frozen=True)
class PhraseCorpus:
    """Splits of translated phrases that share no source."""

    locale: str
    train: tuple[Phrase, ...]
    valid: tuple[Phrase, ...]
    test: tuple[Phrase, ...]
    names: Mapping[str, tuple[str, ...]]
    """The corpus's vocabulary: role ("country", "unit", ...) -> English names in alphabetical order."""


def compose(locale: str, *, n_train: int = 20000, n_valid: int = 500, n_test: int = 500, seed: int = 0) -> PhraseCorpus:
    """The corpus of (`locale`, `seed`): every kind equally often in every split, one target for each source.

    On both sides typographic spaces become plain spaces and direction marks are dropped.
    Raises UserError for a locale of which CLDR knows nothing or too little.
    """
    source, target = read_locale("en"), _target(locale)
    stock = _stock(source, target)
    wanted = {"test": n_test, "valid": n_valid, "train": n_train}
    splits: dict[str, list[Phrase]] = {split: [] for split in wanted}
    seen: dict[str, str] = {}
    for i, kind in enumerate(KINDS):
        counts = {split: _share(n, i) for split, n in wanted.items()}
        rng = random.Random(f"{target.tag} {seed} {kind}")
        phrases = _distinct(kind, sum(counts.values()), seen, stock, rng)
        for split, n in counts.items():
            splits[split] += phrases[:n]
            phrases = phrases[n:]
    for split, phrases in splits.items():
        random.Random(f"{target.tag} {seed} {split}").shuffle(phrases)
    parts = {split: tuple(phrases) for split, phrases in splits.items()}
    return PhraseCorpus(locale=target.tag, names=_known(source, stock), **parts)


def _share(n: int, i: int) -> int:
    """The `i`th kind's share of `n`. The shares are equal, and the first ones take the remainder."""
    return n // len(KINDS) + (i < n % len(KINDS))


def _distinct(kind: str, n: int, seen: dict[str, str], stock: Stock, rng: random.Random) -> list[Phrase]:
    """`n` phrases of `kind` whose sources are not in `seen`. Adds their sources to `seen`."""
    phrases: list[Phrase] = []
    for _ in range(_TRIES * n):
        if len(phrases) == n:
            break
        composer = Composer(stock, rng)
        phrase = composer.phrase(SHAPES[kind](composer), kind)
        known = seen.setdefault(phrase.source, phrase.target)
        assert known == phrase.target, f"two targets for {phrase.source!r}: {known!r} and {phrase.target!r}"
        if known is phrase.target:
            phrases.append(phrase)
    if len(phrases) < n:
        tag = stock.sides[1].tag
        raise UserError(
            f"locale: expected {n} different phrases of {kind} in {tag!r}, got {len(phrases)}; try {_WORKING}"
        )
    return phrases


def _target(locale: str) -> LocaleText:
    given, known = locale.strip().replace("-", "_"), catalog()
    tags = {tag.casefold(): tag for tag in known["locales"]}
    tags |= {name.casefold(): tag for name, tag in known["aliases"].items()}
    tag = tags.get(given.casefold())
    if given.casefold().split("_")[0] == "en":
        raise UserError(f"locale: expected a language other than English, got {locale!r}; try {_WORKING}")
    if tag is None:
        languages = {
            name.casefold(): language for language, name in language_names().items() if language in known["locales"]
        }
        names = difflib.get_close_matches(locale.casefold(), languages, n=2, cutoff=0.8)
        near = [languages[name] for name in names] or difflib.get_close_matches(given, known["locales"], n=3)
        hint = ", ".join(dict.fromkeys([*near, *_WORKING.split(", ")]))
        raise UserError(f"locale: expected one that CLDR knows well, got {locale!r}; try {hint}")
    return read_locale(tag)


def _stock(source: LocaleText, target: LocaleText) -> Stock:
    """The ids that both languages have names for. An English name that two ids share goes to the first only."""
    ids: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    counted = [key for key in source.quantities if key in target.quantities]
    for role in ("country", "language", "currency", "month", "weekday"):
        names = {i: name.casefold() for i, name in source.names[role].items() if i in target.names[role]}
        if role == "currency":
            names = {i: name for i, name in names.items() if f"currency:{i}" in counted}
        ids[role] = tuple(i for i, name in names.items() if name not in taken)
        taken |= {names[i] for i in ids[role]}
    for role in ("duration", "unit"):
        ids[role] = tuple(key.removeprefix(f"{role}:") for key in counted if key.startswith(f"{role}:"))
    ids["relative"] = tuple(key for key in counted if key.startswith(("in:", "ago:")))
    ids["symbol"] = tuple(code for code in source.signs if code in target.signs)
    first_days = target.tag.split("_")[0] not in _ORDINAL_FIRST
    ranges = all("from month" in side.dates for side in (source, target))
    return Stock((source, target), ids, first_days=first_days, month_ranges=ranges)


def _known(source: LocaleText, stock: Stock) -> dict[str, tuple[str, ...]]:
    names = {role: [source.names[role][i] for i in stock.ids[role]] for role in source.names if role in stock.ids}
    for role, prefix in (("unit", "unit:"), ("duration", "duration:")):
        names[role] = [dict(source.quantity(prefix + i, "2"))["unit"] for i in stock.ids[role]]
    return {role: tuple(found if role in ("month", "weekday") else sorted(found)) for role, found in names.items()}
