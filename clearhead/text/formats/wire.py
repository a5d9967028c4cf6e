"""Reads SentencePiece files without its library: a protocol buffer, or llama2.c's list. Imports no torch.

https://protobuf.dev/programming-guides/encoding, sentencepiece_model.proto. Every length is checked against
the remaining bytes before reading, so that a hostile file costs no more than its size.
"""

import math
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from clearhead.errors import UserError
from clearhead.text.formats.checked import MAX_ID, MAX_PIECE_BYTES
from clearhead.text.schemes import SPACE


class PieceKind(IntEnum):
    """Kinds of piece, with the format's own numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


UNIGRAM, MERGING = 1, 2


@dataclass(frozen=True, slots=True)
class Piece:
    """A scored text. The score is the logarithm of its probability, or minus the rank of its merge."""

    text: str
    score: float = 0.0
    kind: PieceKind = PieceKind.NORMAL


@dataclass(frozen=True, slots=True)
class PieceModel:
    """A piece's index is its id. An id of -1 means that there is no such mark. The defaults are the format's."""

    pieces: tuple[Piece, ...]
    algorithm: int = UNIGRAM
    byte_fallback: bool = False
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    pad_id: int = -1
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True


class _Malformed(Exception):
    pass


Value = int | bytes


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _Malformed("the end inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << 64) - 1
            return value - (1 << 64) * (value >> 63), at
    raise _Malformed("a number of more than 10 bytes")


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, value) of one message: int for numbers, bytes for all other types."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                number, at = _varint(data, at)
                yield key >> 3, number
                continue
            case 1:
                size = 8
            case 2:
                size, at = _varint(data, at)
            case 5:
                size = 4
            case other:
                raise _Malformed(f"wire type {other}")
        if not 0 <= size <= len(data) - at:
            raise _Malformed(f"a field of {size} bytes where {len(data) - at} are left")
        yield key >> 3, data[at : at + size]
        at += size


def _piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    kind, score = _number(fields, 3, PieceKind.NORMAL), _raw(fields, 2) or bytes(4)
    if kind not in {*PieceKind}:
        raise _Malformed(f"a piece of kind {kind}")
    return Piece(_text(_raw(fields, 1)), _finite(score), PieceKind(kind))


def _text(raw: bytes) -> str:
    if len(raw) > MAX_PIECE_BYTES:
        raise _Malformed(f"a piece of {len(raw)} bytes")
    return raw.decode("utf-8")


def _finite(raw: bytes) -> float:
    (score,) = struct.unpack("<f", raw)
    if not math.isfinite(score):
        raise _Malformed("a score that is not finite")
    return float(f"{score:.9g}")  # enough digits for every float32, and few enough for tokenizer.json to keep


def _guarded(build: Callable[[], PieceModel], expected: str, where: str) -> PieceModel:
    """The model, checked. Raises UserError for anything else than what is expected."""
    try:
        return _checked(build())
    except (_Malformed, ValueError, struct.error) as error:  # ValueError: a kind that is none, UTF-8
        raise UserError(f"{where}: expected {expected}, got {error}; try fetching it again") from None


def parse(content: bytes, where: str) -> PieceModel:
    """Parses a .model or .spm file."""
    return _guarded(lambda: _model(content), "a SentencePiece model", where)


def _model(content: bytes) -> PieceModel:
    pieces: list[Piece] = []
    parts = {2: b"", 3: b""}
    for field, value in _fields(content):
        if field == 1 and isinstance(value, bytes):
            pieces.append(_piece(value))
        elif field in parts and isinstance(value, bytes):
            parts[field] += value  # Repeated parts of one message are merged; later ones win.
    spec, rules = dict(_fields(parts[2])), dict(_fields(parts[3]))
    if _number(spec, 24, 0) or not _number(rules, 5, 1):
        raise _Malformed("spaces that are not marked at the start of a word")
    return PieceModel(
        pieces=tuple(pieces),
        algorithm=_number(spec, 3, UNIGRAM),
        byte_fallback=bool(_number(spec, 35, 0)),
        unk_id=_number(spec, 40, 0),
        bos_id=_number(spec, 41, 1),
        eos_id=_number(spec, 42, 2),
        pad_id=_number(spec, 43, -1),
        charsmap=_raw(rules, 2),
        add_dummy_prefix=bool(_number(rules, 3, 1)),
        remove_extra_whitespaces=bool(_number(rules, 4, 1)),
    )


def _number(fields: dict[int, Value], key: int, default: int) -> int:
    value = fields.get(key, default)
    if not isinstance(value, int):
        raise _Malformed(f"bytes where field {key} is a number")
    return value


def _raw(fields: dict[int, Value], key: int) -> bytes:
    value = fields.get(key, b"")
    if not isinstance(value, bytes):
        raise _Malformed(f"a number where field {key} is bytes")
    return value


def _checked(model: PieceModel) -> PieceModel:
    n = len(model.pieces)
    if not 0 < n < MAX_ID:
        raise _Malformed(f"{n} pieces")
    if model.algorithm not in (UNIGRAM, MERGING):
        raise _Malformed("a model of words or characters")
    seen: set[str] = set()
    for number, piece in enumerate(model.pieces):
        if not piece.text or piece.text in seen:
            raise _Malformed(f"piece {number} {'twice' if piece.text else 'empty'}")
        seen.add(piece.text)
    if not 0 <= model.unk_id < n or model.pieces[model.unk_id].kind is not PieceKind.UNKNOWN:
        raise _Malformed(f"unk_id={model.unk_id}, which is no unknown piece")
    if model.byte_fallback and any(f"<0x{byte:02X}>" not in seen for byte in range(256)):
        raise _Malformed("byte_fallback without the 256 bytes")
    _check_charsmap(model.charsmap)
    bos, eos, pad = (place if 0 <= place < n else -1 for place in (model.bos_id, model.eos_id, model.pad_id))
    return replace(model, bos_id=bos, eos_id=eos, pad_id=pad)


def _check_charsmap(charsmap: bytes) -> None:
    """Raises _Malformed unless every step of the double array, and every replacement it points to, lies inside.

    The tokenizers library walks the table without bounds checks.
    """
    if not charsmap:
        return
    size = int.from_bytes(charsmap[:4], "little")
    units, texts = charsmap[4 : 4 + size], charsmap[4 + size :]
    if not size or size % 4 or len(units) < size or not texts.endswith(b"\0"):
        raise _Malformed("a table of characters that is cut short")
    texts.decode("utf-8")
    for place, unit in enumerate(array("I", units)):
        if unit >> 31:
            value = unit & 0x7FFFFFFF
            inside = value < len(texts) and texts[value] & 0xC0 != 0x80
        else:
            inside = ((place ^ ((unit >> 10) << ((unit & 0x200) >> 6))) | 0xFF) < size // 4
        if not inside:
            raise _Malformed("a table of characters that points outside itself")


def parse_scores(content: bytes, where: str) -> PieceModel:
    """Parses llama2.c's tokenizer.bin: int32 longest, then for each piece float32 score, int32 size, bytes."""

    def build() -> PieceModel:
        pieces: list[Piece] = []
        at = 4
        while at < len(content):
            size = int.from_bytes(content[at + 4 : at + 8], "little", signed=True)
            if len(content) < at + 8 or not 0 < size <= min(MAX_PIECE_BYTES, len(content) - at - 8):
                raise _Malformed(f"piece {len(pieces)} of {size} bytes where {len(content) - at} are left")
            text = _text(content[at + 8 : at + 8 + size])
            pieces.append(_listed(len(pieces), text, _finite(content[at : at + 4])))
            at += 8 + size
        return PieceModel(tuple(pieces), MERGING, byte_fallback=True, remove_extra_whitespaces=False)

    return _guarded(build, "a list of scored pieces", where)


