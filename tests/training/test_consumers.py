"""What a user sees, and what is left on the disk, for a made-up run."""

import errno
import io
import json
import math
import os
import re
import sys
import threading
from pathlib import Path

import pytest
from rich.cells import cell_len

from clearhead.errors import NumericError, UserError
from clearhead.progress import counted, watching
from clearhead.tasks.evaluation import Evaluation, Sample
from clearhead.tasks.scores import Score
from clearhead.tasks.text_scores import bleu, moses_bleu
from clearhead.training import consumers
from clearhead.training.consumers import (
    EvaluationBar,
    ProgressBar,
    TensorBoardLog,
    figure,
    sample_lines,
)
from clearhead.training.events import Ended, Evaluated, Saved, Skipped, Started, Stepped
from clearhead.training.metrics_log import MetricsLog, read_metrics
from tests.files import put

TEXTS = ["A man is sleeping on a couch"], [["A man is sleeping on a green couch"]]
CASED = bleu(*TEXTS).signature
LOWERCASED = bleu(*TEXTS, lowercase=True).signature
CHAR = bleu(*TEXTS, tokenize="char").signature
SCORES = (Score("bleu", 34.56, CASED), Score("perplexity", 5.4321))
SAMPLE = Sample("Ein Mann schläft auf einem Sofa", *TEXTS[0], *TEXTS[1][0])
STARTED = Started(0, 1_234_567, "fp32", "cpu")


