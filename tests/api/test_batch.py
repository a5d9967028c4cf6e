"""Models as functions of batches: every form of a batch, and equal results in several processes."""

import multiprocessing
import os
import pickle  # noqa: TID251 - what other libraries do with the instances
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead import config as c
from clearhead.api import Model, load
from clearhead.batch import Batched, Capture, Classify, Embed, Predict, Tag, Translate
from clearhead.errors import UserError
from clearhead.model import Transformer
from tests.explorer.traced import TOKENIZER, stack
from tests.later import later
from tests.shell import classifier
from tests.small_models import PAIRS, model_of

pa, pd = later("pyarrow"), later("pandas")
TEXTS: list[Any] = ["one two", "three", None, "two two two", " ", "four"]
KNOWN = [0, 1, 3, 5]
FORMS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "dict": lambda columns: {name: np.array(values, object) for name, values in columns.items()},
    "pandas": lambda columns: pd.DataFrame(columns),  # noqa: PLW0108 - imported when it is called
    "arrow": lambda columns: pa.table(columns),  # noqa: PLW0108
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def labels(folder: Path) -> str:
    return str(classifier().save(folder / "labels"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> str:
    torch.manual_seed(0)
    network = Transformer(c.ModelConfig(encoder=stack(), head=c.NoHead())).eval()
    return str(Model(network, TOKENIZER).save(folder / "encoder"))


@pytest.fixture(scope="module")
def translator(folder: Path) -> str:
    return str(model_of("demo").save(folder / "translator"))


def called(of: Batched, form: str = "dict", **columns: Any) -> dict[str, list[Any]]:
    """The columns that a batch of this form has afterwards."""
    given = {"id": [*range(len(TEXTS))], "text": TEXTS, **columns}
    batch = FORMS[form](given)
    found: Any = of(batch)
    assert type(found) is type(batch)
    table = found.to_pydict() if form == "arrow" else {name: [*found[name]] for name in found}
    assert [*table][: len(given)] == [*given]
    assert table["id"] == given["id"]
    return table


@pytest.mark.parametrize("form", FORMS)
def test_vectors_of_texts(encoder: str, form: str):
    found = np.array(called(Embed(encoder), form)["embedding"])
    expected = load(encoder).embed([TEXTS[i] for i in KNOWN])
    np.testing.assert_allclose(found[KNOWN], expected, atol=1e-6)
    assert np.isnan(found[[2, 4]]).all()


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_rounded_models(encoder: str, bits: str):
    rounded: dict[str, Any] = {bits: True}
    found = np.array(called(Embed(encoder, **rounded))["embedding"])
    exact, expected = (load(encoder, **kind).embed([TEXTS[i] for i in KNOWN]) for kind in ({}, rounded))
    np.testing.assert_allclose(found[KNOWN], expected, atol=1e-6)
    assert np.abs(found[KNOWN] - exact.numpy()).max() > 1e-5


def test_many_texts_are_embedded_in_parts(encoder: str):
    texts = [" ".join(["one two three four"] * (1 + 7 * i % 5)) for i in range(150)]
    model = load(encoder)
    found = model.embed(texts)
    torch.testing.assert_close(found, torch.cat([model.embed([text]) for text in texts]), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(150))


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_texts(labels: str, form: str):
    found = called(Classify(labels), form)
    expected = [row[0] for row in load(labels).classify([TEXTS[i] for i in KNOWN])]
    assert [found["label"][i] for i in KNOWN] == [label for label, _ in expected]
    assert [found["score"][i] for i in KNOWN] == pytest.approx([score for _, score in expected])
    assert found["label"][2] is None or found["label"][2] != found["label"][2]
    assert np.isnan(found["score"][4])


@pytest.mark.parametrize("form", FORMS)
def test_other_kinds_of_labels(folder: Path, form: str):
    several = classifier(problem_type="multi_label_classification")
    found = called(Classify(str(several.save(folder / f"several-{form}"))), form)
    for i in KNOWN:
        expected = [(label, score) for label, score in several.classify([TEXTS[i]])[0] if score > 0.5]
        assert [*found["labels"][i]] == [label for label, _ in expected]
        assert [*found["scores"][i]] == pytest.approx([score for _, score in expected])
    assert [*found["labels"][2]] == []
    number = classifier(labels=("grade",), problem_type="regression")
    found = called(Classify(str(number.save(folder / f"number-{form}"))), form)
    assert found["value"][0] == pytest.approx(number.classify(["one two"])[0][0][1])


def test_pairs_and_labels_of_yours(folder: Path):
    model = classifier(labels=("contradiction", "neutral", "entailment"), pairs=True)
    name = str(model.save(folder / "pairs"))
    others = ["four"] * len(TEXTS)
    found = called(Classify(name, text_pair="other"), other=others)
    assert found["label"][0] == model.predict([("one two", "four")])[0]["label"]
    found = called(Classify(name, labels=("a", "b"), template="about {}"))
    ((label, score), _) = model.classify(["one two"], labels=("a", "b"), template="about {}")[0]
    assert (found["label"][0], found["score"][0]) == (label, pytest.approx(score))
    several = called(Classify(name, labels=("a", "b"), several=True))
    own = dict(model.classify(["one two"], labels=("a", "b"), several=True)[0])
    assert {*several["labels"][0]} == {label for label, score in own.items() if score > 0.5}
    assert (
        called(Predict(name, text_pair="other"), other=others)["label"]
        == called(Classify(name, text_pair="other"), other=others)["label"]
    )


@pytest.mark.parametrize("form", FORMS)
def test_translations(translator: str, form: str):
    texts = PAIRS.source[: len(TEXTS) - 1]
    found = called(Translate(translator, settings={"beams": 1}), form, text=[*texts, None])
    assert found["translation"] == [*load(translator).translate(texts, beams=1), ""]


@pytest.mark.parametrize("form", FORMS)
def test_values_inside(encoder: str, form: str):
    model, address = load(encoder), "encoder.blocks.1.resid_post"
    seen = [model.trace(TEXTS[i])[0][address][0].numpy() for i in KNOWN]
    expected_of: dict[Any, list[Any]] = {
        "mean": [value.mean(0) for value in seen],
        "first": [value[0] for value in seen],
        "last": [value[-1] for value in seen],
        "all": seen,
    }
    for positions, expected in expected_of.items():
        found = called(Capture(encoder, addresses=(address,), positions=positions), form)[address]
        for i, value in zip(KNOWN, expected, strict=True):
            np.testing.assert_allclose(np.array([*found[i]]), value, rtol=1e-5)
        assert not [*found[2]] if positions == "all" else np.isnan(found[2]).all()


def test_values_of_one_head(encoder: str):
    with pytest.raises(
        UserError, match=r"weights: expected vectors of one size for all texts, got axes b h t s; choose one key"
    ):
        called(Capture(encoder, addresses=("encoder.blocks.0.attn.weights",)))
    with pytest.raises(UserError, match=r"^addresses: expected at least one"):
        called(Capture(encoder))


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        ({"body": ["a"]}, "batch: expected a column 'text', got body; name it with text="),
        ({"text": [1]}, "batch: expected text in column 'text', got int"),
        ([1], "batch: expected a dict of arrays, a pandas DataFrame or a pyarrow Table, got list"),
    ],
)
def test_wrong_batches_are_told(labels: str, batch: Any, told: str):
    with pytest.raises(UserError) as error:
        Classify(labels)(batch)
    assert str(error.value) == told
    with pytest.raises(UserError, match=r"expected a model to tag, got one to classify; try clearhead classify"):
        Tag(labels)({"text": ["a"]})


