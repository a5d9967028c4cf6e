"""Scores of written texts, by worked examples and the libraries that define them."""

import math

import pytest

from clearhead.errors import UserError
from clearhead.tasks import text_scores as m
from clearhead.tasks.scores import bits_per_byte, perplexity
from clearhead.tasks.text_scores import bleu_tokenizer

CAT = "the cat sat on the mat"


def test_bleu_settings_stand_in_the_signature():
    score = m.bleu(["The Cat sat on the mat"], [[CAT]], tokenize="none", lowercase=True)
    assert score.value == pytest.approx(100.0)
    assert "case:lc" in score.signature
    assert "tok:none" in score.signature


LINES = {
    "char": ["猫は椅子の上で寝ています。", "今日は、とても良い天気ですね。", "コンピュータ"],
    "zh": ["今天天气很好。", "他在北京大学学习计算机科学,很忙。"],
    "13a": ["Die Katze schläft auf dem Stuhl.", "Heute ist schönes Wetter."],
}
EDGES = [["ja", "nein"], ["guten Tag"], ["12", "3456"], ["", ""], ["", "a b c d", " "], ["。", "!", "😀"]]
"""Texts of few words, of none, and of marks alone."""


@pytest.mark.parametrize(("kind", "lines"), [*LINES.items(), *(("13a", lines) for lines in EDGES), ("zh", ["猫"])])
def test_a_perfect_translation_has_100_in_any_script(kind: str, lines: list[str]):
    references = [[line] for line in lines]
    found = m.bleu(lines, references)
    assert found.value == pytest.approx(100)
    assert not found.is_smoothed
    assert m.chrf(lines, references).value == pytest.approx(100)
    assert f"|tok:{kind}|" in found.signature
    assert found.name == ("bleu" if kind == "13a" else f"bleu_{kind}")
    if lines in LINES.values():
        assert 0 < m.bleu([line[1:] for line in lines], references).value < 99


def test_outputs_do_not_choose_the_tokenizer():
    japanese, german = LINES["char"][:2], LINES["13a"]
    for outputs in (japanese, german, ["", ""], ["99", "98"]):
        assert m.bleu(outputs, [[line] for line in japanese]).name == "bleu_char"
        assert m.bleu(outputs, [[line] for line in german]).name == "bleu"


def test_shorter_n_grams_are_for_short_references_alone():
    assert "eff:no" in m.bleu(["a b"], [["a b c d"]]).signature
    assert "eff:yes" in m.bleu(["a b c d"], [["a b"]]).signature
    assert "eff:yes" in m.bleu(["a"], [["a b c d", "a"]]).signature, "the short reference may be what is written"
    assert m.bleu(["a"], [["a b c d", "a"]]).value == pytest.approx(100)


def test_smoothing_is_told_from_matches():
    references = [["the cat sat on the mat"], ["a dog ran in the park"]]
    assert m.bleu(["the the the the the the"] * 2, references).is_smoothed
    assert not m.bleu(["the cat sat on a mat", "the the"], references).is_smoothed
    assert not m.bleu(["x y z u", "x"], references).is_smoothed, "0 is 0"
    assert not m.bleu(["ja", "nein nein"], [["ja"], ["nein"]]).is_smoothed, "no reference has two words"


@pytest.mark.parametrize("name", ["ja-mecab", "ko-mecab"])
def test_a_tokenizer_that_is_not_installed_is_told_in_a_line(name, monkeypatch):
    def refuse(**_: object) -> None:
        raise RuntimeError("\nIt needs more.\n\n    pip install sacrebleu[ja]\n")

    monkeypatch.setattr("sacrebleu.metrics.BLEU", refuse)
    with pytest.raises(UserError, match=rf"tokenize={name}: .*; try pip install sacrebleu\[ja\]$"):
        m.bleu(["a"], [["a"]], tokenize=name)


def test_bleu_takes_the_best_of_several_references_in_any_number():
    outputs = [CAT, "a dog ran in the park"]
    assert m.bleu(outputs, [["no match at all", CAT], ["a dog ran in the park"]]).value == pytest.approx(100.0)


def test_chrf_with_words_has_its_own_name():
    plus = m.chrf([CAT], [[CAT]], word_order=2)
    assert plus.name == "chrf++"
    assert "nc:6|nw:2" in plus.signature


def test_exact_match():
    assert m.exact_match(["a", " b ", "c", "d"], [["a"], ["b"], ["x", "c"], ["D"]]).value == 0.75


def test_perplexity_of_a_uniform_guess_is_the_number_of_choices():
    assert perplexity(10 * math.log(65), 10).value == pytest.approx(65.0)
    assert perplexity(1e9, 1).value == math.inf


def test_bits_per_byte_of_a_uniform_guess_over_bytes_is_eight():
    assert bits_per_byte(10 * math.log(256), 10).value == pytest.approx(8.0)


def test_score_prints_on_one_line():
    assert str(m.Score("bleu", 12.345, "nrefs:1")) == "bleu = 12.35 (nrefs:1)"
    assert str(m.Score("perplexity", 3.0)) == "perplexity = 3.00"


@pytest.mark.parametrize("metric", [m.bleu, m.chrf, m.exact_match])
def test_mistakes_are_told(metric):
    with pytest.raises(UserError, match="got 2 for 1"):
        metric(["a"], [["a"], ["b"]])
    with pytest.raises(UserError, match="at least one output"):
        metric([], [])
    with pytest.raises(UserError, match="expected a list of texts, got 'a'"):
        metric(["a"], ["a"])
    for empty in (perplexity, bits_per_byte):
        with pytest.raises(UserError, match="expected at least one"):
            empty(0.0, 0)


JA, ZH, DE, TH = LINES["char"][0], LINES["zh"][0], LINES["13a"][0], "แมวนอนอยู่บนเก้าอี้"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], "13a"),
        ([""], "13a"),
        (["12 34", "5"], "13a"),
        (["!?", "😀"], "13a"),
        ([DE], "13a"),
        ([JA], "char"),
        ([ZH], "zh"),
        ([TH], "char"),
        (["ថ្ងៃនេះអាកាសធាតុល្អណាស់"], "char"),
        (["ມື້ນີ້ອາກາດດີຫຼາຍ"], "char"),
        (["ဒီနေ့ရာသီဥတုကောင်းတယ်"], "char"),
        (["𠀀𠀁𠀂𠀃𠀄"], "char"),
        (["القط نائم على الكرسي الآن."], "13a"),
        (["Кошка спит на стуле сейчас."], "13a"),
        ([ZH] * 30 + [JA], "zh"),
        ([ZH] * 5 + [JA] * 5, "char"),
        ([DE] * 9 + [ZH], "13a"),
        ([DE, ZH, ZH], "zh"),
        (["使用 TensorFlow 训练", "在 Python 中打开文件"], "zh"),
        (["Der Name 東京 ist Japanisch."], "13a"),
        (["データは database management system に保存する"], "char"),
        (["๑๒๓ ฿ 5"], "13a"),
        (["ﾃﾚﾋﾞ"], "char"),
        (["हिन्दी में लिखा है"], "13a"),
        (["안녕하세요 여러분"], "13a"),
    ],
)
def test_the_majority_decides(texts: list[str], expected: str):
    assert bleu_tokenizer(texts) == expected
    assert bleu_tokenizer(texts[::-1]) == expected