def stepped(step, *, of=100, loss=2.0, seconds=None, lr=0.5):
    return Stepped(step, step // 10, loss, lr, 1.5, 1000, step if seconds is None else seconds, step / of)


def evaluated(step, *, best=True):
    return Evaluated(step, Evaluation(SCORES, (SAMPLE,) * 4, ("x",) * 9), best)


def run(start, stop, folder=Path("runs/a")):
    """Updates start + 1 to stop, evaluated and saved after every tenth."""
    events = [Started(start, 1_234_567, "fp32", "cpu")]
    for step in range(start + 1, stop + 1):
        events += [stepped(step)]
        if step % 10 == 0:
            events += [evaluated(step, best=step == 10), Saved(step, folder / f"step-{step:08d}")]
    return events


def feed(consumer, events):
    for event in events:
        consumer(event)
    return consumer


def printed(events, **options):
    """The lines that are printed where there is no terminal."""
    stream = io.StringIO()
    feed(ProgressBar(stream=stream, **options), events)
    assert "\r" not in stream.getvalue()
    return stream.getvalue().splitlines()


class Terminal(io.StringIO):
    def isatty(self):
        return True

    def lines(self):
        """What is on the screen in the end."""
        return [line.rpartition("\r")[2].rstrip() for line in self.getvalue().split("\n")]

    def drawn(self):
        """Every state that the bar was drawn in."""
        return [part for part in re.split(r"[\r\n]", self.getvalue()) if "|" in part]


class Gone(Terminal):
    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


# --- bar


def test_terminal_shows_results_above_one_bar():
    terminal = Terminal()
    feed(ProgressBar(stream=terminal), [*run(0, 100), Ended(100, 100.0, "finished")])
    lines = terminal.lines()
    assert lines[0] == "training: 1,234,567 parameters, fp32 on cpu"
    assert lines[1:9] == [
        "step 10  BLEU 34.6 (cased)  perplexity 5.43  best",
        *(f"    {label:<9}  {text}" for label, text in [*vars(SAMPLE).items()] * 2),
        "step 10  saved runs/a/step-00000010",
    ]
    assert lines[9] == "step 20  BLEU 34.6 (cased)  perplexity 5.43"
    assert lines[-2].startswith("finished after step 100, 01:40  loss 2.000  1.00k tokens/s")
    assert not any("|" in line for line in lines), "the bar is gone in the end"
    last = terminal.drawn()[-1]
    assert last.startswith("100% |")
    assert last.rstrip().endswith("last evaluation  loss 2.000  1.00k tokens/s  epoch 11  lr 0.5")


def test_bar_is_closed_when_the_run_fails():
    terminal = Terminal()

    def train():
        yield from run(0, 3)
        raise NumericError("no")

    with pytest.raises(NumericError), ProgressBar(stream=terminal) as bar:
        feed(bar, train())
    assert terminal.drawn()
    assert terminal.lines()[-1] == ""


def test_time_left_is_at_this_process_pace():
    # 900,000 s went into the first half, elsewhere; here an update takes a minute.
    steps = [stepped(step, seconds=9e5 + 60 * step) for step in (51, 76)]
    assert "76%  24:00 left" in printed([Started(50, 1, "fp32", "cpu"), *steps])[2]


def test_without_a_terminal_a_line_every_ten_seconds():
    lines = printed([*run(0, 35), Ended(35, 35.0, "stopped")], unit="texts")
    steps = [f"step {step}" for step in (1, 10, 10, 11, 20, 20, 21, 30, 30, 31)]
    first, last = "training: 1,234,567 parameters, fp32 on cpu", "stopped after step 35, 00:35"
    assert [line.split("  ")[0] for line in lines] == [first, *steps, last]
    assert lines[4] == "step 11  11%  01:29 left  loss 2.000  1.00k texts/s  epoch 2  lr 0.5"


def test_evaluation_is_not_training_time():
    events = [STARTED, stepped(1), stepped(2), evaluated(2), stepped(3, seconds=902), stepped(4, seconds=912)]
    assert "  132 tokens/s" in printed(events)[-1]  # (1000 / e + 1000) / (1 / e + 10)


def test_quiet_still_warns():
    lines = printed([*run(0, 20), Skipped(21, math.nan), Ended(21, 2.0, "finished")], quiet=True)
    assert lines == ["warning: step 21: update left out, its gradient's norm is nan"]


def test_a_loss_that_is_nan_is_shown_and_does_not_stick():
    _, first, second = printed([STARTED, stepped(1, loss=math.nan), stepped(20, loss=3.0)])
    assert "loss nan" in first
    assert "loss 3.000" in second


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_that_goes_away_does_not_end_the_run(quiet):
    with ProgressBar(quiet=quiet, stream=Gone()) as bar:
        feed(bar, [*run(0, 12), Skipped(13, math.inf), Ended(13, 1.0, "finished")])


@pytest.mark.parametrize(("columns", "width"), [(60, 59), (0, 79)])
def test_bar_fits_a_real_terminal(columns, width):
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (24, columns))
    parts = []

    def read():
        while b"finished" not in b"".join(parts[-2:]):
            parts.append(os.read(main, 65536))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with os.fdopen(side, "w", encoding="utf-8") as terminal:
        feed(ProgressBar(stream=terminal), [*run(0, 100), Ended(100, 20.0, "finished")])
        reader.join(30)
    os.close(main)
    drawn = [cell_len(part) for part in re.split(r"[\r\n]", b"".join(parts).decode()) if "left  loss" in part]
    assert drawn
    assert set(drawn) == {width}


# --- words


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (Score("bleu", 34.56, CASED), "BLEU 34.6 (cased)"),
        (Score("bleu", 34.56, LOWERCASED), "BLEU 34.6 (lowercased)"),
        (Score("bleu", 34.56, CHAR), "BLEU 34.6 (cased, char)"),
        (Score("bleu", 1.0), "BLEU 1.0"),
        (Score("bleu_moses_lower", 40.0, "case:mixed|tok:none|moses:en|lowercased"), "BLEU 40.0 (lowercased, moses)"),
        (Score("chrf++", 50.0, "case:mixed"), "chrF2++ 50.0"),
        (Score("exact_match", 0.125), "exact match 0.12"),
        (Score("perplexity", 123456.0), "perplexity 1.23e+05"),
        (Score("perplexity", math.inf), "perplexity inf"),
        (Score("loss", math.nan), "loss nan"),
    ],
)
def test_figure(score, words):
    assert figure(score) == words


