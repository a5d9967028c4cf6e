"""Text to token ids and back: tokenizers, the formats of their files, chat templates."""
