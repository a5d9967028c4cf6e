"""Two SentencePiece models over one list of ids: a source language and a target language. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models

from clearhead.errors import UserError
from clearhead.text.formats.checked import vocabulary
from clearhead.text.formats.sentence_pieces import build_segmenter
from clearhead.text.formats.special import content_of
from clearhead.text.formats.wire import parse
from clearhead.text.schemes import SPACE

SOURCE, TARGET, IDS, TARGET_IDS = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
MARKS = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
CODE = (">>", "<<")


class Pieces(NamedTuple):
    """A text as pieces. Offsets are [start, end) in characters."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Side:
    """One language. Its model finds the pieces, and the list gives them ids."""

    segmenter: tokenizers.Tokenizer
    ids: Mapping[str, int]
    unknown: int
    last: int

    def encode(self, texts: Sequence[str]) -> list[Pieces]:
        """The pieces of each text. A text may begin with a language code such as >>fra<<."""
        codes = [_code(text) for text in texts]
        bodies = [text[len(code) :] for text, code in zip(texts, codes, strict=True)]
        encodings = self.segmenter.encode_batch(bodies, add_special_tokens=False)
        return [self._pieces(code, encoding) for code, encoding in zip(codes, encodings, strict=True)]

    def _pieces(self, code: str, encoding: tokenizers.Encoding) -> Pieces:
        tokens = ([code] if code else []) + encoding.tokens
        moved = [(start + len(code), end + len(code)) for start, end in encoding.offsets]
        ids = [self.ids.get(token, self.unknown) for token in tokens]
        return Pieces(ids, tokens, ([(0, len(code))] if code else []) + moved)


def _code(text: str) -> str:
    end = text.find(CODE[1]) if text.startswith(CODE[0]) else -1
    return text[: end + len(CODE[1])] if end >= 0 else ""


@dataclass(frozen=True, slots=True)
class Sides:
    """The source language and the target language."""

    source: Side
    target: Side


def open_sides(
    files: Mapping[str, bytes], settings: dict[str, object], where: str
) -> tuple[tokenizers.Tokenizer, Sides]:
    """A tokenizer of the target's pieces for decoding, and both sides. Names the special tokens in `settings`."""
    for role, name in MARKS.items():
        settings.setdefault(role, name)
    separate = settings.get("separate_vocabs") is True
    if separate and TARGET_IDS not in files:
        raise UserError(f"{where}: expected {TARGET_IDS}, got no such file; try the whole folder it came in")
    source_ids = vocabulary(files[IDS], f"{where}/{IDS}")
    target_ids = vocabulary(files[TARGET_IDS], f"{where}/{TARGET_IDS}") if separate else source_ids
    source = _side(files, SOURCE, source_ids, settings, where)
    target = _side(files, TARGET, target_ids, settings, where)
    names = tokenizers.Tokenizer(models.WordLevel(dict(target_ids), unk_token=_mark(settings, "unk_token")))
    names.add_special_tokens(_present(settings, target_ids))
    names.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.Fuse(), decoders.Replace(Regex("^ +|(?<! ) +$"), "")]
    )
    return names, Sides(source, target)


def _side(
    files: Mapping[str, bytes], name: str, ids: Mapping[str, int], settings: Mapping[str, object], where: str
) -> Side:
    segmenter = build_segmenter(parse(files[name], f"{where}/{name}"))
    segmenter.add_special_tokens(_present(settings, ids))
    marks = [ids.get(_mark(settings, role)) for role in ("unk_token", "eos_token")]
    if marks[0] is None or marks[1] is None:
        raise UserError(
            f"{where}/{IDS}: expected <unk> and </s> among the pieces, got neither or one; try its own {IDS}"
        )
    return Side(segmenter, ids, unknown=marks[0], last=marks[1])


def _mark(settings: Mapping[str, object], role: str) -> str:
    return content_of(settings.get(role)) or MARKS[role]


def _present(settings: Mapping[str, object], ids: Mapping[str, int]) -> list[AddedToken]:
    marks = [_mark(settings, role) for role in MARKS]
    return [AddedToken(mark, normalized=False, special=True) for mark in marks if mark in ids]
