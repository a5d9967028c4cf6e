"""The page's texts in the words of a model: one of images has patches, not tokens, a sentence encoder vectors."""

import re
from collections.abc import Mapping

from clearhead.config import ModelConfig, NoHead, PatchInput, VectorHead

GLOSSARY = "image.glossary"
"""The key of what a language calls the positions of a picture: `tokens: patches, token: patch`."""
KEPT = "image.class_token"
"""The key of a name that the glossary leaves as it is."""
APART = re.compile(r"(error|file|image|lost|made|walk|word)\.")
"""Texts about tokens themselves, and those that have words of their own for pictures."""

Texts = Mapping[str, str]


def worded(texts: Texts, config: ModelConfig) -> dict[str, str]:
    """The catalogue of a language for a model.

    A text `KEY@KIND` takes the place of KEY: KIND is the kind of the head (vector if there are no logits), encoder if
    there is no decoder, or image.
    """
    kinds = ["@vector" if isinstance(config.head, NoHead | VectorHead) else f"@{config.head.kind}"]
    kinds += ["@encoder"] * (config.decoder is None) + ["@image"] * isinstance(config.first.input, PatchInput)
    own = {key: text for key, text in texts.items() if "@" not in key}
    if "@image" in kinds:
        own = _in_patches(own)
    return own | {key.removesuffix(kind): text for kind in kinds for key, text in texts.items() if key.endswith(kind)}


def _in_patches(texts: Texts) -> dict[str, str]:
    """The texts with the glossary's words. Placeholders and the class token keep their names."""
    words = dict(pair.split(": ") for pair in texts.get(GLOSSARY, "").split(", ") if pair)
    if not words:
        return dict(texts)
    kept = re.escape(texts.get(KEPT, "{"))
    found = "|".join(rf"\b{word}\b" if word.isascii() else word for word in words)
    pattern = re.compile(rf"\{{\w+\}}|{kept}|({found})", re.IGNORECASE)

    def said(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        word = words[match[1].lower()]
        return word.capitalize() if match[1][0].isupper() else word

    return {key: text if APART.match(key) else pattern.sub(said, text) for key, text in texts.items()}
