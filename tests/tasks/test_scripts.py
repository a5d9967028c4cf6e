import pytest

from clearhead.tasks.text_scores import bleu_tokenizer

JA, ZH, DE, TH = "猫は椅子の上で寝ています。", "今天天气很好。", "Die Katze schläft auf dem Stuhl.", "แมวนอนอยู่บนเก้าอี้"


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
