"""The tokenizers' race: the same text for all, and what the report makes of it."""

import pytest

from benchmarks.contestants.tokenizer import Assignment, Kind, Ours, SentencePiece, TikToken, Timed, Tokenizers, Turn
from benchmarks.racing import tokenizing
from benchmarks.racing.machine import Machine
from benchmarks.racing.tokenizing import OURS, Report

LINES = [
    f"The {a} fox's {b} jumps, over {i} dogs – été!" for i, (a, b) in enumerate([("brown", "cub"), ("red", "kit")])
]


@pytest.fixture
def assignment(tmp_path) -> Assignment:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{line}\n" for line in LINES * 20), encoding="utf-8")
    return Assignment(kind=OURS, corpus=corpus, vocab_size=300, threads=1)


def test_tiktoken_gives_the_ids_of_tokenizers(assignment: Assignment):
    pytest.importorskip("tiktoken")
    alone = Tokenizers(assignment)
    alone.train()
    ids = alone.encode(LINES)
    assert TikToken(assignment).encode(LINES) == ids
    assert max(map(max, ids)) >= 256


@pytest.mark.parametrize("kind", [Ours, Tokenizers, SentencePiece])
def test_a_turn_trains_and_encodes(kind: type[Ours | Tokenizers | SentencePiece], assignment: Assignment):
    vocab_size = 70 if kind is SentencePiece else 300
    turn = kind(assignment.model_copy(update={"vocab_size": vocab_size})).turn()
    assert turn.train is not None
    assert turn.train.seconds > 0
    assert turn.encode.seconds > 0
    assert 40 < turn.n_tokens < assignment.corpus.stat().st_size


def turn(train: float | None, encode: float) -> Turn:
    trained = None if train is None else Timed(seconds=train, cpu_seconds=train)
    return Turn(train=trained, encode=Timed(seconds=encode, cpu_seconds=2 * encode), n_tokens=1000, peak_gb=0.1)


def test_ratios_are_to_the_fastest_peer_of_each_work():
    turns: dict[Kind, list[Turn]] = {
        "clearhead": [turn(2.0, 1.0), turn(4.0, 2.0)],
        "tokenizers": [turn(1.0, 5.0), turn(1.0, 5.0)],
        "sentencepiece": [turn(3.0, 1.5), turn(3.0, 1.5)],
        "tiktoken": [turn(None, 0.75), turn(None, 0.75)],
    }
    report = Report.of(turns, n_bytes=3_000_000, vocab_size=300, corpus="text", quick=False, machine=Machine.now(1))
    assert (report.ratio, report.whole.peer) == (1.0, "sentencepiece")
    assert report.whole.ratio_of_rounds == (0.75, 1.5)
    assert (report.train.ratio, report.train.peer) == (0.333, "tokenizers")
    assert (report.encode.ratio, report.encode.peer) == (0.5, "tiktoken")
    [ours, *_, tiktoken] = report.rows
    assert ours.train is not None
    assert (ours.train.slowest, ours.train.fastest, ours.encode.cores) == (0.75, 1.5, 2.0)
    assert tiktoken.train is None
    assert report.quiet
    lines = report.markdown().splitlines()
    assert "ratio **1.00** to the fastest peer (sentencepiece)" in lines[0]
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_quick_race(assignment: Assignment, monkeypatch):
    kinds: list[Kind] = ["clearhead", "tokenizers"]
    monkeypatch.setattr(tokenizing, "installed", lambda: kinds)
    report = tokenizing.measure(data=assignment.corpus, megabytes=0.01, quick=True, threads=1, rounds=1)
    assert [row.name for row in report.rows] == kinds
    assert report.ratio > 0
    assert "repeated" in report.corpus
