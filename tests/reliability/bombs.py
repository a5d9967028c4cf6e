"""Bombs at running servers: files and requests that would take all memory or time. The next request is answered."""

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clients import served
from tests.reliability import Counted, file_bombs
from tests.serve.tiny import writer_model

ROOT = Path(__file__).resolve().parents[2]


def replaced(pattern: dict[str, str], by: str, times: int) -> dict[str, Any]:
    """A normalizer that replaces several times."""
    step = {"type": "Replace", "pattern": pattern, "content": by}
    return {"normalizer": {"type": "Sequence", "normalizers": [step] * times}}


def split(pattern: str) -> dict[str, Any]:
    """A pre-tokenizer that splits by a regular expression."""
    parts = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"pre_tokenizer": parts}


def repeated(n: int) -> dict[str, Any]:
    """A template that writes a text n times."""
    text = {"Sequence": {"id": "A", "type_id": 0}}
    pair = [text, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"post_processor": {"type": "TemplateProcessing", "single": [text] * n, "pair": pair, "special_tokens": {}}}


TOKENIZERS: dict[str, dict[str, Any]] = {
    "three replacements": replaced({"Regex": "."}, "a" * 1000, 3),
    "replacements of a letter": replaced({"String": "a"}, "a" * 300, 4),
    "thirty doublings": replaced({"String": "a"}, "aa", 30),
    "an empty pattern": replaced({"Regex": ""}, "a" * 100_000, 2),
    "a long prefix": {"normalizer": {"type": "Prepend", "prepend": "a" * 20_000_000}},
    "bytes of bytes": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}] * 34}},
    "an exponential expression": split("(a|aa)+$"),
    "one with nothing to find": split("(x+x+)+y"),
    "a quadratic one": split("a*b"),
    "a cubic one": split("a*a*b"),
    "a backward reference": split(r"(a*)*\1b"),
    "a call of itself": split(r"(?<n>a|b\g<n>c|a\g<n>a)d"),
    "a large count": split("(a{1000}){1000}"),
    "a template that repeats": repeated(300_000),
    "templates that follow each other": {"post_processor": {"type": "Sequence", "processors": [
        repeated(60)["post_processor"]] * 5}},
    "a decoder that replaces": {"decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"Regex": "."}, "content": "a" * 1000}] * 4}},
    "a decoder that backtracks": {"decoder": {"type": "Replace", "pattern": {"Regex": "(.|..)+x$"}, "content": ""}},
    "a decoder that panics": {"decoder": {"type": "Strip", "content": "a", "start": 0, "stop": 99}},
    "runs searched from each character": replaced({"Regex": " +$"}, "", 1),
    "letters of 100 KB": {"added_tokens": [{"id": 5, "content": "b" * 100_000, "single_word": False, "lstrip": False,
        "rstrip": False, "normalized": False, "special": False}]},
}  # fmt: skip


def templates() -> list[str]:
    """Chat templates that would run for ever, or write without end."""
    return [
        "{% for i in range(10**9) %}a{% endfor %}",
        "{{ 'a' * 10**10 }}",
        "{{ '%10000000000d' % 1 }}",
        "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{% set ns = namespace(a='a') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ messages | map('tojson') | join('a' * 99999999) }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}" + "{% endfor %}" * 3,
        "{{ 'a'.ljust(10**10) }}",
        "{{ '{:>9999999999}'.format('a') }}",
        "{{ [[]] * 10**9 }}",
        "{{ 'a' | center(10**10) }}",
    ]


