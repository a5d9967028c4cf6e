"""SentencePiece models as `tokenizers.Tokenizer` (Kudo and Richardson 2018). Imports no torch.

The text is normalised. Each space becomes SPACE, and one SPACE is put in front. The whole text is then segmented
by merges in order of score, or into the most likely pieces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from clearhead.errors import UserError
from clearhead.text.formats.checked import flag, vocabulary
from clearhead.text.formats.special import content_of, set_end_template
from clearhead.text.formats.wire import MERGING, PieceKind, PieceModel, parse
from clearhead.text.schemes import SPACE

SHIFTED_FILE = "sentencepiece.bpe.model"
"""The file name of fairseq's models, whose ids are <s> <pad> </s> <unk>, the other pieces from 4 on, <mask> last."""
# Settings that change the numbering in ways that only their own program knows.
ELSEWHERE = ("offset", "mask_token_sent", "src_lang", "tgt_lang", "language_codes")

ROLES = {"unk_token": "unk_id", "bos_token": "bos_id", "eos_token": "eos_id", "pad_token": "pad_id"}


def open_model(model: PieceModel, settings: dict[str, object], where: str) -> tokenizers.Tokenizer:
    """The library's tokenizer with the special tokens that the model's own program puts around a text.

    By default, a model with a begin token starts a text with it, and one without ends a text with its end token.
    Names the special tokens in `settings`.
    """
    if refused := [key for key in ELSEWHERE if settings.get(key)]:
        raise UserError(f"{where}: expected ids as in the file, got {refused[0]}; try a folder with tokenizer.json")
    for role, field in ROLES.items():
        place = getattr(model, field)
        if place >= 0:
            settings.setdefault(role, model.pieces[place].text)
    library = build(model, settings)
    bos, eos = (content_of(settings.get(role)) for role in ("bos_token", "eos_token"))
    starts = flag(settings, "add_bos_token", model.bos_id >= 0)
    ends = flag(settings, "add_eos_token", model.bos_id < 0)
    set_end_template(library, bos if starts else None, eos if ends else None)
    return library


def build(model: PieceModel, settings: Mapping[str, object]) -> tokenizers.Tokenizer:
    """Builds normaliser, segmentation and decoder. Control pieces and the unknown piece are special tokens."""
    library = _pipeline(model, settings)
    for place, piece in enumerate(model.pieces):
        if piece.kind in (PieceKind.CONTROL, PieceKind.USER_DEFINED) or place == model.unk_id:
            special = piece.kind is not PieceKind.USER_DEFINED
            library.add_tokens([AddedToken(piece.text, normalized=False, special=special)])
    return library


def build_segmenter(model: PieceModel) -> tokenizers.Tokenizer:
    """A tokenizer that only finds pieces. It reads the name of a control piece in a text as ordinary text."""
    hidden = (PieceKind.CONTROL, PieceKind.UNKNOWN)
    pieces = tuple(replace(p, kind=PieceKind.UNUSED) if p.kind in hidden else p for p in model.pieces)
    library = _pipeline(replace(model, pieces=pieces), {})
    given = [p.text for p in model.pieces if p.kind is PieceKind.USER_DEFINED]
    library.add_tokens([AddedToken(text, normalized=False, special=False) for text in given])
    return library


def _pipeline(model: PieceModel, settings: Mapping[str, object]) -> tokenizers.Tokenizer:
    prefix = flag(settings, "add_prefix_space", model.add_dummy_prefix)
    library = tokenizers.Tokenizer(_merging(model) if model.algorithm == MERGING else _unigram(model))
    steps = _normalizers(model)
    if prefix and model.algorithm == MERGING and settings.get("legacy") is False:
        # Then only the very start of a text gets the space, not the text after a special token.
        library.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="first", split=False)
    else:
        steps += [normalizers.Prepend(SPACE)] if prefix else []
        steps += [normalizers.Replace(" ", SPACE)]
    if steps:
        library.normalizer = normalizers.Sequence(steps)
    library.decoder = decoder(byte_fallback=model.byte_fallback, prefix=prefix)
    return library


