"""The embedded corpus: counts, splits, targets and alignment, and examples read by hand."""

import datetime as dt
import importlib.util
import json
import re
import sys
from collections import Counter
from functools import cache

import pytest

from clearhead.data.phrases import KINDS, Phrase, PhraseCorpus, compose
from clearhead.data.phrases.locale_text import catalog, plural_form, read_locale
from clearhead.errors import UserError
from tests import processes
from tests.conftest import ROOT

LOCALES = ("fr", "ja", *(pytest.param(locale, marks=pytest.mark.slow) for locale in ("de", "es")))
TOKEN = re.compile(r"\d|[^\W\d]+|[^\w\s]")


@cache
def corpus(locale: str) -> PhraseCorpus:
    return compose(locale)


@cache
def small(locale: str) -> PhraseCorpus:
    return compose(locale, n_train=4000, n_valid=8, n_test=8)


def phrases(locale: str) -> tuple[Phrase, ...]:
    found = corpus(locale)
    return found.train + found.valid + found.test


def aligned(phrase: Phrase) -> list[tuple[str, str, str]]:
    return [(s.role, phrase.source[slice(*s.source)], phrase.target[slice(*s.target)]) for s in phrase.spans]


@pytest.mark.parametrize("locale", LOCALES)
def test_counts_splits_and_kinds(locale: str) -> None:
    found = corpus(locale)
    assert (len(found.train), len(found.valid), len(found.test)) == (20000, 500, 500)
    assert len({p.source for p in phrases(locale)}) == 21000
    for split in (found.train, found.valid, found.test):
        shares = Counter(p.kind for p in split)
        assert set(shares) == set(KINDS)
        assert min(shares.values()) >= 0.12 * len(split)
    lengths = [len(TOKEN.findall(p.target)) for p in found.train]
    assert sum(lengths) / len(lengths) >= 9


@pytest.mark.parametrize("locale", LOCALES)
def test_spans_are_in_the_text_trimmed_and_disjoint(locale: str) -> None:
    for phrase in phrases(locale):
        assert phrase.spans
        for text, spans in (
            (phrase.source, [s.source for s in phrase.spans]),
            (phrase.target, [s.target for s in phrase.spans]),
        ):
            at = 0
            for start, end in sorted(spans):
                assert at <= start < end <= len(text)
                assert text[start:end] == text[start:end].strip()
                at = end


@pytest.mark.parametrize("locale", LOCALES)
def test_spans_cover_every_digit_they_can_and_say_the_same(locale: str) -> None:
    """What is aligned as a number, day, year or minute is the same digits on both sides."""
    for phrase in phrases(locale):
        for role, source, target in aligned(phrase):
            if role in {"number", "year", "day", "minute"}:
                assert re.sub(r"\D", "", source) == re.sub(r"\D", "", target), phrase
            elif role != "month":
                assert role == "quarter" or not source[0].isdigit(), phrase


@pytest.mark.parametrize("locale", LOCALES)
def test_targets_hold_no_ids_and_neither_side_typographic_spaces(locale: str) -> None:
    for phrase in phrases(locale):
        assert not re.search(r"\b[A-Z]{3}\b|\bM\d\d\b|GMT|[{}¤]", phrase.target)
        for text in (phrase.source, phrase.target):
            assert not re.search("  |[\u00a0\u2009\u202f\u200e\u200f]", text)
            assert text == text.strip()


@pytest.mark.parametrize("locale", LOCALES)
def test_one_name_has_one_translation_and_is_seen_often(locale: str) -> None:
    seen = Counter(word for p in corpus(locale).train for word in TOKEN.findall(p.source))
    assert [word for word, n in seen.items() if n < 12] == []
    names: dict[tuple[str, str], set[str]] = {}
    for phrase in phrases(locale):
        for role, source, target in aligned(phrase):
            if role in {"country", "language", "weekday"}:
                names.setdefault((role, source), set()).add(target)
    assert all(len(targets) == 1 for targets in names.values())
    roles: dict[str, set[str]] = {}
    for role, source in names:
        roles.setdefault(source, set()).add(role)
    assert all(len(found) == 1 for found in roles.values())


def test_weekdays_belong_to_their_dates() -> None:
    dates = [p for p in phrases("fr") if re.match(r"\w+day, \w+ \d+, \d{4}$", p.source)]
    assert len(dates) > 500
    for phrase in dates:
        parts = {role: text for role, text, _ in aligned(phrase)}
        day = dt.datetime.strptime(f"{parts['month']} {parts['day']} {parts['year']}", "%B %d %Y")
        assert f"{day:%A}" == parts["weekday"]


