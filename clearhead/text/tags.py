"""Tags before a source, which say what to write: a language, for a translator of several. Imports no torch."""

import re
from collections.abc import Mapping, Sequence

from tokenizers import AddedToken

from clearhead.errors import UserError
from clearhead.recipe import Recipe
from clearhead.recipe.data import Languages
from clearhead.text.tokenizers import Tokenizer
from clearhead.text.vocabulary import with_special

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
    """What the model of a tokenizer expects before a source."""
    found = tokenizer.settings.get("source_prefix")
    return found if isinstance(found, str) else ""


def untagged(text: str, tags: Sequence[str]) -> str:
    """The text without the tag that it begins with."""
    return next((text[len(tag) :] for tag in tags if text.startswith(tag)), text)


def tags_of(recipe: Recipe) -> dict[str, str]:
    """The tag of each language of a recipe's training data; none if they have one language."""
    train = recipe.data.train
    return train.tags if isinstance(train, Languages) else {}


def known_tags(tokenizer: Tokenizer, recipe: Recipe | None) -> dict[str, str]:
    """The tag of each language of a model: those of its recipe, else of its tokenizer's vocabulary."""
    if recipe is not None:
        return tags_of(recipe)
    found = map(FORMS.fullmatch, tokenizer.library.get_vocab(with_added_tokens=True))
    return {match[1] or match[2]: f"{match[0]} " for match in sorted(filter(None, found), key=lambda match: match[0])}


def tag_for(language: str | None, tags: Mapping[str, str]) -> str:
    """The tag of a language; "" for None. Raises UserError for a language that the model does not have."""
    if language is None:
        return ""
    if language not in tags:
        known = ", ".join(tags) or "one language alone"
        raise UserError(f"--to {language}: expected a language of the model ({known}); try another, or leave it out")
    return tags[language]
