"""Languages of a translator that names them by tokens: one around the source, one first in the target.

Imports no torch.
"""

import json
import re

import tokenizers

from clearhead.errors import UserError
from clearhead.text.formats import MODEL_FILE
from clearhead.text.formats.checked import json_object
from clearhead.text.tokenizers import Tokenizer

NAMES = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")
"""The tokens of languages, such as __de__, de_DE and deu_Latn."""


def languages(tokenizer: Tokenizer) -> dict[str, str]:
    """Name -> token: the whole name, and its part before _ if no other language begins with it."""
    added = tokenizer.library.get_added_tokens_decoder().values()
    found = {token.content: NAMES.fullmatch(token.content) for token in added if token.special}
    named = {match[1] or match[2]: token for token, match in sorted(found.items()) if match}
    beginnings = [name.partition("_")[0] for name in named]
    short = {name.partition("_")[0]: token for name, token in named.items()}
    return {name: token for name, token in short.items() if beginnings.count(name) == 1} | named


def language(name: str, known: dict[str, str], option: str) -> str:
    """The token of a language. Raises UserError, which names `option`, for one that the model does not have."""
    if name not in known:
        names = ", ".join(name for name, token in known.items() if name in token and "_" in name) or ", ".join(known)
        shown = names if len(names) < 300 else f"{names[:300]}, ..."
        raise UserError(f"{option} {name}: expected a language of the model ({shown}), got another; try one of them")
    return known[name]


def reading(tokenizer: Tokenizer, token: str, known: dict[str, str]) -> Tokenizer:
    """A copy of a tokenizer that marks each text with this language."""
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    parts = json_object(library.to_str().encode(), MODEL_FILE)
    others = {*known.values()}

    def changed(value: object) -> object:
        if isinstance(value, dict):
            return {(token if key in others else key): changed(part) for key, part in value.items()}
        if isinstance(value, list):
            return [changed(part) for part in value]
        return token if isinstance(value, str) and value in others else value

    marks = changed(parts["post_processor"])
    if isinstance(marks, dict) and isinstance(named := marks.get("special_tokens"), dict):
        named |= {token: {"id": token, "ids": [library.token_to_id(token)], "tokens": [token]}}
    parts["post_processor"] = marks
    return tokenizer.changed(tokenizers.Tokenizer.from_str(json.dumps(parts)), src_lang=token)
