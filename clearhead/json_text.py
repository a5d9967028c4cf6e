"""Reads JSON from elsewhere, with one line for each mistake. Imports no torch."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import JsonValue

from clearhead.errors import UserError

JsonObject = dict[str, JsonValue]

PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
"""A file or folder that a document may name: no path, and not hidden."""
_BLANK, _BETWEEN, _COLON = re.compile(r"\s*"), re.compile(r"\s*,?\s*"), re.compile(r"\s*:\s*")
LEVELS = 100
"""How deep tables and lists may be nested."""

NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Characters that end a line or a cell, or that a terminal obeys."""


def tabbed(*cells: str) -> str:
    """One line of cells with tabs between. A cell that holds a tab, a line break or another control character is
    written as a JSON string.
    """
    return "\t".join(json.dumps(cell) if NOT_PLAIN.search(cell) else cell for cell in cells)


class NotJson(UserError):
    """The text is no JSON at all."""


def parse(
    content: str | bytes,
    where: str,
    *,
    remedy: str = "",
    numbered: bool = True,
    table: Callable[[list[tuple[str, Any]]], JsonValue] | None = None,
) -> JsonValue:
    """The value that a text spells; `table` makes each table from its pairs.

    Raises NotJson for text that is no JSON, with the line unless `numbered` is false. Raises UserError for text that is
    not UTF-8, for more than LEVELS levels, for a number of thousands of digits and for half a character.
    """
    with _refusals(where, remedy and f"; {remedy}", numbered=numbered):
        text = content if isinstance(content, str) else content.decode("utf-8")
        value = json.loads(text, object_pairs_hook=table)
        _check(value, has_escapes=r"\u" in text)
        return value


def records(text: str, where: str, *, part: str | None = None) -> Iterator[tuple[int, JsonValue]]:
    """Each element of the list that a text spells, or that an object has under the name `part`, with its line.

    Without a list, the values that follow one another. Makes one value at a time. Raises UserError as `parse` does.
    """
    decoder, has_escapes = json.JSONDecoder(), r"\u" in text
    at = line = counted = 0

    def value() -> JsonValue:
        nonlocal at
        with _refusals(where, ""):
            found, at = decoder.raw_decode(text, at)
            _check(found, has_escapes=has_escapes)
            return found

    def skip(pattern: re.Pattern[str]) -> str:
        nonlocal at
        match = pattern.match(text, at)
        at = match.end() if match else at
        return text[at : at + 1]

    name = None
    first = skip(_BLANK)
    if part is not None and first == "{":
        at += 1
        while skip(_BETWEEN) not in ("}", "") and (name := value()) != part:
            skip(_COLON)
            value()
        first = skip(_COLON)
    if part is not None and (name != part or first != "["):
        raise UserError(f"{where}: expected a list {part!r}, got none; give the name of one as data.train.part")
    is_list = first == "["
    at += is_list
    while (first := skip(_BETWEEN)) and not (is_list and first == "]"):
        line, counted = line + text.count("\n", counted, at), at
        yield line + 1, value()
    if is_list and (not first or (part is None and text[at + 1 :].strip())):
        got = "more after its end" if first else "its beginning alone"
        raise NotJson(f"{where}: expected a list that ends, got {got}; try fetching the file again")


@contextmanager
def _refusals(where: str, advice: str, *, numbered: bool = True) -> Iterator[None]:
    """Raises UserError in place of the errors of reading JSON."""
    try:
        yield
    except UserError:
        raise
    except UnicodeDecodeError as error:
        found = f"the byte 0x{error.object[error.start]:02X}"
        raise UserError(f"{where}: expected UTF-8, got {found}{advice}") from None
    except UnicodeEncodeError:
        raise UserError(f"{where}: expected text, got half a character, such as \\ud800 alone{advice}") from None
    except json.JSONDecodeError as error:
        line = f":{error.lineno}" if numbered else ""
        what = error.msg[:1].lower() + error.msg[1:]
        raise NotJson(f"{where}{line}: expected JSON, got {what} (column {error.colno}){advice}") from None
    except RecursionError:
        raise UserError(f"{where}: expected at most {LEVELS} levels of tables and lists, got more{advice}") from None
    except ValueError:  # Python's own limit, against numbers that take minutes to read
        raise UserError(f"{where}: expected numbers, got one of thousands of digits{advice}") from None


def _check(value: JsonValue, *, has_escapes: bool) -> None:
    """Raises what `_refusals` handles for too many levels and for half a character."""
    _check_levels(value)
    if has_escapes:
        json.dumps(value, ensure_ascii=False).encode()


def _check_levels(value: JsonValue, level: int = 0) -> None:
    if level > LEVELS:
        raise RecursionError
    if isinstance(value, dict):
        value = [*value.values()]
    for inner in value if isinstance(value, list) else ():
        if isinstance(inner, (dict, list)):
            _check_levels(inner, level + 1)