@pytest.mark.parametrize(
    ("locale", "source", "target", "spans"),
    [
        ("ja", r"(\w+)day, December (\d+), (\d+)", "{2}年12月{1}日.曜日", "year month day weekday"),
        ("de", r"Mon(d)ay, May (\d+), (\d+)", "Montag, {1}. Mai {2}", "weekday month day year"),
        ("de", r"(\d\d) days ago or .*", "vor {0} Tagen oder .*", "number unit relative"),
        ("ja", r"in (\d\d) days – .*", "{0} 日後 – .*", "relative number unit"),
        ("fr", r"€(\d+)\.(\d+) – €(\d+)\.(\d+)", "{0},{1} € – {2},{3} €", "currency number currency number"),
        ("de", r"(\d\d),(\d)00 \w+ \w+ – .*", "{0}.{1}00 .*", "number"),
        ("fr", r"1:(\d\d) PM .*", "13:{0} .*", "minute"),
        ("ko", r"1:(\d\d) PM .*", "오후 1:{0} .*", "hour minute period"),
        ("ja", r"(\d\d) kilometers per hour.*", "時速 {0} キロメートル.*", "number"),
    ],
)
def test_examples_read_by_hand(locale: str, source: str, target: str, spans: str) -> None:
    phrase = next(p for p in small(locale).train if re.fullmatch(source, p.source))
    match = re.fullmatch(source, phrase.source)
    assert match is not None
    assert re.fullmatch(target.format(*match.groups()), phrase.target)
    assert {*spans.split()} <= {span.role for span in phrase.spans}


def test_spanish_conjunctions_follow_the_sound_after_them() -> None:
    targets = [p.target for p in small("es").train]
    assert any(" e India" in target for target in targets)
    assert any(" u Omán" in target for target in targets)
    assert not any(re.search(r" y (i|hi(?![ae]))| o h?o", target, re.IGNORECASE) for target in targets)


def test_french_never_names_the_first_of_a_month_by_a_plain_number() -> None:
    assert not any(re.search(r"\b1 (janvier|mai|août)", p.target) for p in phrases("fr"))


def test_the_same_locale_and_seed_give_the_same_corpus() -> None:
    code = (
        "from clearhead.data.phrases import compose; import hashlib, sys; "
        "c = compose('fr', n_train=800, n_valid=40, n_test=40, seed=3); assert 'torch' not in sys.modules; "
        "print(hashlib.sha256(repr(c).encode()).hexdigest())"
    )
    runs = {
        processes.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)
    }
    assert len(runs) == 1
    one, other = (compose("fr", n_train=80, n_valid=8, n_test=8, seed=seed) for seed in (0, 1))
    assert one.train != other.train


def test_other_scripts_and_digits() -> None:
    assert any(re.search("[٠-٩]", p.target) for p in compose("ar_EG", n_train=80, n_valid=8, n_test=8).train)
    for locale in ("ru", "ko", "zh_TW", "ar", "hi", "pt-BR", "sv", "pl", "tr", "nl"):
        assert len(compose(locale, n_train=160, n_valid=8, n_test=8).train) == 160


def test_what_it_knows() -> None:
    names = corpus("fr").names
    assert (len(names["month"]), len(names["weekday"])) == (12, 7)
    for role, name in {"country": "Japan", "language": "Swedish", "unit": "kilometers", "duration": "minutes"}.items():
        assert name in names[role]


@pytest.mark.parametrize(
    ("locale", "says"),
    [
        ("xx", "expected one that CLDR knows well, got 'xx'"),
        ("swedish", "try sv"),
        ("fr_QQ_zz", "try fr"),
        ("", "got ''"),
        ("en-GB", "other than English"),
        ("nds", "CLDR knows well, got 'nds'; try"),
    ],
)
def test_an_unusable_locale_is_one_line(locale: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        compose(locale)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_locale_of_the_catalog_composes() -> None:
    tags = [tag for tag in catalog()["locales"] if tag != "en"]
    assert {"fr", "ja", "de", "es"} <= {*tags}
    for tag in tags[::8]:
        assert len(compose(tag, n_train=80, n_valid=8, n_test=8).train) == 80
    for name, tag in catalog()["aliases"].items():
        assert tag in tags, name
    assert compose("zh-tw", n_train=8, n_valid=8, n_test=8).locale == "zh_Hant_TW"


@pytest.mark.slow
def test_the_catalog_is_what_the_tool_writes() -> None:
    pytest.importorskip("babel")
    spec = importlib.util.spec_from_file_location("demo_locales", ROOT / "tools" / "demo_locales.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert json.loads(json.dumps(tool.document())) == catalog()
    assert tool.language_names() == tool.NAMES.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("locale", "value", "form"),
    [
        *(("ru", value, form) for value, form in {"1": "one", "22": "few", "5": "many", "1.5": "other"}.items()),
        *(("lv", value, form) for value, form in {"11": "zero", "21": "one", "2.1": "one", "3": "other"}.items()),
        *(("fr", value, form) for value, form in {"1.5": "one", "2": "other"}.items()),
        *(("sl", value, form) for value, form in {"102": "two", "2.0": "few"}.items()),
        ("ja", "1", "other"),
    ],
)
def test_plural_forms(locale: str, value: str, form: str) -> None:
    assert plural_form(read_locale(locale).plural, value) == form