def test_an_instance_holds_settings_alone(labels: str):
    of = Classify(labels, labels=("a", "b"))
    assert pickle.loads(pickle.dumps(of)) == of
    before = len(pickle.dumps(Classify(labels)))
    of = Classify(labels)
    of({"text": np.array(["one"], object)})
    assert len(pickle.dumps(of)) == before < 500


@pytest.mark.slow
def test_several_processes_say_what_one_says(encoder: str, labels: str):
    batches = [{"text": np.array([f"one two {i}", "three"], object)} for i in range(8)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        for of in (Embed(encoder), Classify(labels), Capture(encoder, addresses=("encoder.blocks.0.resid_post",))):
            for one, other in zip(map(of, batches), pool.map(of, batches), strict=True):
                assert all(np.array_equal(one[name], other[name]) for name in one)


class DiesOnce:
    """Ends its process at the first call of all."""

    def __init__(self, of: Batched, flag: str) -> None:
        self.of, self.flag = of, Path(flag)

    def __call__(self, batch: Any) -> Any:
        if not self.flag.exists():
            self.flag.touch()
            os._exit(1)
        return self.of(batch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_actors_of_ray_say_what_one_process_says(labels: str, tmp_path):
    ray = pytest.importorskip("ray")
    data = pytest.importorskip("ray.data")
    of, texts = Classify(labels), [f"{'one ' * (i % 5)}two" for i in range(48)]
    rows = [{"text": text, "id": i} for i, text in enumerate(texts)]
    expected = of({"text": np.array(texts, object)})
    ray.init(num_cpus=4, include_dashboard=False, _node_ip_address="127.0.0.1")
    try:
        for n, flag in ((1, None), (2, None), (4, None), (2, str(tmp_path / "died"))):
            settings: dict[str, Any] = {"model": labels} if flag is None else {"of": of, "flag": flag}
            found = (
                data.from_items(rows, override_num_blocks=6)
                .map_batches(
                    Classify if flag is None else DiesOnce,
                    fn_constructor_kwargs=settings,
                    batch_size=8,
                    compute=data.ActorPoolStrategy(size=n),
                    num_cpus=0.5,
                )
                .take_all()
            )
            found.sort(key=lambda row: row["id"])
            assert [row["id"] for row in found] == [*range(len(rows))]
            assert [row["label"] for row in found] == [*expected["label"]]
            assert [row["score"] for row in found] == pytest.approx([*expected["score"]], abs=1e-6)
        assert (tmp_path / "died").exists()
    finally:
        ray.shutdown()
