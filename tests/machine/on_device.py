"""Everything that runs on a GPU, run on another device than the CPU: `python -m tests.machine.on_device`.

Prints a line of JSON a case: its name, what is wrong with it, if anything, and where Python waited for the device.
`CLEARHEAD_TEST_DEVICE` names a device, such as cuda; by default it is one that tells where it was waited for.
"""

import copy
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clearhead.analysis.ablation import effects, places
from clearhead.analysis.overview import Overview
from clearhead.config import TokenInput, WaveInput
from clearhead.model import Tokens, Transformer
from clearhead.recipe.generation import GenerationConfig
from clearhead.trace import trace, zero
from tests.explorer import traced
from tests.explorer.engine_fixtures import LATENT, MASKED, PICTURES, SOUND, WAVES
from tests.machine import fake_device
from tests.model import small
from tests.training import tiny

DEVICE = os.environ.get("CLEARHEAD_TEST_DEVICE", fake_device.NAME)
Case = Callable[[], object]
SEARCHES = {
    "greedy": GenerationConfig(max_new_tokens=6),
    "beams": GenerationConfig(max_new_tokens=6, beams=3, n_best=2, no_repeat_ngram=2),
    "samples": GenerationConfig(max_new_tokens=6, temperature=0.9, top_p=0.9, n_best=3, seed=5),
}


def alike(here: object, there: object) -> None:
    """Equal up to rounding, wherever the numbers lie."""
    if isinstance(here, Tensor) and isinstance(there, Tensor):
        torch.testing.assert_close(there.cpu().float(), here.float(), rtol=1e-3, atol=1e-4)
    elif isinstance(here, dict) and isinstance(there, dict):
        assert here.keys() == there.keys(), sorted(here.keys() ^ there.keys())[:6]
        for key, value in here.items():
            alike(value, there[key])
    else:
        assert here == there, (here, there)


def inputs_of(network: Transformer) -> tuple[Tokens, ...]:
    torch.manual_seed(1)
    made = []
    for stack in network.config.stacks.values():
        reads = stack.input
        if isinstance(reads, TokenInput):
            made.append(Tokens(torch.randint(3, reads.vocab_size, (2, 5))))
        else:
            made.append(Tokens(torch.randn(2, 40, 1) if isinstance(reads, WaveInput) else torch.randn(2, *reads.shape)))
    return tuple(made)


def values_and_gradients(network: Transformer, device: str) -> dict[str, object]:
    """The logits, every value on the way, one edit, and the gradient of every weight."""
    network = copy.deepcopy(network).to(device)
    given = [x.to(device) for x in inputs_of(network)]
    with trace(network) as seen:
        logits = network(*given)
    first = next(name for name in seen if name.endswith(".attn.out"))
    with torch.no_grad(), trace(network, {first: zero}):
        edited = network(*given)
    logits.float().square().sum().backward()
    return {
        "logits": logits.detach(),
        "edited": edited,
        "values": {str(name): seen[name].detach() for name in seen},
        "gradients": {name: p.grad for name, p in network.named_parameters() if p.grad is not None},
    }


def compared(make: Callable[[str], object]) -> Case:
    return lambda: alike(make("cpu"), make(DEVICE))


def trained(kind: tiny.Kind, device: str, **settings: Any) -> object:
    """The losses of four updates. Later ones differ by more than rounding, because Adam takes the sign of noise."""
    named = "auto" if device == fake_device.NAME else device
    run = tiny.new_run(tiny.task_of(kind), dropout=0.0, device=named, steps=4, **settings)
    assert run.device.type == torch.device(device).type
    losses = [float.fromhex(one) for one in tiny.finish(run).values()]
    return torch.tensor(losses[:2])


def written(name: str, search: str, device: str) -> object:
    model = traced.model_of(traced.CONFIGS[name])
    model.network.to(device)
    texts = ["one two three four", "two"]
    if model.is_encoder_decoder:
        return [[one.tokens for one in found] for found in model.hypotheses(texts, SEARCHES[search])]
    return [found for text in texts for found in model.generate(text, SEARCHES[search])]


def analysed(name: str, device: str) -> object:
    model = traced.model_of(traced.CONFIGS[name])
    model.network.to(device)
    given = model.reader.inputs(*traced.inputs(model.config), model.generation)
    given = tuple(x.to(device) for x in given)
    found = Overview(model.network, given)
    heads = torch.tensor([head.moved for head in found.heads])
    sites = [f"{place.path}.z[h={i}]" for place in places(model.network) if not place.is_ffn for i in range(place.n)]
    return {"heads": heads, "effects": torch.tensor([*effects(model.network, given, sites).values()])}


def networks() -> Iterator[tuple[str, Transformer]]:
    others = {"sound": SOUND, "masked": MASKED, "latent": LATENT}
    for name, config in {**traced.CONFIGS, **WAVES, **PICTURES, **others}.items():
        torch.manual_seed(0)
        yield name, small.shaken(Transformer(config))
    for name, changes in small.PAIRS.items():
        yield f"decoder {name}", small.decoder(**changes)


def mixed() -> None:
    """What the device is for: tensors of two devices do not meet, and a number that is read is waited for."""
    here, there = torch.ones(2), torch.ones(2).to(DEVICE)
    try:
        there + here
    except RuntimeError:
        assert there.sum().item() == 2
    else:
        raise AssertionError("tensors of two devices were added")


def cases() -> Iterator[tuple[str, Case]]:
    yield "two devices", mixed
    for name, network in networks():
        yield f"network {name}", compared(partial(values_and_gradients, network))
    for kind in ("translation", "lm"):
        for optimizer, config in tiny.OPTIMIZERS.items():
            yield f"train {kind} {optimizer}", compared(partial(trained, kind, optimizer=config.model_dump()))
    yield "train lm accumulate", compared(partial(trained, "lm", accumulate=2))
    yield "train lm ema", compared(partial(trained, "lm", ema=0.9))
    for name in ("encoder_decoder_post", "decoder_rotary_grouped", "decoder_alibi_capped"):
        for search in SEARCHES:
            yield f"write {name} {search}", compared(partial(written, name, search))
    for name in ("encoder_decoder_post", "decoder_pre_learned", "encoder_classifier", "vision"):
        yield f"analyse {name}", compared(partial(analysed, name))


def main() -> None:
    if DEVICE == fake_device.NAME:
        fake_device.install()
    for name, case in cases():
        wrong = ""
        with fake_device.counting() as waits:
            try:
                case()
            except Exception as error:
                ours = [x for x in traceback.extract_tb(error.__traceback__) if "/clearhead/" in x.filename]
                at = f" ({ours[-1].filename.rpartition('/clearhead/')[2]}:{ours[-1].lineno})" if ours else ""
                wrong = f"{type(error).__name__}: {str(error)[:300]}{at}"
        print(json.dumps({"name": name, "wrong": wrong, "waits": waits}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
