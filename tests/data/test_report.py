"""The report counts what was done, and what was done is the policy."""

import pytest

from clearhead.data.report import DataReport, OverlapReport, prepare
from clearhead.data.sources import Pairs, Texts
from clearhead.data.tokenizers import Tokenizer
from clearhead.errors import UserError
from clearhead.recipe.data import Preparation, Words

# One token a word: lengths are plain to see.
TRAIN = Pairs(
    source=["a b", "a b", "a b", "", "c", "a a a a", "d", "e f"],
    target=["x", "x", "y", "x", " ", "x", "x y x y x", "x y"],
)
TEST = Pairs(source=["a b", "e f", "q", "b b b b b", ""], target=["x", "y", "x", "y y", "x"])
SPLITS: dict[str, Pairs | Texts] = {"train": TRAIN, "test": TEST}
TOKENIZER = Tokenizer.train([*TRAIN.source, *TRAIN.target], Words())


def counts(report: DataReport, name: str) -> dict[str, int]:
    split = next(s for s in report.splits if s.name == name)
    return {k: v for k, v in split.model_dump().items() if k not in ("name", "sides") and v}


def test_by_default_only_empty_and_long_examples_go() -> None:
    prepared = prepare(SPLITS, TOKENIZER, preparation=Preparation(max_length=3))
    assert prepared.examples["train"] == Pairs(["a b", "a b", "a b", "e f"], ["x", "x", "y", "x y"])
    assert counts(prepared.report, "train") == dict(n_read=8, n_empty=2, n_duplicates=1, n_dropped=2, n_kept=4)
    # A test is never shortened by what is too long: that is cut, as text and as ids.
    assert prepared.examples["test"] == Pairs(["a b", "e f", "q", "b b b"], ["x", "y", "x", "y y"])
    assert counts(prepared.report, "test") == dict(n_read=5, n_empty=1, n_cut=1, n_kept=4)


def test_everything_on() -> None:
    policy = Preparation(max_length=3, too_long="cut", remove_duplicates=True, remove_overlap=True)
    prepared = prepare(SPLITS, TOKENIZER, preparation=policy)
    assert prepared.examples["train"] == Pairs(["a a a", "d"], ["x", "x y x"])
    assert counts(prepared.report, "train") == dict(
        n_read=8, n_empty=2, n_duplicates=1, n_duplicates_removed=1, n_overlap_removed=3, n_cut=2, n_kept=2
    )


@pytest.mark.parametrize("too_long", ["drop", "cut"])
def test_ids_are_those_of_the_text(too_long: str) -> None:
    policy = Preparation.model_validate({"max_length": 3, "too_long": too_long})
    prepared = prepare(SPLITS, TOKENIZER, preparation=policy)
    for name, examples in prepared.examples.items():
        assert isinstance(examples, Pairs)
        sides = (examples.source, examples.target)
        assert prepared.ids[name] == tuple(TOKENIZER.encode_batch(side) for side in sides)


def test_nothing_given_is_changed() -> None:
    before = Pairs([*TEST.source], [*TEST.target])
    prepare({"test": TEST}, TOKENIZER, preparation=Preparation(max_length=1))
    assert before == TEST


def test_overlap_lengths_and_unknown_tokens() -> None:
    report = prepare(SPLITS, TOKENIZER, preparation=Preparation()).report
    assert report.overlaps == (OverlapReport(split="test", other="train", n_shared=2, share=0.5, example="a b"),)
    source, target = report.splits[1].sides
    assert (source.n_tokens, source.max_length, source.mean_length) == (10, 5, 2.5)
    assert (source.n_unknown, source.unknown_rate, target.n_unknown) == (1, 0.1, 0)
    assert report.vocab_size == TOKENIZER.vocab_size


def test_lines_say_it() -> None:
    lines = prepare(SPLITS, TOKENIZER, preparation=Preparation(max_length=3)).report.lines()
    text = "\n".join(lines)
    assert "train: 4 of 8 examples (2 empty, left out; 2 over 3 tokens, left out; 1 duplicates, kept)" in lines
    assert "  source: 8 tokens, 2.0 an example, at most 2; 0.00% unknown" in lines
    assert "test: 2 sources (50.0%) are also in train, such as 'a b'" in lines
    assert f"vocabulary: {TOKENIZER.vocab_size} tokens" in text
    assert all("\n" not in line for line in lines)


def test_texts_have_one_side_and_no_limit() -> None:
    splits: dict[str, Pairs | Texts] = {"train": Texts(["a b c d", "", "a b c d"]), "valid": Texts(["c"])}
    prepared = prepare(splits, TOKENIZER, preparation=Preparation(max_length=2))
    assert prepared.examples["train"] == Texts(["a b c d", "a b c d"])
    assert [side.name for side in prepared.report.splits[0].sides] == ["text"]
    assert prepared.report.splits[0].sides[0].n_tokens == 8


def test_nothing_left_is_one_line() -> None:
    with pytest.raises(UserError, match=r"train: expected examples, got none: all 1 left out; try"):
        prepare({"train": Pairs(["a a"], ["x"])}, TOKENIZER, preparation=Preparation(max_length=1))
