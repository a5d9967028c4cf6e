"""What was trained is what leaves: the reference library opens every export without a warning, and cuts where we do."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.api import Model, load
from tests.later import later
from tests.reliability.asking import kinds, same, trained, write_data
from tests.shell import Shell

transformers = later("transformers")
WORDS = "the cat ate the plum <mask> and fell on Paris " + "on the horse and " * 150
"""A text of 600 words, of which every model but the language model reads a part."""
PICTURE = "shown/dark/0.png"
OPTIONS = {"text-classification": {"truncation": True, "top_k": None}, "text-generation": {"return_full_text": False}}
OPTIONS |= {"feature-extraction": {"tokenize_kwargs": {"truncation": True}}}
OPTIONS |= {"fill-mask": {"tokenizer_kwargs": {"truncation": True}}}


@contextmanager
def without_a_warning(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails if Python or the library warns."""
    caplog.clear()
    transformers.utils.logging.warning_once.cache_clear()
    logging.getLogger("transformers").addHandler(caplog.handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert [one.message for one in caplog.records if one.levelno >= logging.WARNING] == []


def shares(said: Any) -> dict[str, float]:
    return {one["label"]: one["score"] for one in said}


def scores(said: Any) -> list[float]:
    return [float(one["score"]) for one in said]


def unit(states: Any) -> list[float]:
    vector = torch.tensor(states[0]).mean(0)
    return (vector / vector.norm()).tolist()


def tagged(model: Model) -> list[float]:
    """The shares of the words that have a tag other than O, in a text that one window holds."""
    said: Any = model.predict([WORDS[:40]])[0]
    return [share for share, tag in zip(said["probabilities"], said["tags"], strict=True) if tag != "O"]


def spans(folder: str) -> list[float]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForQuestionAnswering.from_pretrained(folder)
    return network(**tokenizer("which cat", WORDS, truncation="only_second", return_tensors="pt")).start_logits.tolist()


def writes(folder: str, prefix: str = "") -> str:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    given = tokenizer(prefix + WORDS, truncation=True, return_tensors="pt")
    return tokenizer.decode(network.generate(**given)[0], skip_special_tokens=True)


def piped(task: str, given: Any = WORDS, shown: Callable[[Any], Any] = shares) -> Callable[[str], Any]:
    return lambda folder: shown(transformers.pipeline(task, model=folder, device="cpu")(given, **OPTIONS.get(task, {})))


def filled(model: Model) -> list[float]:
    said: Any = model.predict([WORDS])[0]
    return [one["probability"] for one in said["masks"][0]]


def labels(model: Model) -> dict[str, float]:
    return dict(model.classify([WORDS])[0])


def translated(model: Model) -> str:
    return model.translate([WORDS])[0]


BOTH = [WORDS, "the cat"]
WAYS: dict[str, tuple[Callable[[str], Any], Callable[[Model], Any]]] = {
    **dict.fromkeys(("classification", "several labels", "regression"), (piped("text-classification"), labels)),
    "pairs": (
        piped("text-classification", {"text": WORDS, "text_pair": WORDS}),
        lambda model: model.predict([(WORDS, WORDS)])[0]["probabilities"],
    ),
    "pictures": (piped("image-classification", PICTURE), lambda model: dict(model.classify([Path(PICTURE)])[0])),
    **dict.fromkeys(("spans", "tags"), (piped("token-classification", WORDS[:40], scores), tagged)),
    "question answering": (
        spans,
        lambda model: model.network(*model.inputs("which cat", WORDS))[..., 0].tolist(),
    ),
    "masked language model": (
        piped("fill-mask", WORDS, scores),
        filled,
    ),
    "embedding": (piped("feature-extraction", WORDS, unit), lambda model: model.embed([WORDS])[0].tolist()),
    "language model": (
        piped("text-generation", BOTH, lambda said: [one[0]["generated_text"] for one in said]),
        lambda model: [model.generate(text) for text in BOTH],
    ),
    **dict.fromkeys(("translation", "denoising"), (writes, translated)),
    "text to text": (lambda folder: writes(folder, "turn: "), translated),
}


@pytest.mark.parametrize("name", [name for name, kind in kinds().items() if "hf" in kind.exports])
def test_a_long_text_is_read_alike_without_a_warning(name: str, shell: Shell, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.fsync", lambda _: None)
    write_data()
    model = load(trained(name, kinds()[name]))
    shell.done("export", name.replace(" ", "-"), "--to", "hf", "--out", "out")
    asked, own = WAYS[name]
    with without_a_warning(caplog):
        found = asked("out")
    assert same(own(model), found), (own(model), found)
