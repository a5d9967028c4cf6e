"""Steered requests beside plain ones in one batch: each row has its own edit, and the plain ones keep their bits."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from torch import Tensor

from clearhead.analysis.steering import Direction
from clearhead.api import Model
from clearhead.api.steering import save_direction
from clearhead.cli.look.steering import named_directions
from clearhead.errors import UserError
from clearhead.serve.engine import Engine
from clearhead.serve.service import Service
from clearhead.serve.texts import Prompt, Steering
from clearhead.trace import edited
from tests.serve.tiny import NAME, answers, ask, client_of, endless_model, engine_of, writer_model, written

D = 16
PLACES = ["decoder.blocks.0.resid_post", "decoder.blocks.0.ffn_norm.out", "decoder.blocks.0.attn.out"]


def directions() -> list[Direction]:
    draw = torch.Generator().manual_seed(2)
    return [Direction(at, 3 * torch.randn(D, generator=draw)) for at in PLACES]


def steering(i: int) -> tuple[Steering, ...]:
    """Of every second text: one direction or two, each text with another strength."""
    if i % 2 == 0:
        return ()
    one, two, three = directions()
    return ((Steering(one, 1.0 + i),), (Steering(two, -2.0), Steering(three, 1.0)))[i // 2 % 2]


def prompts_of(model: Model, *, steered: bool, lengths: Callable[[int], int]) -> list[Prompt]:
    found: list[Prompt] = []
    for i in range(8):
        ids = [5 + (i + j) % 80 for j in range(lengths(i))]
        own = steering(i) if steered else ()
        found.append(ask(model, ids, limit=16, number=i, n=2 if i == 3 else 1, temperature=1.0, seed=4, steering=own))
    return found


@pytest.mark.parametrize("lengths", [lambda i: 6, lambda i: 3 + i], ids=["padded", "packed"])
def test_plain_rows_keep_their_bits_beside_steered_ones(lengths: Callable[[int], int]):
    """In float32, all texts 16 tokens long, so that both batches have the same shapes throughout."""
    model = endless_model()
    model.network.float()
    seen: dict[bool, list[Tensor]] = {}

    def logits_of(engine: Engine) -> list[Tensor]:
        found, write = list[Tensor](), engine.write

        def watched(logits: Tensor, *, first: int = 0) -> None:
            found.append(logits.clone())
            write(logits, first=first)

        engine.write = watched  # type: ignore[method-assign]
        return found

    texts: dict[bool, list[list[int]]] = {}
    for steered in (False, True):
        with engine_of(model, slots=16) as engine:
            seen[steered] = logits_of(engine)
            (found,) = answers(engine, [prompts_of(model, steered=steered, lengths=lengths)])
            texts[steered] = [written(found[i]) for i in sorted(found)]
    rows = [i for i in range(8) for _ in range(1 + (i == 3))]
    plain, other = [i for i, row in enumerate(rows) if row % 2 == 0], [i for i, row in enumerate(rows) if row % 2]
    assert [len(step) for step in seen[False]] == [len(step) for step in seen[True]] == [9] * 16
    for before, after in zip(seen[False], seen[True], strict=True):
        assert torch.equal(before[plain], after[plain])
    assert not any(torch.equal(seen[False][0][i], seen[True][0][i]) for i in other)
    assert texts[False] != texts[True]


def test_a_steered_text_is_as_alone():
    model = writer_model()
    (one, *_), ids = directions(), [9, 8, 7, 6]
    with edited(model.network, one.edit(2.0)):
        expected = model.generate(model.tokenizer.decode(ids), temperature=0.0, max_new_tokens=12)
    prompts = [ask(model, ids, temperature=0.0), ask(model, ids, temperature=0.0, steering=(Steering(one, 2.0),))]
    with engine_of(model) as engine:
        found = answers(engine, [[prompt] for prompt in prompts])
    texts = [model.tokenizer.decode([*ids, *written(one[0])])[len(model.tokenizer.decode(ids)) :] for one in found]
    assert texts[1] == expected != texts[0]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(writer_model(), edits={"kind": directions()[0]}) as client:
        yield client


def asked(client: TestClient, **body: Any) -> Any:
    return client.post("/v1/completions", json={"prompt": "one", "temperature": 0, "max_tokens": 12, **body})


def test_a_request_names_an_edit(client: TestClient):
    def text(**body: Any) -> str:
        response = asked(client, **body)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    plain = text()
    assert text(edit={"name": "kind", "strength": 5}) != plain
    assert text(edit={"name": "kind", "strength": 0}) == plain
    assert text(edit=[{"name": "kind", "strength": 2}, {"name": "kind", "strength": 3}]) == text(
        edit={"name": "kind", "strength": 5}
    )


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"name": "cruel"}, "edit: expected a name that this server has, kind, got cruel"),
        ({"strength": 2}, 'edit: expected {"name": NAME, "strength": NUMBER}'),
        ({"name": "kind", "strength": "2"}, 'edit: expected {"name": NAME, "strength": NUMBER}'),
        ({"name": "kind", "at": "x"}, 'edit: expected {"name": NAME, "strength": NUMBER}'),
        ([{"name": "kind"}] * 17, "or a list of up to 16"),
        (3, 'edit: expected {"name": NAME, "strength": NUMBER}'),
    ],
)
def test_a_wrong_edit(client: TestClient, edit: Any, message: str):
    response = asked(client, edit=edit)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Direction("decoder.blocks.7.resid_post", torch.ones(D)), "--edit kind: .* no value has this address"),
        (Direction("head.logits", torch.ones(D)), "--edit kind: .* no value has this address"),
        (Direction(PLACES[0], torch.ones(D + 1)), "--edit kind: expected a direction that fits"),
    ],
)
def test_a_direction_that_does_not_fit_is_refused_at_the_start(found: Direction, message: str):
    with pytest.raises(UserError, match=message):
        Service(writer_model(), NAME, slots=4, max_length=64, edits={"kind": found})


def test_names_of_files(tmp_path):
    for name in ("a", "b"):
        save_direction(directions()[0], tmp_path / f"{name}.safetensors")
    found = named_directions([f"{tmp_path}/a.safetensors", f"other={tmp_path}/b.safetensors"])
    assert [*found] == ["a", "other"]
    with pytest.raises(UserError, match="expected another name than a"):
        named_directions([f"{tmp_path}/a.safetensors", f"a={tmp_path}/b.safetensors"])
