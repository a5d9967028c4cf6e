"""Replies in the format of the completions API."""

import base64
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import JsonValue
from starlette.responses import JSONResponse

from clearhead.errors import UserError
from clearhead.generation.sampling import NEVER
from clearhead.serve.schemas import EmbeddingRequest
from clearhead.serve.texts import Prompt, ScoredToken, Update
from clearhead.text.detokenizer import UNFINISHED
from clearhead.text.tokenizers import Tokenizer

KINDS = {401: "authentication_error", 403: "permission_error"}
RETRY_SECONDS = 1
LONGEST = 500
"""Characters of an error's message."""
Object = dict[str, JsonValue]


def failure(status: int, message: str, *, field: str | None = None, code: str | None = None) -> JSONResponse:
    """An error: one line, and which field it is about."""
    kind = KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    said = str(UserError(message[:LONGEST]))  # A message may quote what a client wrote.
    body = {"error": {"message": said, "type": kind, "param": field, "code": code}}
    return JSONResponse(body, status, {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None)


def embeddings(model: str, vectors: Sequence[JsonValue], asked: EmbeddingRequest, *, n_tokens: int) -> Object:
    """The vectors of texts in the format of the embeddings API: numbers, or the bytes of float32 in base64."""

    def written(vector: JsonValue) -> JsonValue:
        if asked.encoding_format != "base64":
            return vector
        return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()

    data: list[JsonValue] = [
        {"object": "embedding", "index": i, "embedding": written(vector)} for i, vector in enumerate(vectors)
    ]
    return {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }


@dataclass
class ReplyFormat:
    """The reply to one request, in the format of completions or, with `chats`, of chat."""

    model: str
    tokenizer: Tokenizer
    prompts: Sequence[Prompt]
    chats: bool = False
    gives_ids: bool = False
    echoes: Sequence[str] | None = None
    """The prompts' texts, if the reply repeats them."""
    n_written: dict[int, int] = field(default_factory=dict)
    """Tokens written, by text."""
    n_known: dict[int, int] = field(default_factory=dict)
    """Tokens whose keys and values were there already, by prompt."""
    begun: set[int] = field(default_factory=set)
    """Texts that have had an event in the stream."""

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self.chats else 'cmpl'}-{secrets.token_hex(12)}"
        self.created = int(time.time())

    def whole(self, updates: Sequence[Update]) -> Object:
        """The whole answer, without a stream."""
        choices = [self.choice(update) for update in sorted(updates, key=lambda update: update.choice)]
        return {**self.head(choices), "usage": self.usage()}

    def part(self, update: Update) -> Object:
        """One event of a stream."""
        choice = self.choice(update)
        if self.chats:
            delta: Object = {} if update.choice in self.begun else {"role": "assistant"}
            choice["delta"] = delta | ({"content": update.text} if update.text or delta else {})
            del choice["message"]
        self.begun.add(update.choice)
        return self.head([choice], part=".chunk")

    def last(self) -> Object:
        """The event of a stream that counts the tokens."""
        return {**self.head([], part=".chunk"), "usage": self.usage()}

    def head(self, choices: Sequence[JsonValue], *, part: str = "") -> Object:
        """The fields of every answer and event. `part` ends the name of an event of a chat."""
        kind = f"chat.completion{part}" if self.chats else "text_completion"
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": [*choices]}

    def usage(self) -> Object:
        """Tokens read and written; end tokens count."""
        n_read, n_written = sum(len(prompt.ids) for prompt in self.prompts), sum(self.n_written.values())
        return {
            "prompt_tokens": n_read,
            "completion_tokens": n_written,
            "total_tokens": n_read + n_written,
            "prompt_tokens_details": {"cached_tokens": sum(self.n_known.values())},
        }

    def choice(self, update: Update) -> Object:
        """One text, or its new part."""
        self.n_written[update.choice] = update.n_written
        prompt = self.prompts[update.choice // self.prompts[0].n]
        self.n_known[prompt.number] = update.n_known
        found: Object = {"index": update.choice, "logprobs": None, "finish_reason": update.reason}
        if self.chats:
            found["message"] = {"role": "assistant", "content": update.text}
            if prompt.likeliest is not None:
                found["logprobs"] = {"content": [self.chat_score(token) for token in update.tokens]}
        else:
            echo = ""
            if self.echoes is not None and update.choice not in self.begun:
                echo = self.echoes[prompt.number]
            found["text"] = echo + update.text
            if prompt.likeliest is not None:
                begins = 0 if self.echoes is None else len(self.echoes[prompt.number])
                later = (replace(token, offset=begins + token.offset) for token in update.tokens)
                found["logprobs"] = self.scores([*update.prompt, *later])
        if self.gives_ids:
            found["token_ids"] = [token.id for token in update.tokens]
        return found

    def scores(self, tokens: Sequence[ScoredToken]) -> JsonValue:
        """Log-probabilities in the format of completions: one list for each field."""
        return {
            "tokens": [self.named(token.id) for token in tokens],
            "token_logprobs": [_finite(token.log_prob) for token in tokens],
            "top_logprobs": [self.likeliest(token) for token in tokens],
            "text_offset": [token.offset for token in tokens],
        }

    def likeliest(self, token: ScoredToken) -> JsonValue:
        """The likeliest tokens in a token's place by text. Of two with the same text, the likelier one."""
        found: Object = {}
        for other, score in token.likeliest:
            found.setdefault(self.named(other), _finite(score))
        return found or None

    def chat_score(self, token: ScoredToken) -> Object:
        """Log-probabilities in the format of chat: one object a token."""
        likeliest = [self.scored(other, score) for other, score in token.likeliest]
        return {**self.scored(token.id, token.log_prob), "top_logprobs": [*likeliest]}

    def scored(self, token: int, score: float | None) -> Object:
        """One token with its score."""
        text = self.named(token)
        whole = UNFINISHED not in text
        return {"token": text, "logprob": _finite(score), "bytes": [*text.encode()] if whole else None}

    def named(self, token: int) -> str:
        """A token's text as it stands within a line; special tokens have one too."""
        # After itself: some tokenizers drop the space before the first word of a text.
        once, twice = (self.tokenizer.library.decode([token] * n, skip_special_tokens=False) for n in (1, 2))
        return twice[len(once) :]


def _finite(score: float | None) -> float | None:
    """Stands for -infinity, which JSON cannot write."""
    return -9999.0 if score == NEVER else score
