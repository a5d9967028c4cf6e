"""Words with tags: CoNLL, CoNLL-U and tables as they come, the schemes of tags, and the pieces of words."""

from pathlib import Path

import pytest

from clearhead.errors import UserError
from clearhead.recipe.data import Column, TaggedFiles
from clearhead.recipe.tokenizers import BPE, ByteBPE, Characters, TokenizerConfig, Unigram, WordPiece, Words
from clearhead.tasks.tagging.data import (
    TaggedSentence,
    normalize,
    read_conll,
    read_tagged,
    tags_in,
)
from clearhead.tasks.tagging.tags import SCHEMES, Span, scheme_of, spans_of, with_begins
from clearhead.tasks.tagging.task import WordIds, pieces_of
from clearhead.text.tokenizers import Tokenizer

CONLLU = """# sent_id = 1
# text = It's 3 pm.
1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_
1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2\t's\tbe\tAUX\tVBZ\t_\t0\troot\t_\t_
2.1\tnow\tnow\tADV\tRB\t_\t_\t_\t2:x\t_
3\t3 pm\t3\t_\tCD\t_\t2\tobl\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""
TEXT = "the cat sat on the mat , don't !"


def read(path: Path, text: str, words: Column | None = None, tags: Column | None = None) -> list[TaggedSentence]:
    path.write_text(text, encoding="utf-8")
    return read_tagged(TaggedFiles(paths=(path,)), words, tags)


# --- files --------------------------------------------------------------------------------------------------------


def test_conllu_without_ranges_and_empty_nodes(tmp_path):
    first, second = read(tmp_path / "a.conllu", CONLLU)
    assert (first.words, first.tags) == (("It", "'s", "3 pm"), ("PRON", "AUX", ""))
    assert first.labels == ("PRON", "AUX")
    assert first.place(2).endswith("a.conllu:7")
    assert (second.words, second.tags) == (("Yes",), ("INTJ",))
    assert read(tmp_path / "a.conllu", CONLLU, tags="xpos")[0].tags == ("PRP", "VBZ", "CD")
    assert read(tmp_path / "a.conllu", CONLLU, words="lemma", tags=7)[0].words == ("it", "be", "3")
    with pytest.raises(UserError, match=r"a\.conllu:3: expected a column 'pos', got none; try xpos"):
        read(tmp_path / "a.conllu", CONLLU, tags="pos")


@pytest.mark.parametrize("between", [" ", "\t", "  "])
@pytest.mark.parametrize("blank", ["\n", "\t\n", "\r\n"])
def test_conll_with_spaces_or_tabs(tmp_path, between: str, blank: str):
    lines = ["-DOCSTART- -X- O", "", "# doc 1 of 2", "U.N. NNP B-org", "# SYM O", "", "", "rose VBD O"]
    text = "".join(line.replace(" ", between) + "\n" if line else blank for line in lines)
    first, second = read(tmp_path / "x", text)
    assert (first.words, first.tags) == (("U.N.", "#"), ("B-org", "O"))
    assert (second.words, second.tags, second.place()) == (("rose",), ("O",), f"{tmp_path / 'x'}:8")
    assert read(tmp_path / "x", text, words="0", tags="1")[0].tags == ("NNP", "SYM")


def test_tables_with_lists_or_spaces(tmp_path):
    row = '{"tokens": ["a b", "c"], "ner_tags": ["B-x", null]}\n{"tokens": [], "ner_tags": []}\n'
    (found,) = read(tmp_path / "t.jsonl", row)
    assert (found.words, found.tags) == (("a b", "c"), ("B-x", ""))
    (found,) = read(tmp_path / "t.csv", "form,x,upos\na b,1,X Y\n")
    assert (found.words, found.tags, found.place(1)) == (("a", "b"), ("X", "Y"), f"{tmp_path / 't.csv'}:2: word 2")
    for text, told in (
        ('{"tokens": ["a", "b"], "tags": ["X"]}', r"t\.jsonl:1: expected a tag for each of 2 words, got 1 in column"),
        ('{"tokens": [], "tags": []}', r"tagged: expected sentences, got rows without words"),
        ('{"tokens": 3, "tags": []}', r"t\.jsonl:1: expected a list in column 'tokens', got 3"),
        ('{"ids": 3, "tags": []}', r"t\.jsonl:1: expected a column tokens or words or .*; there are ids, tags"),
    ):
        with pytest.raises(UserError, match=told):
            read(tmp_path / "t.jsonl", text)


def test_real_data_have_the_words_that_their_makers_count(shared_data: Path):
    """universaldependencies.org/treebanks/en_ewt: 25,147 words in 2,001 sentences of the development part."""
    found = [*read_conll(shared_data / "ud_english_ewt" / "en_ewt-ud-dev.conllu", None, None)]
    assert (len(found), sum(len(one.words) for one in found)) == (2001, 25_147)
    assert len({tag for one in found for tag in one.labels}) == 17
    names = read_tagged(TaggedFiles(paths=(shared_data / "wnut17_ner" / "emerging.dev.conll",)), None, None)
    assert (len(names), scheme_of(tags_in(names)).name) == (1009, "bio")
    assert sum(len(spans_of(one.tags)) for one in names) == 836


# --- tags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        ("NOUN VERB O", "none"),
        ("NN -LRB- B-x", "none"),
        ("O B-x I-x", "bio"),
        ("O I-x", "bio"),
        ("O B-x I-x E-x S-x", "iobes"),
        ("O S-x", "iobes"),
        ("O B-x L-x U-x", "bilou"),
    ],
)
def test_the_scheme_is_known_by_its_prefixes(tags: str, name: str):
    assert scheme_of(tags.split()).name == name


@pytest.mark.parametrize(
    "tags",
    ["B-x I-x O B-x B-y", "B-x E-x O S-x S-y", "B-x L-x O U-x U-y"],
)
def test_the_spans_of_every_scheme(tags: str):
    assert spans_of(tags.split()) == [
        Span(label="x", start=0, end=2),
        Span(label="x", start=3, end=4),
        Span(label="y", start=4, end=5),
    ]
    row = TaggedSentence(("w",) * 5, tuple(tags.split()), "f")
    assert normalize([row], scheme_of(tags.split())) == [row]


def test_an_inner_tag_that_begins_a_span_is_read_as_its_first():
    """IOB1 uses B- only between two spans of one kind."""
    tags = "I-x I-x B-x O I-y I-x".split()
    assert with_begins(tags) == "B-x I-x B-x O B-y B-x".split()
    (found,) = normalize([TaggedSentence(("w",) * 6, tuple(tags), "f", tuple(range(9, 15)))], SCHEMES["bio"])
    assert found.tags == tuple(with_begins(tags))
    assert (found.n_changed, found.place()) == (3, "f:9")


@pytest.mark.parametrize(
    ("tags", "told"),
    [
        ("B-x", "f:1: expected a tag that IOBES has after B-x, got the end after B-x"),
        ("O I-x", "f:2: expected a tag that IOBES has after O, got I-x"),
        ("B-x I-y", "f:2: expected a tag that IOBES has after B-x, got I-y"),
        ("S-x E-x", "f:2: expected a tag that IOBES has after S-x, got E-x"),
        ("O x", "f:2: expected O, B-TYPE, E-TYPE, I-TYPE, S-TYPE, as IOBES has, got x; mend the tag"),
    ],
)
def test_other_tags_out_of_place_are_told(tags: str, told: str):
    row = TaggedSentence(("w",) * len(tags.split()), tuple(tags.split()), "f", (1, 2))
    with pytest.raises(UserError) as error:
        normalize([row], SCHEMES["iobes"])
    remedy = "" if "mend" in told else "; mend it, or the tags E- and S- elsewhere if the others are BIO"
    assert str(error.value) == told + remedy


# --- pieces -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ByteBPE, BPE, WordPiece, Unigram, Words, Characters])
def test_every_word_has_its_pieces(kind: type[TokenizerConfig]):
    """Together they are those of the sentence, apart from words that the tokenizer leaves out."""
    tokenizer = Tokenizer.train([TEXT] * 4, kind(vocab_size=300 if kind is ByteBPE else 60))
    words = TEXT.split()
    found = pieces_of(words, tokenizer)
    assert [token for one in found for token in one.ids] == tokenizer.encode(TEXT)
    assert ["".join(tokenizer.decode(one.ids).split()) for one in found] == words
    data = WordIds.of([words, ["cat"], []], tokenizer, limit=6)
    assert max(data.lengths) <= 6
    assert [part.start for part in data.parts if part.example == 0][0] == 0  # noqa: RUF015
    cells = [(part.ids, cell) for part in data.parts if part.example == 0 for cell in part.cells]
    assert len(cells) == len(words)
    for (ids, cell), one in zip(cells, found, strict=True):
        assert ids[cell] == one.ids[one.n_spaces]


def test_a_word_of_nothing_is_unknown_and_one_too_long_is_cut():
    tokenizer = Tokenizer.train([TEXT], WordPiece(vocab_size=60))
    assert [one.ids for one in pieces_of(["cat", "\u200b", "\u3000"], tokenizer)][1:] == [[tokenizer.unk_id]] * 2
    data = WordIds.of([["cat", "z" * 9 + "?" * 9]], tokenizer, limit=5)
    assert (data.n_cut, data.n_split, max(data.lengths)) == (1, 1, 5)
