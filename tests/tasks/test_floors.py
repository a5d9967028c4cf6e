"""Floors: equal to scikit-learn's by hand, kept in the run's folder, and printed beside the model's scores."""

import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix, hstack
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score
from sklearn.multiclass import OneVsRestClassifier

from clearhead.cli import main
from clearhead.config.heads import ProblemType
from clearhead.recipe.tokenizers import Words
from clearhead.runs import keep_floors
from clearhead.tasks.classification import linear
from clearhead.tasks.classification.data import LabelledText
from clearhead.tasks.classification.task import Classification
from clearhead.tasks.floors import FLOOR, Floor, HasFloors, line_of
from clearhead.tasks.question_answering.task import QuestionAnswering
from clearhead.tasks.text_scores import bleu
from clearhead.text.tokenizers import Tokenizer
from tests.files import put
from tests.tasks.small import begin, tables_of, trained

ONE, SEVERAL, NUMBER = "single_label_classification", "multi_label_classification", "regression"
KINDS = {"animal": "cat dog horse mouse", "fruit": "apple pear plum cherry", "tool": "hammer saw file drill"}
NOISE = "the of and a some old new big small red blue".split()


def rows(n: int, seed: int) -> list[tuple[str, str]]:
    """Texts of noise with a word of a kind; a fifth have the word of another kind too."""
    draw, kinds = random.Random(seed), {kind: words.split() for kind, words in KINDS.items()}
    found: list[tuple[str, str]] = []
    for _ in range(n):
        kind = draw.choice([*kinds])
        words = [*draw.choices(NOISE, k=6), draw.choice(kinds[kind])]
        words += [draw.choice(kinds[draw.choice([*kinds])])] if draw.random() < 0.2 else []
        draw.shuffle(words)
        found.append((" ".join(words), kind))
    return found


def labelled(problem: ProblemType, n: int, seed: int, *, pairs: bool) -> list[LabelledText]:
    second, found = rows(n, seed + 50), list[LabelledText]()
    for i, (text, kind) in enumerate(rows(n, seed)):
        texts = (text, second[i][0]) if pairs else (text,)
        same = len({*texts[0].split()} & {*texts[-1].split()}) + len(kind)
        labels = {ONE: (kind,), SEVERAL: (kind, "long")[: 1 + (len(text) > 30)], NUMBER: (f"{same + i % 3 / 9}",)}
        found.append(LabelledText(texts, labels[problem], f"x:{i}"))
    return found


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("problem", [ONE, SEVERAL, NUMBER])
def test_the_linear_model_is_that_of_scikit_learn(problem: ProblemType, pairs: bool):
    splits = {
        name: labelled(problem, n, i, pairs=pairs) for i, (name, n) in enumerate({"train": 90, "valid": 40}.items())
    }
    splits["test"] = labelled(problem, 50, 2, pairs=pairs)
    labels = ("x",) if problem == NUMBER else sorted({name for one in splits["train"] for name in one.labels})
    tokenizer = Tokenizer.train(NOISE, Words()).templated("$A", "$A {end} $B:1")
    task = Classification(tokenizer, labels=labels, problem_type=problem)
    encoded = {name: task.encode(some) for name, some in splits.items()}
    task.train, task.valid = encoded.pop("train"), encoded["valid"]
    found = {(one.name, one.split): one for one in task.floors(encoded)}

    counts = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    words = TfidfVectorizer(sublinear_tf=True)
    for vectorizer in (counts, words):
        vectorizer.fit([text for one in splits["train"] for text in one.texts])
    features, cosines, targets = {}, {}, {}
    for name, some in splits.items():
        first, second = (csr_matrix(counts.transform([one.texts[k] for one in some])) for k in (0, -1))
        a, b = (csr_matrix(words.transform([one.texts[k] for one in some])) for k in (0, -1))
        cosines[name] = (a @ b.T).diagonal()
        features[name] = hstack([first, second, abs(first - second), cosines[name][:, None]]) if pairs else first
        targets[name] = np.array(
            [float(e.labels[0]) for e in some]
            if problem == NUMBER
            else [labels.index(e.labels[0]) for e in some]
            if problem == ONE
            else [[name in e.labels for name in labels] for e in some]
        )
    models: dict[str, Any] = {
        ONE: lambda C: LogisticRegression(C=C, max_iter=1000),
        SEVERAL: lambda C: OneVsRestClassifier(LogisticRegression(C=C, solver="liblinear")),
        NUMBER: lambda C: Ridge(alpha=C),
    }
    score: Any = {
        ONE: accuracy_score,
        SEVERAL: lambda a, b: f1_score(a, b, average="micro"),
        NUMBER: lambda a, b: spearmanr(a, b).statistic,
    }[problem]
    answers = {}
    for strength in (1.0, 10.0):
        model = models[problem](strength).fit(features["train"].tocsr(), targets["train"])
        answers[strength] = {name: model.predict(features[name].tocsr()) for name in encoded}
    if problem == NUMBER and pairs:
        answers[0.0] = cosines
    best = max(answers.values(), key=lambda said: score(targets["valid"], said["valid"]))
    for name in encoded:
        (own,) = (one for (method, split), one in found.items() if split == name and method.startswith("TF-IDF"))
        assert own.value == pytest.approx(score(targets[name], best[name]), abs=1e-6), own
        assert own.n == len(splits[name])
        assert own.interval is not None
        assert own.interval[0] <= own.value <= own.interval[1]
    if problem == ONE:
        most = Counter(targets["train"].tolist()).most_common(1)[0][0]
        assert found["majority", "test"].value == pytest.approx(np.mean(targets["test"] == most))