def test_moses_signature_is_told_from_plain_bleu():
    pytest.importorskip("sacremoses")
    assert figure(moses_bleu(TEXTS[0], TEXTS[1][0], "en")).endswith("(lowercased, moses)")


@pytest.mark.parametrize(
    "text", ["word " * 40, "睡觉" * 40, "e\u0301" * 200, "short"], ids=["words", "wide", "accents", "short"]
)
def test_samples_fit_the_terminal(text):
    lines = sample_lines([Sample(text, text, text)], width=50)
    assert [line.split()[0] for line in lines] == ["source", "output", "reference"]
    assert all(cell_len(line) <= 50 for line in lines)
    assert all(line.endswith("…") for line in lines) == (text != "short")


def test_an_output_cannot_drive_the_terminal():
    assert sample_lines([Sample("", "a\n\tb\x1b[2Jc\rd\ud800", "")], width=80) == [
        "    output     a b\ufffd[2Jc d\ufffd"
    ]
    assert sample_lines([Sample("", "  ", "r")], width=80) == ["    output     (nothing)", "    reference  r"]


@pytest.mark.parametrize("seconds", [1.0, 4.0])
def test_a_long_evaluation_says_how_far_it_is(monkeypatch, seconds: float):
    now = [0.0]
    monkeypatch.setattr(consumers.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with watching(EvaluationBar(stream)):
        for _ in counted(range(8), "reading"):
            now[0] += seconds
    assert stream.getvalue() == ("" if seconds == 1 else "evaluation, reading: 38%\nevaluation, reading: 75%\n")


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_a_terminal_gets_a_bar_of_an_evaluation_that_goes(monkeypatch, patience: float):
    monkeypatch.setattr(consumers, "PATIENCE", patience)
    stream = Terminal()
    with watching(EvaluationBar(stream)):
        assert [*counted(iter("ab"), "writing")] == ["a", "b"]
    assert ("evaluation, writing" in stream.getvalue()) == (patience == 0)
    assert "".join(stream.lines()) == ""


# --- log


def test_log_has_every_event(tmp_path):
    events = [*run(0, 10), Skipped(11, math.nan), stepped(12, loss=math.inf), Ended(12, 3.0, "stopped", 15)]
    feed(MetricsLog(tmp_path / "new" / "run"), events)
    raw = [json.loads(line) for line in (tmp_path / "new/run/metrics.jsonl").read_text().splitlines()]
    assert [(line["kind"], line["step"]) for line in raw] == [(type(e).__name__.lower(), e.step) for e in events]
    assert raw[1] == {"kind": "stepped", **vars(events[1])}
    assert raw[11]["scores"]["bleu"] == {"value": 34.56, "signature": CASED}
    assert raw[11]["samples"] == [vars(SAMPLE)] * 4
    assert "outputs" not in raw[11]
    assert raw[12] == {"kind": "saved", "step": 10, "folder": "step-00000010"}
    assert raw[13] == {"kind": "skipped", "step": 11, "grad_norm": None, "grad_norm_raw": "nan"}
    assert (raw[14]["loss"], raw[14]["loss_raw"]) == (None, "inf")
    read = read_metrics(tmp_path / "new/run")
    assert str(read[13]["grad_norm"]) == "nan"
    assert read[14]["loss"] == math.inf
    assert "loss_raw" not in read[14]
    assert read[:13] == raw[:13]


@pytest.mark.parametrize("cut", [None, 1, 25])
def test_resumed_log_reads_as_one_run(tmp_path, cut):
    folder = tmp_path / "run"
    feed(MetricsLog(folder), run(0, 17))
    path = folder / "metrics.jsonl"
    if cut is not None:
        put(path, path.read_bytes()[:-cut])  # A crash in the middle of a line.
    before = path.read_bytes().split(b"\n")
    feed(MetricsLog(folder), run(10, 25))
    steps = [line["step"] for line in read_metrics(folder) if line["kind"] == "stepped"]
    assert steps == list(range(1, 26))
    assert path.read_bytes().split(b"\n")[:13] == before[:13], "kept lines stay as they are"
    assert [path.name for path in folder.iterdir()] == ["metrics.jsonl"]


def test_a_cut_line_is_dropped_even_where_no_later_one_is(tmp_path):
    feed(MetricsLog(tmp_path), run(0, 10))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_bytes()
    put(path, whole + b'{"kind": "step')
    assert len(read_metrics(tmp_path)) == 13
    MetricsLog(tmp_path)(Started(10, 1, "fp32", "cpu"))
    assert path.read_bytes().startswith(whole + b'{"kind": "started"')
    put(path, whole[:-1])  # Only the end of the line was lost.
    assert len(read_metrics(tmp_path)) == 13
    MetricsLog(tmp_path)(Started(10, 1, "fp32", "cpu"))
    assert len(read_metrics(tmp_path)) == 14


@pytest.mark.parametrize("call", ["write_bytes", "fsync", "replace"])
def test_old_log_survives_a_failing_rewrite(tmp_path, monkeypatch, call):
    feed(MetricsLog(tmp_path), run(0, 17))
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path if call == "write_bytes" else os, call, fail)
    with pytest.raises(UserError, match="No space left"):
        MetricsLog(tmp_path)(Started(10, 1, "fp32", "cpu"))
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_log_is_on_the_disk_when_a_checkpoint_is(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(len(read_metrics(tmp_path))))
    feed(MetricsLog(tmp_path), run(0, 20))
    assert synced == [13, 25]


