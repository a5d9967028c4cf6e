"""The roles of columns, by their names and what is in them."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from clearhead.data.roles import choose
from clearhead.errors import UserError

RNG = random.Random(0)
WORDS = (
    "the red green bird sings over deep river while people walk slowly and think about work food music travel".split()
)
CYRILLIC = str.maketrans("abdefghiklmnoprstuvwy", "абдефгхиклмнопрстувыя")


def text(n: int = 12) -> str:
    return " ".join(RNG.choices(WORDS, k=n))


CELLS: dict[str, Callable[[int], object]] = {
    "text": lambda i: f"{text()} {i}",
    "long": lambda i: f"{text(60)} {i}",
    "title": lambda i: f"{text(4)} {i}",
    "name": lambda _: f"{text(1)}{text(1)}{text(1)}",
    "source": lambda i: " ".join(WORDS[i % 7 : i % 7 + i % 11 + 1]) + f" {i}",
    "target": lambda i: f"{CELLS['source'](i)}".translate(CYRILLIC),
    "id": lambda _: f"{RNG.getrandbits(64):016x}",
    "row": lambda i: i,
    "date": lambda i: f"Mon Apr {i % 28 + 1:02} 22:19:45 PDT 2009",
    "day": lambda i: f"2017-04-{i % 28 + 1}",
    "url": lambda i: f"https://host/{i}",
    "float": lambda _: round(RNG.random() * 5, 2),
    "stars": lambda _: float(RNG.randint(1, 5)),
    "points": lambda _: RNG.randint(80, 120),
    "code": lambda i: i % 77,
    "coded": lambda i: f"intent of {i % 77}",
    "flag": lambda _: RNG.randint(0, 1),
    "truth": lambda _: RNG.random() < 0.5,
    "two": lambda _: RNG.choice(["ham", "spam"]),
    "three": lambda _: RNG.choice(["entailment", "neutral", "contradiction"]),
    "gold": lambda i: "-" if i % 50 == 0 else RNG.choice(["entailment", "neutral"]),
    "some": lambda i: None if i % 50 == 0 else RNG.choice(["up", "down"]),
    "empty": lambda i: "x" if i == 7 else "",
    "bars": lambda _: "|".join(RNG.sample(["war", "love", "crime", "fun"], RNG.randint(1, 3))),
    "commas": lambda _: ",".join(map(str, RNG.sample(range(9), RNG.randint(1, 3)))),
    "listed": lambda _: RNG.sample(["war", "love", "crime", "fun"], RNG.randint(1, 3)),
    "dicts": lambda i: [{"question": text(), "choice": i % 9}],
    "answers": lambda _: RNG.choice(["accept", "reject", "ignore"]),
    "half": lambda i: "ab"[i % 2],
    "quarter": lambda i: f"q{i % 4}",
    "one": lambda _: "INSULT",
    "third": lambda i: RNG.choice(["UNT", "TIN"]) if i % 3 == 0 else "",
    "spans": lambda i: str([*range(i, i + 9)]),
    "split": lambda _: RNG.choice(["train", "test"]),
    "literal": lambda _: str(RNG.sample(["war", "love", "crime", "fun"], RNG.randint(1, 3))),
    "votes": lambda _: [RNG.randint(0, 3), 3],
    "words": lambda _: text(5).split(),
    "tags": lambda _: RNG.choices(["O", "B-X"], k=5),
    "said": lambda _: " ".join(RNG.choices(WORDS, k=5)),
    "said_tags": lambda _: " ".join(RNG.choices(["O", "B-X"], k=5)),
    "word": lambda _: RNG.choice(WORDS),
    "word_tag": lambda _: RNG.choice(["O", "B-X"]),
    "nested": lambda i: {"en": text(), "de": f"{text()} {i}"},
    "answer": lambda _: {"text": ["river"], "answer_start": [0]},
}


def table(columns: str, n: int = 400) -> tuple[list[str | int], list[list[object]]]:
    """Columns, each as NAME:KIND, or KIND where a table has no header; _ stands for a space."""
    RNG.seed(0)
    parts = [part.rpartition(":") for part in columns.split()]
    names = [name.replace("_", " ") if name else i for i, (name, _, _) in enumerate(parts)]
    return names, [[CELLS[kind](i) for _, _, kind in parts] for i in range(n)]


def roles(columns: str, **given: Any) -> str:
    """The roles in a few words, or the error."""
    try:
        found = choose("t.csv", *table(columns), given=given)
    except UserError as error:
        return str(error)
    data: dict[str, Any] = {**found.source, **found.data}
    kind = data.pop("problem_type", found.recipe).removesuffix("_classification")
    return " ".join([kind, *(f"{role}={name}" for role, name in data.items())])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("id:row said:text way:two", "single_label text=said label=way"),
        ("v1:two v2:text", "single_label text=v2 label=v1"),
        ("two text", "single_label text=1 label=0"),
        ("Date:day Review_Text:text Rating:stars Class_Name:two", "single_label text=Review Text label=Rating"),
        ("id:id author:name date:date url:url text:text selected-text:title sentiment:three",
         "single_label text=text label=sentiment"),
        ("id:row title:title text:long label:flag", "single_label text=text label=label"),
        ("half text quarter", "single_label text=1 label=2"),
        ("text:text label_coarse:half label_fine:quarter", "single_label text=text label=label fine"),
        ("flag title long", "single_label text=2 label=0"),
        ("tweetID:id airlineSentiment:three airlineSentimentConfidence:float tweet:text",
         "single_label text=tweet label=airlineSentiment"),
        ("text:text label:code labelText:coded", "single_label text=text label=labelText"),
        ("text:text label:code", "single_label text=text label=label"),
        ("text:text isSarcastic:flag split:split", "single_label text=text label=isSarcastic"),
        ("text:text spam:truth", "single_label text=text label=spam"),
        ("text:text label:some note:empty", "single_label text=text label=label"),
        ("description:text points:points score:points", "regression text=description label=score"),
        ("response:two text_b:text label:three", "single_label text=text b label=label"),
        ("tweet:text a:two b:third", "single_label text=tweet label=a"),
        ("spans:spans text:text kind:two", "single_label text=text label=kind"),
        ("said:text much:float", "regression text=said label=much"),
        ("text:text a:flag b:flag c:flag d:flag", "multi_label text=text label=['a', 'b', 'c', 'd']"),
        ("text:text text2:text label:float", "regression text=text text_pair=text2 label=label"),
        ("index:row genre:two sentence1:text sentence2:text score:float",
         "regression text=sentence1 text_pair=sentence2 label=score"),
        ("id:row qid1:row qid2:row question1:text question2:text isDuplicate:flag",
         "single_label text=question1 text_pair=question2 label=isDuplicate"),
        ("Quality:flag #1_ID:row #2_ID:row #1_String:text #2_String:text",
         "single_label text=#1 String text_pair=#2 String label=Quality"),
        ("goldLabel:gold sentence1Parse:text sentence2Parse:text sentence1:text sentence2:text label1:three",
         "single_label text=sentence1 text_pair=sentence2 label=goldLabel no_label=-"),
        ("hypothesis:text premise:text label:three", "single_label text=premise text_pair=hypothesis label=label"),
        ("plot:long genre:bars", "multi_label text=plot label=genre separator=|"),
        ("text commas id", "multi_label text=0 label=1 separator=,"),
        ("text:text tags:listed", "multi_label text=text label=tags"),
        ("titles:title summaries:long terms:literal", "multi_label text=summaries label=terms"),
        ("reviewerID:id helpful:votes reviewText:text overall:stars summary:title",
         "single_label text=reviewText label=overall"),
        ("text_id:id l1:text fullText:text cohesion:float", "regression text=fullText label=cohesion"),
        ("en:text de:text", "translation source=en target=de"),
        ("English_words:text French_words:text", "translation source=English words target=French words"),
        ("translation:nested", "translation source=translation.en target=translation.de"),
        ("source target title", "translation source=0 target=1"),
        ("id:id tokens:words pos:tags ner-tags:tags", "tagging text=tokens label=ner-tags"),
        ("n:row sentence:said tags:said_tags", "tagging text=sentence label=tags"),
        ("id:id context:long question:text answers:answer",
         "question_answering text=context question=question context=context answer=answers"),
        ("messages:listed", "chat text=messages"),
    ],
)  # fmt: skip
def test_columns_are_found_by_their_names_and_cells(columns: str, expected: str):
    assert roles(columns) == expected


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("text:text label-coarse:two label-fine:code",
         "got 2; give --label label-coarse: 2 classes (ham, spam); or --label label-fine: 77 classes ("),
        ("text:text city:quarter country:half", "got 2; give --label country: 2 classes ("),
        ("text:text l1:two l2:three", "got 2; give --label l1: 2 classes ("),
        ("said:text way:two more:flag", "expected one column of labels, got 2; give --label way: 2 classes ("),
        ("comment:text toxic:flag rude:flag threat:flag",
         "give --label toxic,rude,threat: any number of these 3 labels; or --label toxic: 2 classes ("),
        ("said:text more:text way:two", "expected one column of texts, got 2; give --text said: '"),
        ("text text float two", "or --label 2: numbers from"),
        ("sentenceA:text sentenceB:text relatednessScore:float entailmentJudgment:three",
         "or --label relatednessScore: numbers from"),
        ("n:row review:text", "or clearhead train lm --data t.csv --text review to learn from the texts alone"),
        ("article:long highlights:text", "--data.train.source article --data.train.target highlights to write one"),
        ("text:text label:one score:float answer:answers",
         "got several; give --label answer: 3 classes (ignore, reject, accept); or --label score: numbers from"),
        ("words dicts id", "expected a column of texts, got none: 0 (lists), 1 (lists), 2 (ids)"),
        ("said:text asked:dicts", "expected a column of labels whose values recur, got said (texts)"),
        ("spans:spans text:text", "got text (texts); give --label NAME, or clearhead train lm"),
        ("premise:text choice1:text choice2:text question:two label:flag",
         "expected one column of texts, got 3; give --text premise: '"),
        ("n:row word:word tag:word_tag", "expected a sentence in each row, got a word and its tag in tag; write CoNLL"),
        ("a:row b:float", "expected a column of texts, got none: a (ids)"),
    ],
)  # fmt: skip
def test_equally_likely_columns_are_asked_for(columns: str, told: str):
    said = roles(columns)
    assert told in said
    assert "\n" not in said


def test_a_label_has_the_name_of_the_file_or_its_folder():
    columns, rows = table("text:text tone:three mood:two")
    for path, label in (("mood/train.tsv", "mood"), ("tone.csv", "tone")):
        assert choose(path, columns, rows).data["label"] == label
    with pytest.raises(UserError, match="expected one column of labels, got 2"):
        choose("mood/old/tone-mood.csv", columns, rows)


@pytest.mark.parametrize(
    ("columns", "given", "expected"),
    [
        ("text:text body:long label:two", {"text": "body"}, "single_label text=body label=label"),
        ("a:text b:text label:two", {"text": "b", "text_pair": "a"}, "single_label text=b text_pair=a label=label"),
        ("text:text label:two way:stars", {"label": "way"}, "single_label text=text label=way"),
        ("tokens:words pos:tags ner-tags:tags", {"label": "pos"}, "tagging text=tokens label=pos"),
        ("text:text way:stars", {"problem_type": "regression"}, "regression text=text label=way"),
        ("text:text x:flag y:flag", {"label": ["x", "y"]}, "multi_label text=text label=['x', 'y']"),
        ("a:text b:text", {"source": "b", "target": "a"}, "translation source=b target=a"),
    ],
)
def test_what_the_user_says_is_not_guessed(columns: str, given: dict[str, Any], expected: str):
    assert roles(columns, **given) == expected