def _listed(number: int, text: str, score: float) -> Piece:
    """Restores a piece of llama2.c's list, which writes SPACE as " ", adds line ends to <s>, </s> and drops kinds."""
    if number == 0:
        return Piece(text, score, PieceKind.UNKNOWN)
    if number in (1, 2):
        return Piece(text.strip("\n"), score, PieceKind.CONTROL)
    is_byte = number < 3 + 256 and text == f"<0x{number - 3:02X}>"
    return Piece(text.replace(" ", SPACE), score, PieceKind.BYTE if is_byte else PieceKind.NORMAL)


def from_rows(
    rows: Iterable[tuple[str, float, int]],
    where: str,
    *,
    ids: Mapping[str, Any],
    add_dummy_prefix: bool,
    remove_extra_whitespaces: bool,
) -> PieceModel:
    """A model of merged pieces from text, score and kind of each. `ids` has unk_id, bos_id, eos_id and pad_id."""

    def build() -> PieceModel:
        pieces = tuple(
            Piece(_text(text.encode()), _finite(struct.pack("<f", score)), PieceKind(kind))
            for text, score, kind in rows
        )
        model = PieceModel(
            pieces,
            MERGING,
            byte_fallback=any(piece.kind is PieceKind.BYTE for piece in pieces),
            add_dummy_prefix=add_dummy_prefix,
            remove_extra_whitespaces=remove_extra_whitespaces,
        )
        return replace(model, **ids)

    return _guarded(build, "pieces of SentencePiece", where)
