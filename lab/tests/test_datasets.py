"""Data of others: found in the folder that the user names, and explained where they are missing."""

from pathlib import Path

import pytest

from clearhead.cli import main
from clearhead.errors import UserError
from clearhead_lab.datasets import (
    FIRST,
    UNKNOWN,
    VARIABLE,
    Reviews,
    Uses,
    Words,
    data_in,
    datasets,
    read_dependencies,
    read_sources,
)
from clearhead_lab.experiment import Experiment, Plot, Row
from clearhead_lab.experiments import experiments
from clearhead_lab.running import check_needs


@pytest.fixture
def no_data(monkeypatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.usefixtures("no_data")
def test_without_a_folder_one_line_says_what_to_download():
    expected = (
        r"data: expected the folder that holds sst2, got none; download the folder data/SST2 of https://\S+ to"
        r" FOLDER/sst2, and give --data FOLDER or set CLEARHEAD_SHARED_DATA$"
    )
    with pytest.raises(UserError, match=expected):
        check_needs(experiments()["attention-importance"])


def test_missing_file_is_named(small_data: Path, tmp_path):
    (tmp_path / "sst2").symlink_to(small_data / "sst2")
    with data_in(tmp_path):
        assert datasets()["sst2"].path("dev.tsv").read_text(encoding="utf-8").startswith("a dull")
        with pytest.raises(UserError, match=r"mnist/train-images-idx3-ubyte.gz: expected a file of mnist, found none"):
            datasets()["mnist"].path()


def test_named_folder_goes_before_the_variable(data_folder: Path, tmp_path):
    assert datasets()["sst2"].path() == data_folder / "sst2"
    with data_in(tmp_path), pytest.raises(UserError, match="found none; download"):
        datasets()["sst2"].path()


@pytest.mark.usefixtures("no_data")
def test_all_leaves_out_what_has_no_data(capsys, monkeypatch, tmp_path):
    made = Experiment("made", "y is x", "here", lambda *_: iter([Row({"x": 1.0}, {"y": 1.0})]), (), Plot("x", "y"))
    some = {"made": made, "few-labels": experiments()["few-labels"]}
    monkeypatch.setattr("clearhead_lab.experiments.experiments", lambda: some)
    main(["lab", "run", "all", "--quick", "--out", str(tmp_path)])
    captured = capsys.readouterr()
    assert "lab run all: leaves out few-labels: data: expected the folder that holds sst2, got none" in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("bank/train.data.txt", "9\tthe bank\n", r"bank/train.data.txt:1: expected the place of a word, .* got '9'"),
        ("bank/train.gold.txt", "0\n1\n", r"train.gold.txt: expected a sense for each of 16 sentences, got 2"),
        ("bank/train.gold.txt", "0\n" * 15 + "x\n", r"train.gold.txt:16: expected the number of a sense, got 'x'"),
    ],
)
def test_malformed_senses(small_data: Path, tmp_path, file: str, text: str, message: str):
    source = datasets()["coarsewsd20"]
    for name in source.files:
        path = tmp_path / source.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((small_data / source.folder / name).read_bytes())
    if file.endswith("data.txt"):
        text *= 16
    (tmp_path / source.folder / file).write_text(text, encoding="utf-8")
    with data_in(tmp_path), pytest.raises(UserError, match=message):
        Uses.read("bank", "train")


@pytest.mark.usefixtures("data_folder")
def test_malformed_reviews(small_data: Path, tmp_path):
    (tmp_path / "sst2").mkdir()
    for name in datasets()["sst2"].files:
        (tmp_path / "sst2" / name).write_text("a film\t1\na film\tgood\n", encoding="utf-8")
    with data_in(tmp_path), pytest.raises(UserError, match=r"dev.tsv:2: expected a sentence, a tab and 0 or 1"):
        Reviews.read("dev")


@pytest.mark.usefixtures("data_folder")
def test_words_of_reviews():
    reviews = Reviews.read("dev")
    tokens = Words.of(["a film that", "a"], most=1).tokens([reviews.texts[0], "a"])
    assert tokens.ids[0, :3].tolist() == [FIRST, 3, UNKNOWN]
    assert tokens.valid is not None
    assert tokens.valid.sum(1).tolist() == [len(reviews.texts[0].split()) + 1, 2]
    assert reviews.labels.tolist() == [0, 1, 0, 1, 0, 1]


def test_malformed_treebank(tmp_path):
    source = datasets()["ud-english"]
    (tmp_path / source.folder).mkdir()
    for name in source.files:
        (tmp_path / source.folder / name).write_text("# 1\n1\tI\t_\tPRON\n", encoding="utf-8")
    with data_in(tmp_path), pytest.raises(UserError, match=r"test.conllu:2: expected the 10 columns of CoNLL-U, got"):
        read_dependencies("test")


def test_each_sentence_has_its_source(data_folder):
    assert len(read_sources("train")) == len(read_dependencies("train"))
    assert set(read_sources("test")) == {"email", "weblog"}