def test_many_texts_are_sampled_and_many_labels_learned_one_by_one(monkeypatch):
    texts = [(f"word{i % 20} of text {i}",) for i in range(400)]
    targets = np.arange(400) % 20
    (weak, strong) = linear.linear(texts, targets, {"valid": texts}, ONE)
    assert (strong.outputs["valid"] == targets).mean() > 0.99
    assert (weak.setting, weak.about) == ("C = 1", "")
    monkeypatch.setattr(linear, "MOST_TEXTS", 100)
    (_, strong) = linear.linear(texts, targets, {"valid": texts}, ONE)
    assert (strong.setting, strong.about) == ("C = 10", "fitted to 100 of 400 texts")
    assert not [*linear.linear([("!",), ("?",)], np.array([0, 1]), {"valid": [("!",)]}, ONE)], "texts without words"


def write(rows: list[tuple[str, str]]) -> None:
    put("table.csv", "".join(f"{a},{b}\n" for a, b in [("body", "kind"), *rows]))


def test_a_run_keeps_its_floors_and_shows_them(capsys):
    """The floor is written once: a resumed run and `evaluate` read it."""
    write(rows(150, 0))
    figures, said = trained("table.csv --steps 2", capsys)
    floor = figures["held_out"]["floor"]
    assert [one["name"] for one in floor] == ["majority", "TF-IDF + LR"]
    assert {one["split"] for one in floor} == {"test"}
    line = line_of([Floor.model_validate(one) for one in floor])
    assert f"floor of {line}; this model {figures['held_out']['accuracy']:.4f}" in said
    kept = Path("run", FLOOR).read_text(encoding="utf-8")
    put(Path("run", FLOOR), kept.replace("majority", "the usual label"))
    main(["resume", "run", "--steps", "3"])
    main(["evaluate", "run", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["floor"][0]["name"] == "the usual label"
    main(["evaluate", "run", "--data", "table.csv"])
    assert "floor" not in capsys.readouterr().out, "the floor of other data"


def test_other_tasks(tmp_path):
    """Tagging, translation and language models by hand; question answering has none."""
    tagged = [[("Ann", "B"), ("sees", "O"), ("Rome", "B")], [("Ann", "O"), ("Rome", "B"), ("falls", "O")]] * 8
    for name, some in {"train": tagged, "valid": [[("Ann", "B"), ("sees", "O"), ("Oslo", "B"), ("Rome", "B")]]}.items():
        text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in one) for one in some)
        put(f"{name}.conll", text)
    source = {name: {"kind": "tagged", "paths": f"{name}.conll"} for name in ("train", "valid")}
    prepared = begin(tables_of("tagging", source.pop("train"), data=source), "tagging")[1]
    (floor,) = keep_floors(Path("tagging"), prepared).floors
    # Ann is B and O equally often, and B first; Oslo is unknown, and B is the most frequent of all.
    assert (floor.name, floor.value) == ("most frequent tag of each word", 1.0)

    lines = [f"a man rides horse {i}" for i in range(20)], [f"a Mann rides horse {i}" for i in range(20)]
    for name, texts in zip("st", lines, strict=True):
        put(name, texts)
    files = {"kind": "parallel", "source": "s", "target": "t"}
    given = tables_of("translation", files, preset="transformer-tiny", data={"valid": files, "test": files})
    floors = keep_floors(Path("mt"), begin(given, "mt")[1]).floors
    wanted = bleu(lines[0], [[one] for one in lines[1]])
    assert [(one.split, one.score) for one in floors] == [("valid", "bleu"), ("test", "bleu")]
    assert floors[0].value == pytest.approx(wanted.value)

    put("train.txt", "abab" * 40 + "c")
    put("valid.txt", "aabbc" * 16)
    texts = {name: {"kind": "text", "paths": f"{name}.txt"} for name in ("train", "valid")}
    given = tables_of(
        "lm", texts.pop("train"), preset="nano", data={**texts, "length": 8}, tokenizer={"kind": "characters"}
    )
    prepared = begin(given, "lm")[1]
    (floor,) = keep_floors(Path("lm"), prepared).floors
    n = prepared.data.vocab_size
    shares = {letter: (count + 1) / (160 + n) for letter, count in {"a": 79, "b": 80, "c": 1}.items()}
    nats = [-math.log(shares[letter]) for letter in ("aabbc" * 16)[1:]]
    assert floor.value == pytest.approx(sum(nats) / len(nats))
    assert not isinstance(QuestionAnswering(Tokenizer.train(["a"], Words()), limit=8, overlap=2), HasFloors)