def test_another_run_is_not_written_over(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_metrics(tmp_path)
    feed(MetricsLog(tmp_path), run(0, 3))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"metrics\.jsonl: expected no log yet"):
        MetricsLog(tmp_path)(STARTED)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("bad", [b"{}", b"[1]", b"nonsense", b'{"step": "1"}', b"", b"[" * 100_000])
def test_damage_is_told_by_line(tmp_path, bad):
    feed(MetricsLog(tmp_path), run(0, 2))
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    put(path, b"\n".join([lines[0], bad, *lines[1:]]))
    for read in (lambda: read_metrics(tmp_path), lambda: MetricsLog(tmp_path)(Started(2, 1, "fp32", "cpu"))):
        with pytest.raises(UserError, match=r"metrics\.jsonl:2: expected an event as JSON"):
            read()


# --- TensorBoard


def test_tensorboard_shows_curves_of_one_run(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorBoardLog(tmp_path) as board:
        feed(board, run(0, 17))
    feed(TensorBoardLog(tmp_path), [*run(10, 20), Skipped(21, math.nan), Ended(21, 20.0, "finished")])
    seen = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [e.step for e in seen.Scalars("train/loss")] == list(range(1, 21))
    assert math.isnan(seen.Scalars("train/grad_norm")[-1].value)
    assert [e.value for e in seen.Scalars("valid/bleu")] == pytest.approx([34.56] * 2)
    texts = [e.tensor_proto.string_val[0].decode() for e in seen.Tensors("samples/text_summary")]
    assert SAMPLE.output in texts[0]


def test_tensorboard_missing_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"clearhead\[log\]"):
        TensorBoardLog(tmp_path)
    assert not list(tmp_path.iterdir())


def test_tensorboard_that_cannot_write_is_one_line(tmp_path):
    pytest.importorskip("tensorboard")
    put(tmp_path / "tensorboard", "a file where the folder should be")
    with pytest.raises(UserError, match="tensorboard: expected to write it"):
        TensorBoardLog(tmp_path)(STARTED)
