"""Finds the encoding of a text file. Imports no torch."""

import codecs
import re
from collections import Counter

from clearhead.data.files import encoding_of, opened
from clearhead.errors import UserError
from clearhead.recipe.places import Place

HEAD = 1 << 20
"""Bytes that are looked at unless the whole file is."""
SHOWN = 1 << 18
"""Bytes of lines beyond ASCII that tell one encoding from another."""
BAD = re.compile("[\udc80-\udcff]")
RARE = ["hp_roman8", *(f"iso8859_{n}" for n in (3, 4, 10, 13, 14, 16))]
"""Encodings that hardly any file has, though they fit some French and Swedish as well as the usual ones."""
NOT_CP1252 = re.compile(b"[\x81\x8d\x8f\x90\x9d]")


def find_encoding(path: Place, *, whole: bool = False) -> str | None:
    """The encoding of a text file; None for UTF-8. Looks at the beginning of the file, or at all of it.

    A file is UTF-8 if most of what is beyond ASCII in it is. Raises UserError as `likeliest` does.
    """
    decoder, shown = codecs.getincrementaldecoder("utf-8")("surrogateescape"), bytearray()
    n_good = n_bad = 0
    with opened(path) as file:
        content = file.read(HEAD)
        if name := marked(content):
            return None if name == "utf-8-sig" else name
        while content:
            text = decoder.decode(content)
            if not text.isascii():
                n = len(BAD.findall(text))
                n_good, n_bad = n_good + len(text) - len(text.encode("ascii", "ignore")) - n, n_bad + n
                if n and len(shown) < SHOWN:
                    shown += b"".join(line for line in content.splitlines(True) if not line.isascii())[:SHOWN]
            content = file.read(HEAD) if whole else b""
    return None if n_bad <= n_good / 4 else likeliest(bytes(shown), path)


def likeliest(shown: bytes, path: object) -> str:
    """The likeliest encoding of text that is not UTF-8: what charset-normalizer finds, else cp1252 or latin-1.

    Raises UserError, which names the path, for few ASCII letters if that package is not installed.
    """
    n_ascii, n_other = len(re.findall(rb"[A-Za-z]", shown)), len(re.findall(rb"[\x80-\xff]", shown))
    if n_ascii > 2 * n_other and len(NOT_CP1252.findall(shown)) < n_other / 50:
        shown = NOT_CP1252.sub(b"", shown)  # Broken bytes, which rows tell.
    western = "latin-1" if NOT_CP1252.search(shown) else "cp1252"
    if n_ascii > 30 * n_other:
        return western
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        if n_ascii > 2 * n_other:
            return western
        raise UserError(
            f"{path}: expected UTF-8, got another encoding; give --data.train.encoding, such as cp1251"
        ) from None
    matches = [*from_bytes(shown, cp_exclusion=RARE)]
    likely = [one for one in matches if one.chaos <= matches[0].chaos + 0.025]
    if not matches or any("cp1252" in one.could_be_from_charset for one in likely):
        return western
    return likely[0].encoding


def marked(content: bytes) -> str | None:
    """The encoding that a byte order mark says, or UTF-16 without one; None for any other.

    Every second byte of UTF-16 is 0 for ASCII, and one of few others for the letters of an alphabet.
    """
    if name := encoding_of(content):
        return name
    content = content[:4096]
    for name, high, low in (("utf-16-be", content[::2], content[1::2]), ("utf-16-le", content[1::2], content[::2])):
        usual = dict(Counter(high).most_common(3))
        if 0 in usual and 9 < sum(usual.values()) > 0.9 * len(high) and low.count(0) <= len(low) / 10:
            return name
    return None
