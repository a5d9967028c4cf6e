"""The small language: counts, splits, spans and choices, agreement by rule, and examples read by hand."""

import hashlib
import random
import re
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

from clearhead.data.sentences import Draft, Sentence, SentenceCorpus, _grammar, compose, kinds
from clearhead.errors import UserError
from tests import processes

LANGUAGES = ("fr", "de", "es")
VOWEL = "[aeiouhéêîôâœ]"


@cache
def corpus(language: str) -> SentenceCorpus:
    return compose(language, n_train=3500)


@cache
def targets(language: str) -> str:
    return "\n".join(one.target for one in sentences(language))


def sentences(language: str) -> tuple[Sentence, ...]:
    found = corpus(language)
    return found.train + found.valid + found.test


@pytest.mark.parametrize("language", LANGUAGES)
def test_counts_splits_and_kinds(language: str):
    found = corpus(language)
    assert (len(found.train), len(found.valid), len(found.test)) == (3500, 500, 500)
    assert len({one.source for one in sentences(language)}) == 4500
    for split in (found.train, found.valid, found.test):
        shares = Counter(one.kind for one in split)
        assert shares.keys() == {*kinds()}
        assert max(shares.values()) - min(shares.values()) <= 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_held_out_context_is_in_no_sentence_of_the_training(language: str):
    """The two nouns around an *it* never meet in both splits."""
    pair = re.compile(r"The (?:\w+ )?(\w+) (?:did|does) not (?:fit in|\w+) the (?:\w+ )?(\w+) because")
    pairs = [
        {match.groups() for one in split if one.kind == "it" and (match := pair.match(one.source))}
        for split in (corpus(language).train, corpus(language).test)
    ]
    assert min(map(len, pairs)) > 20
    assert not pairs[0] & pairs[1]


@pytest.mark.parametrize("language", LANGUAGES)
def test_spans_are_whole_words_and_nothing_of_the_grammar_is_left(language: str):
    for one in sentences(language):
        assert not re.search(r"[$<>_^]|  | [.,]|- |^-", one.source + "\n" + one.target), one
        assert one.source[0].isupper()
        assert one.source[-1] + one.target[-1] in ("..", "??")
        assert len(one.spans) >= 2
        for text, ranges in ((one.source, [s.source for s in one.spans]), (one.target, [s.target for s in one.spans])):
            for start, end in ranges:
                assert start < end
                assert not re.match(r"\w\w", text[max(start - 1, 0) : start + 1] if start else ""), one
                assert not re.fullmatch(r"\w\w", text[end - 1 : end + 1]), one


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_reference_decides_its_ambiguous_word(language: str):
    decided = [one for one in sentences(language) if one.choice]
    assert {"bank", "senses", "it"} <= {one.kind for one in decided}
    assert all(one.decides(one.target) for one in decided)
    bank = [one for one in decided if one.kind == "bank" and one.choice]
    assert len({one.choice for one in bank}) == 2
    assert not any(one.decides(one.target.replace(*one.choice)) for one in bank if one.choice)


def test_french_elides_contracts_and_agrees():
    text = targets("fr").lower()
    assert re.findall(rf"\b(?:le|la|je|ne|de|que|ce|ma) {VOWEL}\w*", text) == []
    assert re.findall(r"\b(?:de|à) les? ", text) == []
    assert re.findall(rf"\b(?:beau|nouveau) {VOWEL}\w*|\b(?:le|un|ce|mon) vieux {VOWEL}\w*", text) == []
    assert {*re.findall(r"\b(\w+) (?:vieille|petite|nouvelle|grande) ", text)} <= {"la", "une", "ma", "cette", "est"}
    assert not re.search(r"\b(?:la|une|ma|cette) (?:vieux|vieil|petit|nouveau|nouvel|grand|beau|bel) ", text)
    assert re.search(r"\bsont (?:all|ven)ées\b", text)
    assert not re.search(r"\b(?:elle|la \w+) est (?:allé|venu|retourné)\b", text)


def test_german_verbs_stand_last_and_articles_have_their_case():
    for one in sentences("de"):
        if match := re.search(r", (?:dass|weil) (.*)\.$", one.target):
            assert re.search(r"\b(?:hat|haben|habe|war|ist)$", match[1]), one
        if match := re.match(r"(?:Gestern(?! Abend)|Heute Morgen|Letzte Woche|Am Montag) (\w+) ", one.target):
            assert match[1] in {"hat", "haben", "habe", "ist", "sind", "war", "waren"}, one
    assert not re.search(r"\b(?:[Ii]n|[Aa]n|[Zz]u|[Bb]ei) dem\b|\b[Zz]u der\b", targets("de"))
    assert re.search(r"\bden Astronomen\b", targets("de"))


def test_spanish_contracts_and_marks_people():
    assert not re.search(r"\b(?:a|de) el\b|\bla agua\b", targets("es"))
    assert re.search(r"\bvio al ", targets("es"))


class Picks(random.Random):
    """Draws what it is told, and no adjective that a frame does not ask for."""

    def __init__(self, picks: str) -> None:
        super().__init__(0)
        self._picks = iter(picks.split())

    def choice(self, seq: Any) -> Any:
        pick = next(self._picks)
        return next(one for one in seq if pick == (one if isinstance(one, str) else lemma(one)))

    def random(self) -> float:
        return 1.0