def requests(draw: random.Random) -> list[tuple[str, bytes]]:
    """Requests that hold or ask for too much."""
    deep = b"[" * 900_000 + b"]" * 900_000
    text = [b'{"prompt": ' + json.dumps(value).encode() + b"}" for value in (
        "a" * 3_900_000, " " * 3_900_000, "ﷺ" * 600_000, "1" * 3_900_000, "é́" * 400_000, ["a"] * 90_000, [5] * 90_000,
        [[5] * 10] * 9_000, "".join(draw.choices("ab \n\t9é", k=500_000)))]  # fmt: skip
    more = [
        {"stop": ["a" * 10**6]},
        {"logit_bias": {str(i): 1 for i in range(90_000)}},
        {"n": 10**18},
        {"seed": 10**30},
    ]
    more += [{"metadata": {"a": [[]] * 90_000}}, {"max_tokens": 10**18}, {"top_k": 10**18}, {"user": "a" * 3_000_000}]
    bodies = [*text, b'{"prompt": ' + deep + b"}", b'{"a":' * 400_000, b'{"prompt": "' + b"\\u0041" * 600_000 + b'"}']
    bodies += [json.dumps({"prompt": "a", **one}).encode() for one in more]
    bodies += [
        b'{"prompt": 1' + b"0" * 1_000_000 + b"}",
        b'{"prompt": "a", "temperature": 1e999999}',
        b"\0" * 3_000_000,
    ]
    return [("/v1/completions", body) for body in bodies]


def at_a_server(folder: Path) -> Counted:
    """Every bomb with several texts, at the servers of a model and of the page, and in commands.

    A server answers the next request; a command ends within its limits, with its work done or with one line.
    """
    page = list(file_bombs.at_the_page(folder))
    commands = [good for _, good in file_bombs.in_commands(folder)]
    tried = broken = 0
    slowest = 0.0
    for rules, template in cases():
        with serving(write(folder / str(tried), rules, template)) as url:
            for path, body in asked(rules, template):
                began = time.monotonic()
                ask(url, path, body)
                slowest = max(slowest, time.monotonic() - began)
                tried += 1
                if not lives(url):
                    broken += 1
                    print("the server is gone:", json.dumps(rules or template)[:100], body[:100], flush=True)
    said = f"{tried} bombs in tokenizers, templates and requests, the slowest answered within {slowest:.0f} s;"
    said += f" {len(page)} at the page's server; {len(commands)} in commands"
    broken += page.count(False) + commands.count(False)
    return Counted(tried + len(page) + len(commands), broken, said)


def cases() -> Iterator[tuple[dict[str, Any], str]]:
    """The rules of each tokenizer, and each template; the last has neither."""
    yield from ((rules, "") for rules in TOKENIZERS.values())
    yield from (({}, template) for template in templates())
    yield {}, ""


def asked(rules: dict[str, Any], template: str) -> list[tuple[str, bytes]]:
    """The requests at a server with these."""
    if template:
        says = [{"messages": [{"role": "user", "content": text}]} for text in ("a", "a" * 500, "b")]
        return [("/v1/chat/completions", json.dumps(one).encode()) for one in says]
    if not rules:
        return requests(random.Random(0))
    texts = ("aaaa", "a" * 400 + "!", "a" * 20_000 + "c", "x" * 30 + "z")
    return [
        ("/v1/completions", json.dumps({"prompt": text, "max_tokens": 4, "logprobs": 1}).encode()) for text in texts
    ]


def write(folder: Path, rules: dict[str, Any], template: str) -> Path:
    """A model with these rules in its tokenizer.json."""
    writer_model(positions={"kind": "rotary"}).save(folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **rules}), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template or "{{ messages[0].content }}", encoding="utf-8")
    (folder / "MANIFEST.json").unlink(missing_ok=True)
    return folder


@contextmanager
def serving(model: Path) -> Iterator[str]:
    """The address of a server; empty if it refused the model in one line."""
    with served("-m", "clearhead", "serve", model, "--port", 0, "--max-length", 512) as (process, url):
        if not url:
            said = process.communicate()[1].splitlines()
            assert (process.returncode, len(said)) == (2, 1), said
        yield url


def ask(url: str, path: str, body: bytes) -> int:
    """The status of an answer; 0 for none, also of a server that refused its model."""
    return file_bombs.asked(url, path, body) if url else 0


def lives(url: str) -> bool:
    """Whether a server answers an ordinary request, or its tokenizer refuses it; a model that was refused counts."""
    status = ask(url, "/v1/completions", b'{"prompt": [5, 6], "max_tokens": 1}')
    return not url or status in (200, 400)