def decoder(*, byte_fallback: bool, prefix: bool) -> decoders.Decoder:
    """Turns SPACE back into spaces and drops the added leading space."""
    return decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            *([decoders.ByteFallback()] if byte_fallback else []),
            decoders.Fuse(),
            *([decoders.Strip(" ", 1, 0)] if prefix else []),
        ]
    )


def _normalizers(model: PieceModel) -> list[normalizers.Normalizer]:
    steps: list[normalizers.Normalizer] = []
    if model.charsmap:
        table = normalizers.Precompiled(model.charsmap)
        if table.normalize_str("e\u0301") == "\u00e9":
            # The library looks the table up by grapheme and loses all but the first of several marks on a letter.
            # Composing first turns them into one character.
            steps.append(normalizers.NFC())
        steps.append(table)
    if model.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex("^ | $"), "")]
    return steps


def _unigram(model: PieceModel) -> models.Unigram:
    # The normalised text has no raw spaces, so an unused piece never matches.
    scores = [(f" {p.text}" if p.kind is PieceKind.UNUSED else p.text, p.score) for p in model.pieces]
    return models.Unigram(scores, unk_id=model.unk_id, byte_fallback=model.byte_fallback)


def _merging(model: PieceModel) -> models.BPE:
    """Two pieces merge if they spell a third. Pieces with better scores merge first."""
    ids = {piece.text: place for place, piece in enumerate(model.pieces)}
    scores = {piece.text: piece.score for piece in model.pieces if piece.kind is PieceKind.NORMAL}
    merges = all_splits(list(scores), {text: (-score, ids[text]) for text, score in scores.items()})
    return models.BPE(
        ids, merges, unk_token=model.pieces[model.unk_id].text, fuse_unk=True, byte_fallback=model.byte_fallback
    )


def all_splits(pieces: Sequence[str], order: Mapping[str, tuple[float, int]]) -> list[tuple[str, str]]:
    """Every pair of known pieces that spells a known piece, ordered by that piece."""
    splits = [
        (order[piece], order[left][1], left, right)
        for piece in pieces
        for cut in range(1, len(piece))
        if (left := piece[:cut]) in order and (right := piece[cut:]) in order
    ]
    splits.sort()
    return [(left, right) for *_, left, right in splits]


SOURCE, TARGET, IDS, TARGET_IDS = "source.spm", "target.spm", "vocab.json", "target_vocab.json"
SPECIAL = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
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
    for role, name in SPECIAL.items():
        settings.setdefault(role, name)
    separate = settings.get("separate_vocabs") is True
    if separate and TARGET_IDS not in files:
        raise UserError(f"{where}: expected {TARGET_IDS}, got no such file; try the whole folder it came in")
    source_ids = vocabulary(files[IDS], f"{where}/{IDS}")
    target_ids = vocabulary(files[TARGET_IDS], f"{where}/{TARGET_IDS}") if separate else source_ids
    source = _side(files, SOURCE, source_ids, settings, where)
    target = _side(files, TARGET, target_ids, settings, where)
    names = tokenizers.Tokenizer(models.WordLevel(dict(target_ids), unk_token=_special_token(settings, "unk_token")))
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
    unknown, last = (ids.get(_special_token(settings, role)) for role in ("unk_token", "eos_token"))
    if unknown is None or last is None:
        raise UserError(
            f"{where}/{IDS}: expected <unk> and </s> among the pieces, got neither or one; try its own {IDS}"
        )
    return Side(segmenter, ids, unknown=unknown, last=last)


def _special_token(settings: Mapping[str, object], role: str) -> str:
    return content_of(settings.get(role)) or SPECIAL[role]


def _present(settings: Mapping[str, object], ids: Mapping[str, int]) -> list[AddedToken]:
    tokens = [_special_token(settings, role) for role in SPECIAL]
    return [AddedToken(token, normalized=False, special=True) for token in tokens if token in ids]
