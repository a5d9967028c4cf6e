"""The printable character that stands for each byte in a byte-level vocabulary (Radford et al. 2019)."""


def _byte_values() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_VALUES = _byte_values()
SHOWN = str.maketrans({chr(byte): character for character, byte in BYTE_VALUES.items()})


def shown(raw: bytes) -> str:
    """One printable character for each byte."""
    return raw.decode("latin-1").translate(SHOWN)


def hidden(piece: str) -> bytes | None:
    """The bytes behind a piece, or None for a special token, which stands for none."""
    try:
        return bytes([BYTE_VALUES[character] for character in piece])
    except KeyError:
        return None


def readable(piece: str) -> str:
    """The text of a piece, with partial characters as <0xE2>."""
    raw = hidden(piece)
    if raw is None:
        return piece
    text = ""
    while raw:
        try:
            return text + raw.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = raw[error.start : error.end]
            text += raw[: error.start].decode("utf-8") + "".join(f"<0x{byte:02X}>" for byte in bad)
            raw = raw[error.end :]
    return text


def word_around(text: str, start: int, end: int) -> str:
    """The word that contains this part of a text."""
    piece = text[start:end].strip()
    start = text.index(piece, start)
    end = start + len(piece)
    while piece[:1].isalnum() and start > 0 and text[start - 1].isalnum():
        start -= 1
    while piece[-1:].isalnum() and end < len(text) and text[end].isalnum():
        end += 1
    return text[start:end]
