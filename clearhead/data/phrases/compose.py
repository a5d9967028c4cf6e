"""Composes an English -> LOCALE parallel corpus from CLDR alone, with an exact alignment."""

import difflib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from babel import Locale, UnknownLocaleError, localedata

from clearhead.data.phrases.cldr import read_locale
from clearhead.data.phrases.draft import Draft, Phrase
from clearhead.data.phrases.inventory import AT_LEAST, ORDINAL_FIRST
from clearhead.data.phrases.locale_text import LocaleText
from clearhead.data.phrases.templates import SHAPES, Composer, Stock
from clearhead.data.phrases.tree import Untranslated
from clearhead.errors import UserError

KINDS: tuple[str, ...] = tuple(SHAPES)
_WORKING = "fr, de, es, ja"
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
    Raises `UserError` if CLDR does not know the locale, or has too few names of its own for it.
    """
    source, target = _english(), _target(locale)
    stock = _stock(source, target)
    wanted = {"test": n_test, "valid": n_valid, "train": n_train}
    splits: dict[str, list[Phrase]] = {split: [] for split in wanted}
    seen: dict[str, str] = {}
    for i, kind in enumerate(KINDS):
        counts = {split: _share(n, i) for split, n in wanted.items()}
        rng = random.Random(f"{target.tag} {seed} {kind}")
        phrases = _distinct(kind, sum(counts.values()), seen, (source, target), stock, rng)
        for split, n in counts.items():
            splits[split] += phrases[:n]
            phrases = phrases[n:]
    for split, phrases in splits.items():
        random.Random(f"{target.tag} {seed} {split}").shuffle(phrases)
    return PhraseCorpus(
        locale=target.tag,
        train=tuple(splits["train"]),
        valid=tuple(splits["valid"]),
        test=tuple(splits["test"]),
        names=_known(source, stock),
    )


def _share(n: int, i: int) -> int:
    """The `i`th kind's share of `n`. The shares are equal, and the first ones take the remainder."""
    return n // len(KINDS) + (i < n % len(KINDS))


def _distinct(
    kind: str,
    n: int,
    seen: dict[str, str],
    sides: tuple[LocaleText, LocaleText],
    stock: Stock,
    rng: random.Random,
) -> list[Phrase]:
    """`n` phrases of `kind` whose sources are not in `seen`. Adds their sources to `seen`."""
    phrases: list[Phrase] = []
    for _ in range(_TRIES * n):
        if len(phrases) == n:
            break
        draft = Draft(*sides)
        phrase = draft.phrase(SHAPES[kind](Composer(draft, stock, rng)), kind)
        known = seen.setdefault(phrase.source, phrase.target)
        assert known == phrase.target, f"two targets for {phrase.source!r}: {known!r} and {phrase.target!r}"
        if known is phrase.target:
            phrases.append(phrase)
    if len(phrases) < n:
        tag = sides[1].tag
        raise UserError(
            f"locale: expected {n} different phrases of {kind} in {tag!r}, got {len(phrases)}; try {_WORKING}"
        )
    return phrases


@lru_cache(maxsize=1)
def _english() -> LocaleText:
    return read_locale(Locale("en"))


def _target(locale: str) -> LocaleText:
    try:
        parsed = Locale.parse(locale.strip().replace("-", "_"))
    except (UnknownLocaleError, ValueError, TypeError):
        hint = ", ".join(dict.fromkeys([*_near(locale), *_WORKING.split(", ")]))
        raise UserError(f"locale: expected one that CLDR knows, got {locale!r}; try {hint}") from None
    if parsed.language == "en":
        raise UserError(f"locale: expected a language other than English, got {locale!r}; try {_WORKING}")
    try:
        return read_locale(parsed)
    except (Untranslated, KeyError) as error:
        missing = error.args[0] if isinstance(error, Untranslated) else "some of its patterns"
        raise UserError(
            f"locale: expected a full locale, got {locale!r}, for which CLDR lacks {missing}; try {_WORKING}"
        ) from None


def _near(locale: str) -> list[str]:
    """Locales whose code or English language name resembles `locale`."""
    tags = localedata.locale_identifiers()
    languages = {name.casefold(): tag for tag, name in Locale("en").languages.items() if tag in tags}
    names = difflib.get_close_matches(locale.casefold(), languages, n=2, cutoff=0.8)
    return [languages[name] for name in names] or difflib.get_close_matches(locale.replace("-", "_"), tags, n=3)


def _stock(source: LocaleText, target: LocaleText) -> Stock:
    """The ids that both languages have names for. An English name that two ids share goes to the first only."""
    ids: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for role in ("country", "language", "currency", "month", "weekday"):
        both = [i for i in source.names[role] if i in target.names[role]]
        if role == "currency":
            both = [i for i in both if {f"currency:{i}"} <= source.quantities.keys() & target.quantities.keys()]
        ids[role] = tuple(i for i in both if source.names[role][i].casefold() not in taken)
        taken |= {source.names[role][i].casefold() for i in ids[role]}
    counted = [key for key in source.quantities if key in target.quantities]
    ids["duration"] = tuple(key[9:] for key in counted if key.startswith("duration:"))
    ids["unit"] = tuple(key[5:] for key in counted if key.startswith("unit:"))
    ids["relative"] = tuple(key for key in counted if key.startswith(("in:", "ago:")))
    ids["symbol"] = tuple(code for code in source.signs if code in target.signs)
    for role, least in AT_LEAST.items():
        if len(ids[role]) < least:
            raise UserError(
                f"locale: expected at least {least} {role} names, got {len(ids[role])} in {target.tag!r}; "
                f"try {_WORKING}"
            )
    first_days = target.tag.split("_")[0] not in ORDINAL_FIRST
    ranges = all("from month" in side.dates for side in (source, target))
    return Stock(ids, first_days=first_days, month_ranges=ranges)


def _known(source: LocaleText, stock: Stock) -> dict[str, tuple[str, ...]]:
    names = {role: [source.names[role][i] for i in stock.ids[role]] for role in source.names if role in stock.ids}
    for role, prefix in (("unit", "unit:"), ("duration", "duration:")):
        names[role] = [dict(source.quantity(prefix + i, "2"))["unit"] for i in stock.ids[role]]
    return {role: tuple(found if role in ("month", "weekday") else sorted(found)) for role, found in names.items()}
