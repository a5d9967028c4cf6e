"""A file's page cuts any text as Python does, in the script that the file holds; what it cannot, is said beforehand."""

import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library
from tokenizers.models import Model as Pieces

import hatch_build
from benchmarks.carried import WHOLE, differences, mixed, trained
from clearhead import config as c
from clearhead.api import Model
from clearhead.explorer.export.carried import carried, longest, refusal
from clearhead.explorer.session import Session
from clearhead.text.formats.byte_pairs import CASED, SINGLE_DIGITS, THREE_DIGITS, WORDS_2019, splitter
from clearhead.text.tokenizers import Tokenizer
from tests.explorer.traced import CONFIGS, LLAMA, model_of, stack

LINES = list(mixed(WHOLE + 100, 7))
TRAINED = dict(trained())
LEARNED = [" ".join(line.split()) for line in mixed(40, 3)] * 3


def library(model: str, splits: pre_tokenizers.PreTokenizer, *steps: normalizers.Normalizer) -> Tokenizer:
    """A tokenizer as other programs make them."""
    small = {"vocab_size": 500}
    kinds: dict[str, tuple[Pieces, trainers.Trainer]] = {
        "bytes": (
            models.BPE(),
            trainers.BpeTrainer(**small, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        ),
        "fallback": (
            models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True),
            trainers.BpeTrainer(**small, special_tokens=["<unk>", *(f"<0x{i:02X}>" for i in range(256))]),
        ),
        "words": (
            models.WordPiece(unk_token="[UNK]"),
            trainers.WordPieceTrainer(**small, special_tokens=["[UNK]", "[MASK]"]),
        ),
        "unigram": (
            models.Unigram(),
            trainers.UnigramTrainer(vocab_size=3000, unk_token="<unk>", special_tokens=["<unk>"]),
        ),
    }
    made = Library(kinds[model][0])
    made.normalizer, made.pre_tokenizer, made.decoder = normalizers.Sequence([*steps]), splits, decoders.ByteLevel()
    made.train_from_iterator(LEARNED, kinds[model][1])
    return Tokenizer(made, {"unk_token": "[UNK]" if model == "words" else "<unk>"})


APART = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Whitespace(),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Punctuation("merged_with_previous"),
    ]
)
BARE = (normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase())
STRIPPED = (
    normalizers.Nmt(),
    normalizers.NFKC(),
    normalizers.Replace(Regex(" {2,}|^ | $"), " "),
    normalizers.Strip(),
)
FOREIGN: dict[str, tuple[str, pre_tokenizers.PreTokenizer, tuple[normalizers.Normalizer, ...]]] = {
    "words of 2019": ("bytes", splitter(WORDS_2019, prefix=True), ()),
    "single digits": ("bytes", splitter(SINGLE_DIGITS, prefix=False), ()),
    "three digits": ("bytes", splitter(THREE_DIGITS, prefix=True), ()),
    "cased": ("bytes", splitter(CASED, prefix=False), ()),
    "bytes": ("bytes", pre_tokenizers.ByteLevel(), (normalizers.NFC(),)),
    "byte fallback": ("fallback", pre_tokenizers.Metaspace(prepend_scheme="first", split=False), ()),
    "BERT": ("words", pre_tokenizers.BertPreTokenizer(), (normalizers.BertNormalizer(),)),
    "words apart": ("words", APART, BARE),
    "pieces": ("unigram", pre_tokenizers.Metaspace(), STRIPPED),
}


@pytest.mark.parametrize("name", [*TRAINED, *FOREIGN])
def test_the_page_cuts_every_line_as_python_does(name: str):
    if hatch_build.find_node() is None:
        pytest.skip("no node")
    if name in TRAINED:
        made = TRAINED[name]
    else:
        model, splits, steps = FOREIGN[name]
        made = library(model, splits, *steps)
    assert differences(made, LINES) == (0, 0)


def test_what_stands_around_a_text_and_the_longest_one():
    model = model_of(CONFIGS["encoder_decoder_post"])
    end, start = model.tokenizer.eos_id, model.tokenizer.bos_id
    reads = carried(model)["reads"]
    assert (reads["encoder"]["after"], reads["decoder"]["before"]) == ((end,), (start,))
    assert longest(model_of(CONFIGS["decoder_pre_learned"]), "decoder") == 24
    assert longest(model_of(c.ModelConfig(decoder=stack(**LLAMA, n_heads=32, d_head=8))), "decoder") < 1000


def test_a_rule_that_no_browser_knows_is_named():
    model = model_of(CONFIGS["decoder_pre_learned"])
    opened = Session(model, name="a")
    assert refusal(opened, live=True) is None
    assert "--live int8" in (refusal(opened, live=False) or "")
    for splits in (pre_tokenizers.Split(Regex(r"\p{L}++"), "isolated"), pre_tokenizers.UnicodeScripts()):
        foreign = library("bytes", pre_tokenizers.Sequence([splits, pre_tokenizers.ByteLevel()]))
        opened.model = Model(model.network, foreign, model.generation)
        assert "rule" in (refusal(opened, live=True) or "")
