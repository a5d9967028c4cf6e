"""Languages of a translator: tokens of the tokenizer, or tags before a source. Imports no torch."""

import json
import re
from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import AddedToken

from clearhead.errors import UserError
from clearhead.recipe import Recipe
from clearhead.recipe.data import Languages
from clearhead.text.formats import MODEL_FILE
from clearhead.text.formats.checked import json_object
from clearhead.text.special_tokens import with_special
from clearhead.text.tokenizers import Tokenizer

NAMES = re.compile(r"__([a-z]{2,3})__|([a-z]{2,3}_[A-Z][A-Za-z]{1,3})")
"""The tokens of languages, such as __de__, de_DE and deu_Latn."""


def languages(tokenizer: Tokenizer) -> dict[str, str]:
    """Name -> token: the whole name, and its part before _ if no other language begins with it."""
    added = tokenizer.library.get_added_tokens_decoder().values()
    matches = {token.content: NAMES.fullmatch(token.content) for token in added if token.special}
    named = {match[1] or match[2]: token for token, match in sorted(matches.items()) if match}
    beginnings = [name.partition("_")[0] for name in named]
    short = {name.partition("_")[0]: token for name, token in named.items()}
    return {name: token for name, token in short.items() if beginnings.count(name) == 1} | named


def language(name: str, known: dict[str, str], option: str) -> str:
    """The token of a language. Raises UserError, which names `option`, if the model lacks it."""
    if name not in known:
        names = ", ".join(name for name, token in known.items() if name in token and "_" in name) or ", ".join(known)
        shown = names if len(names) < 300 else f"{names[:300]}, ..."
        raise UserError(f"{option} {name}: expected a language of the model ({shown}), got another; try one of them")
    return known[name]


def reading(tokenizer: Tokenizer, token: str, known: dict[str, str]) -> Tokenizer:
    """A copy of a tokenizer that puts the token of this language around each text."""
    library = tokenizers.Tokenizer.from_str(tokenizer.library.to_str())
    parts = json_object(library.to_str().encode(), MODEL_FILE)
    others = {*known.values()}

    def changed(value: object) -> object:
        if isinstance(value, dict):
            return {(token if key in others else key): changed(part) for key, part in value.items()}
        if isinstance(value, list):
            return [changed(part) for part in value]
        return token if isinstance(value, str) and value in others else value

    processor = changed(parts["post_processor"])
    if isinstance(processor, dict) and isinstance(named := processor.get("special_tokens"), dict):
        named |= {token: {"id": token, "ids": [library.token_to_id(token)], "tokens": [token]}}
    parts["post_processor"] = processor
    return tokenizer.changed(tokenizers.Tokenizer.from_str(json.dumps(parts)), src_lang=token)


FORMS = re.compile(r"<2(\w+)>|>>(\w+)<<")
"""The tokens with which translators of several languages are asked for one."""


def with_tags(tokenizer: Tokenizer, tags: Sequence[str]) -> Tokenizer:
    """A tokenizer with a token for each tag, to which the space after it belongs."""
    if not tags:
        return tokenizer
    tokens = [AddedToken(tag.strip(), rstrip=True, normalized=False) for tag in tags]
    return with_special(tokenizer, tokens)


def with_prefix(tokenizer: Tokenizer, prefix: str) -> Tokenizer:
    """A tokenizer with the same ids whose settings record the prefix that its model expects before a source."""
    return tokenizer.changed(tokenizer.library, source_prefix=prefix) if prefix else tokenizer


def prefix_of(tokenizer: Tokenizer) -> str:
    """The prefix that the model of a tokenizer expects before a source."""
    prefix = tokenizer.settings.get("source_prefix")
    return prefix if isinstance(prefix, str) else ""


def untagged(text: str, tags: Sequence[str]) -> str:
    """The text without the tag that it begins with."""
    return next((text[len(tag) :] for tag in tags if text.startswith(tag)), text)


def tags_of(recipe: Recipe) -> dict[str, str]:
    """The tag of each language of a recipe's training data; none if they have one language."""
    train = recipe.data.train
    return train.tags if isinstance(train, Languages) else {}


def known_tags(tokenizer: Tokenizer, recipe: Recipe | None) -> dict[str, str]:
    """{language: tag} of a model, from its recipe if it has one, otherwise from its tokenizer's vocabulary."""
    if recipe is not None:
        return tags_of(recipe)
    matches = map(FORMS.fullmatch, tokenizer.library.get_vocab(with_added_tokens=True))
    return {match[1] or match[2]: f"{match[0]} " for match in sorted(filter(None, matches), key=lambda match: match[0])}


def tag_for(language: str | None, tags: Mapping[str, str]) -> str:
    """The tag of a language; "" for None. Raises UserError for a language that the model does not have."""
    if language is None:
        return ""
    if language not in tags:
        known = ", ".join(tags) or "one language alone"
        raise UserError(f"--to {language}: expected a language of the model ({known}); try another, or leave it out")
    return tags[language]