def lemma(option: Any) -> str:
    word = option[1] if isinstance(option, tuple) else option
    return next(iter(word.forms["en"].values()))[0]


@pytest.mark.parametrize(
    ("slots", "say", "picks", "source", "targets"),
    [
        ("V=cross P=way/-/the A=agent", 0, "animal the cross street the tired",
         "The animal did not cross the street because it was too tired.",
         ["L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
          "Das Tier hat die Straße nicht überquert, weil es zu müde war.",
          "El animal no cruzó la calle porque estaba demasiado cansado."]),
        ("V=cross P=way/-/the A=way_state", 0, "animal the cross street the wide",
         "The animal did not cross the street because it was too wide.",
         ["L'animal n'a pas traversé la rue parce qu'elle était trop large.",
          "Das Tier hat die Straße nicht überquert, weil sie zu breit war.",
          "El animal no cruzó la calle porque era demasiado ancha."]),
        ("S=money_person", 0, "customer the wait bank the yesterday", "The customer waited at the bank.",
         ["Le client a attendu à la banque.", "Der Kunde hat in der Bank gewartet.", "El cliente esperó en el banco."]),
        ("S=water_person", 0, "sailor the wait bank the yesterday", "The sailor waited at the bank.",
         ["Le marin a attendu sur la rive.", "Der Matrose hat am Ufer gewartet.", "El marinero esperó en la orilla."]),
        ("O=water B=bank_river T", 1, "boat the bank the yesterday", "The boat is at the bank.",
         ["Le bateau est sur la rive.", "Das Boot ist am Ufer.", "El barco está en la orilla."]),
        ("V=love O=device", 0, "I none love phone all+ apple", "I love apple phones.",
         ["J'aime les téléphones Apple.", "Ich liebe Telefone von Apple.", "Adoro los teléfonos Apple."]),
        ("V=love O=animal", 0, "I none love cat all+", "I love cats.",
         ["J'aime les chats.", "Ich liebe Katzen.", "Adoro los gatos."]),
        ("V=watch T=person,relative/-/the I=lens", 0, "man the see astronomer the telescope the",
         "The man saw the astronomer with the telescope.",
         ["L'homme a vu l'astronome avec le télescope.", "Der Mann hat den Astronomen mit dem Teleskop gesehen.",
          "El hombre vio al astrónomo con el telescopio."]),
        ("V=acquaint T=person", 0, "man the greet astronomer the telescope the",
         "The man greeted the astronomer with the telescope.",
         ["L'homme a salué l'astronome au télescope.", "Der Mann hat den Astronomen mit dem Teleskop begrüßt.",
          "El hombre saludó al astrónomo del telescopio."]),
        ("V=go P=goal", 1, "queen the+ go school the yesterday", "Yesterday the queens went to the school.",
         ["Hier, les reines sont allées à l'école.", "Gestern sind die Königinnen zur Schule gegangen.",
          "Ayer las reinas fueron a la escuela."]),
        ("W=use O=thing", 0, "Anna none buy sell car the", "Anna bought the car and sold it.",
         ["Anna a acheté la voiture et l'a vendue.", "Anna hat das Auto gekauft und es verkauft.",
          "Anna compró el coche y lo vendió."]),
        ("V=gobble O=meal//the A=mood", 0, "dog the eat cheese the tired", "The dog that ate the cheese is tired.",
         ["Le chien qui a mangé le fromage est fatigué.", "Der Hund, der den Käse gefressen hat, ist müde.",
          "El perro que comió el queso está cansado."]),
    ],
)  # fmt: skip
def test_examples_read_by_hand(slots: str, say: int, picks: str, source: str, targets: list[str]):
    frame, line = next((f, s) for f in _grammar()["frames"] for s in f["slots"] if slots in s)
    made = [Draft(line, Picks(picks)).sentence(frame, frame["say"][say], language) for language in LANGUAGES]
    assert {one.source for one in made} == {source}
    assert [one.target for one in made] == targets
    content = [source[slice(*span.source)] + "/" + targets[0][slice(*span.target)] for span in made[0].spans]
    assert all(word[0] != "/" and word[-1] != "/" for word in content)


def test_bank_and_rive_are_a_span():
    for one in sentences("fr"):
        if one.kind == "bank":
            pairs = {
                (one.source[slice(*s.source)].rstrip("s"), one.target[slice(*s.target)].rstrip("s")) for s in one.spans
            }
            assert pairs & {("bank", "banque"), ("bank", "rive")}


def test_the_same_language_and_seed_give_the_same_corpus_without_torch():
    code = (
        "from clearhead.data.sentences import compose; import hashlib, sys; "
        "c = compose('fr', n_train=700, n_valid=70, n_test=70, seed=3); assert 'torch' not in sys.modules; "
        "print(hashlib.sha256(repr(c).encode()).hexdigest())"
    )
    run = processes.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    again = compose("fr", n_train=700, n_valid=70, n_test=70, seed=3)
    assert run.stdout.strip() == hashlib.sha256(repr(again).encode()).hexdigest()
    assert again.train != compose("fr", n_train=700, n_valid=70, n_test=70).train


@pytest.mark.parametrize("language", ["xx", "en", "", "fr_FR"])
def test_another_language_is_one_line(language: str):
    with pytest.raises(UserError, match=rf"^language: expected fr, de, es, got '{language}'; try fr$"):
        compose(language)
