"""Runs of PyTorch that the JavaScript engine has to reproduce: `python -m tests.explorer.engine_fixtures FOLDER`.

A run is NAME.json (plan, tokens, edits, axes) and NAME.safetensors (`weights/…`, `values/…`, `other/…` for patches).
"""

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor

from clearhead import config as c
from clearhead.api.sentences import Sentences
from clearhead.explorer.answering.edits import functions, resolve
from clearhead.explorer.answering.questions import EditRequest, RunRequest
from clearhead.explorer.answering.values import vector_ops
from clearhead.model import Tokens, Transformer
from clearhead.model.attention_bias import bucket
from clearhead.model.feedforward import ACTIVATIONS
from clearhead.model.linear import parameter
from clearhead.model.meta import masks_of, ops_of
from clearhead.model.ops import Op
from clearhead.trace import Trace, trace
from tests.explorer import exercise_fixtures, export_fixtures
from tests.explorer.traced import CONFIGS
from tests.explorer.traced import stack as small

RANDOM, MANY = 8, 60
"""Models whose every choice is random, in every run of the suite and in the slow one."""
NAMES = ("relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "squared_relu")
"""Activations of a config."""
VOCABULARY = 23
CLOSABLE = (".scores", ".masked")

Json = dict[str, Any]

SOUND = c.ModelConfig(
    encoder=small(
        input=c.FrameInput(n_frames=10, n_bins=3), positions=c.Learned(max_length=5), key_bias=False, activation="gelu"
    ),
    decoder=small(positions=c.Learned(max_length=12)),
)
"""Two convolutions over frames. Pages do not open such models, but the engine computes them."""
_STEM = tuple(c.Convolution(width=w, step=s, channels=n) for w, s, n in ((3, 2, 4), (2, 1, 6)))
_FIRST = c.WaveInput(convolutions=_STEM, position_width=4, position_groups=2, norm=True)
_ALL = _FIRST.model_copy(update={"conv_norm": "all", "conv_bias": True, "position_width": 3, "norm": False})
WAVES = {
    name: c.ModelConfig(
        encoder=small(input=reads, positions=c.NoPositions(), norm_place="post" if reads.norm else "pre"),
        head=c.TaggingHead(n_labels=5, blank=0),
    )
    for name, reads in (("waves", _FIRST), ("waves_every_norm", _ALL))
}
"""Convolutions over samples, and of the moments around."""
MASKED = c.ModelConfig(
    encoder=small(
        input=c.TokenInput(vocab_size=6, mask_id=2), positions=c.Rotary(frequencies=(1.0, 0.3)), activation="gelu"
    ),
    head=c.LanguageHead(tied=True, transform=True),
)
"""Masks that are left out, and angles as they are stored."""
_LATENT = {"d_head": 6, "positions": c.Rotary(fraction=0.67), "latent": c.Latent(rank=5, d_shared=4, d_value=7)}
_FROM_LATENT = _LATENT["latent"].model_copy(update={"query_rank": 3, "bias": True, "d_value": 2})
LATENT = c.ModelConfig(encoder=small(**_LATENT), decoder=small(**_LATENT | {"latent": _FROM_LATENT}))
"""Keys that have a part in common."""
_HEADS: dict[str, Any] = {"n_heads": 4, "d_head": 3, "d_state": 5, "n_groups": 2}
MIXED = {
    "mixed": c.ModelConfig(decoder=small(n_layers=2, mixer=c.ShortConvolution(width=3, bias=True, layers=(1,)))),
    "delta": c.ModelConfig(decoder=small(n_layers=2, mixer=c.GatedDelta(n_heads=4, n_key_heads=2, d_key=6, d_value=5))),
    "state_space": c.ModelConfig(decoder=small(n_layers=2, mixer=c.StateSpace(**_HEADS, layers=(1,)))),
    "state_space_beside": c.ModelConfig(
        decoder=small(mixer=c.StateSpace(**_HEADS, most_step=0.5, norm="before_gate", beside=True))
    ),
    "scan": c.ModelConfig(
        decoder=small(n_layers=2, mixer=c.SelectiveScan(d_inner=6, d_state=3, rank=2, norms="weight", layers=(0,)))
    ),
    "time_mixing": c.ModelConfig(
        decoder=small(n_layers=2, mixer=c.TimeMixing(d_inner=6, layers=(0,)), activation="squared_relu")
    ),
}
"""A state in place of attention."""


def _pictures(**fields: Any) -> c.StackConfig:
    first = {"image_size": 6, "patch_size": 2, "n_channels": 2, "n_registers": 2}
    reads = c.PatchInput.model_validate(first | fields.pop("input", {}))
    sizes = {"d_model": 8, "n_layers": 1, "n_heads": 2, "d_ff": 5}
    return c.StackConfig.model_validate({"input": reads, **sizes, **fields})


_DISTILLED = c.ClassificationHead(n_labels=3, distilled=True)
_BOTH = c.ClassificationHead(n_labels=3, pool="first_and_mean", patches_only=True)
PICTURES: dict[str, c.ModelConfig] = {
    "picture_distilled": c.ModelConfig(encoder=_pictures(positions=c.Learned(max_length=12)), head=_DISTILLED),
    "picture_finer": c.ModelConfig(encoder=_pictures(positions=c.LearnedGrid(side=2), layer_scale=1.0), head=_BOTH),
    "picture_coarser": c.ModelConfig(
        encoder=_pictures(positions=c.LearnedGrid(side=7, first=3, antialias=True), layer_scale=1.0), head=_BOTH
    ),
    "picture_turned": c.ModelConfig(
        encoder=_pictures(positions=c.RotaryGrid(), input={"class_token": False, "norm": True}, key_bias=False),
        head=c.VectorHead(norm=True, width=5),
    ),
    "picture_read": c.ModelConfig(
        encoder=_pictures(positions=c.LearnedGrid(side=5, first=0), input={"bias": False}, activation="xielu"),
        head=c.VectorHead(pool="attention"),
    ),
}

_BOTH_POST = {"norm_place": "post", "activation": "gelu"}
_LLAMA = {
    "norm": "rms", "bias": False, "gated": True, "activation": "silu", "n_heads": 4, "n_kv_heads": 2,
    "positions": c.Rotary(), "qk_norm": True,
}  # fmt: skip
TRAINED = {
    "trained_both_pre": c.ModelConfig(encoder=small(), decoder=small(), share_embeddings=True),
    "trained_both_post": c.ModelConfig(encoder=small(**_BOTH_POST), decoder=small(**_BOTH_POST)),
    "trained_decoder_learned": c.ModelConfig(
        decoder=small(positions=c.Learned(max_length=9), activation="gelu_tanh", window=3),
        head=c.LanguageHead(tied=False, bias=True, soft_cap=2.0),
    ),
    "trained_decoder_rotary": c.ModelConfig(decoder=small(**_LLAMA), head=c.LanguageHead(scale=0.5)),
    "trained_tagger_sandwich": c.ModelConfig(
        encoder=small(norm_place="sandwich", activation="quick_gelu"), head=c.TaggingHead(n_labels=VOCABULARY)
    ),
}
"""Networks whose gradients the page's own must equal."""

_WIDE = c.StackConfig(input=c.TokenInput(vocab_size=4000), d_model=128, n_layers=4, n_heads=4, d_ff=512)
SPEED = c.ModelConfig(encoder=_WIDE, decoder=_WIDE, share_embeddings=True)
"""As large as the demo's model may be, to see how long a run takes."""


@dataclass(frozen=True)
class Run:
    """A network and what it reads."""

    network: Transformer
    inputs: list[Tokens]

    @cached_property
    def plain(self) -> Trace:
        return self.trace()

    def trace(self, edits: Mapping[str, Callable[[Tensor], Tensor]] | None = None) -> Trace:
        decoder = self.network.config.decoder
        large = decoder is not None and isinstance(decoder.mixer, c.SelectiveScan | c.TimeMixing)
        with torch.no_grad(), trace(self.network, edits, large=large, without=("state",)) as seen:
            self.network(*self.inputs)
        return seen


def write(folder: Path, *, n_random: int = RANDOM) -> None:
    """All fixtures, and `index.json` with their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names: list[str] = []
    others = {**MIXED, "sound": SOUND, "masked": MASKED, **WAVES, **PICTURES, "latent": LATENT}
    for number, (name, config) in enumerate([*CONFIGS.items(), *random_configs(n_random), *others.items()]):
        r, least = random.Random(number), 4 if name in CONFIGS else 1
        lengths = r.randint(least, 9), r.randint(least, 9)
        run, other = (made(config, number, text, lengths) for text in (0, 1))
        cases = {} if name.startswith("random") else {name: list[Json]()}
        cases[f"{name}_edited"] = random_edits(r, run, other)
        for case, edits in cases.items():
            write_run(folder / case, run, edits, other=other)
            names.append(case)
    write_run(folder / "speed", made(SPEED, 0, 0, (12, 14)), [], only="head.logits")
    write_functions(folder)
    (folder / "trained.json").write_text(json.dumps([write_batch(folder, *case) for case in TRAINED.items()]))
    export_fixtures.write(folder)
    exercise_fixtures.write(folder)
    (folder / "index.json").write_text(json.dumps(names), encoding="utf-8")


# --- models -----------------------------------------------------------------------------------------------------


def random_configs(n: int) -> Iterator[tuple[str, c.ModelConfig]]:
    """Valid ones, with every field that changes arithmetic."""
    r, found = random.Random(0), 0
    while found < n:
        try:
            config = random_config(r)
        except ValidationError:
            continue  # A combination that the config refuses.
        yield f"random_{found:03}", config
        found += 1


def random_config(r: random.Random) -> c.ModelConfig:
    width, kinds = r.choice((8, 12, 16, 24)), r.choice(("encoder", "decoder", "both", "both", "image"))
    encoder = None if kinds == "decoder" else random_stack(r, width, image=kinds == "image")
    decoder = None if kinds in ("encoder", "image") else random_stack(r, width)
    transform = r.random() < 0.3
    heads: list[c.Head] = [
        c.ClassificationHead(
            n_labels=3, pool=r.choice(("first", "last", "mean")), pooler=r.random() < 0.4, transform=transform
        )
        if not transform
        else c.ClassificationHead(n_labels=2, transform=True, transform_bias=r.random() < 0.5, bias=False),
        c.TaggingHead(n_labels=4, transform=transform),
        c.SpanHead(bias=r.random() < 0.5),
    ]
    if kinds != "image":
        cap, factor = r.choice((None, 3.0)), r.choice((None, 0.4))
        heads += [
            c.LanguageHead(tied=tied, bias=r.random() < 0.5, transform=transform, scale=factor, soft_cap=cap)
            for tied in (True, False, True, False)
        ]
    return c.ModelConfig(encoder=encoder, decoder=decoder, head=r.choice(heads))


def random_stack(r: random.Random, width: int, *, image: bool = False) -> c.StackConfig:
    heads = r.choice((1, 2, 3, 4))
    reads: c.StackInput = c.TokenInput(
        vocab_size=VOCABULARY, scale=r.random() < 0.3, n_types=r.choice((0, 0, 2)), norm=r.random() < 0.3
    )
    if image:
        reads = c.PatchInput(image_size=6, patch_size=r.choice((2, 3)), n_channels=2, class_token=r.random() < 0.7)
    window = r.choice((None, None, 1, 3))
    fields: Json = {
        "input": reads, "d_model": width, "n_layers": r.choice((1, 2, 3)), "n_heads": heads, "d_ff": r.choice((5, 16)),
        "n_kv_heads": r.choice((None, 1, 2)), "d_head": r.choice((None, 4, 6)), "positions": random_positions(r),
        "window": window, "window_layers": (0,) if window and r.random() < 0.5 else None,
        "attn_scale": r.choice((None, None, 0.3)), "soft_cap": r.choice((None, None, 2.0)),
        "qk_norm": r.random() < 0.3, "norm": r.choice(("layer", "rms")), "norm_eps": r.choice((1e-5, 1e-3)),
        "norm_place": r.choice(("pre", "post", "sandwich")), "first_norm": r.random() < 0.8,
        "final_norm": r.choice((None, None, True, False)), "gated": r.random() < 0.4,
        "activation": r.choice(NAMES), "bias": r.random() < 0.6,
        **{f"{part}_bias": r.choice((None, None, True, False)) for part in ("qkv", "out", "ffn")},
    }  # fmt: skip
    # Two components that happen to be alike have next to no variance: dividing by it shows how float32 rounds.
    fields["qk_norm"] &= (fields["d_head"] or width // heads) >= 4
    fields["sinks"], fields["experts"] = r.random() < 0.3, random_experts(r, fields["n_layers"])
    fields["attn_gate"] = r.random() < 0.3
    fields["clamp"] = c.Clamp(alpha=1.3, limit=0.2) if fields["gated"] and r.random() < 0.4 else None
    if fields["window_layers"] and r.random() < 0.5:
        fields["window_positions"] = c.Rotary(base=50.0)
    return c.StackConfig.model_validate(fields)


def random_experts(r: random.Random, n_layers: int) -> c.Experts | None:
    if r.random() < 0.5:
        return None
    groups, shared = r.random() < 0.4, r.choice((None, 3))
    return c.Experts(
        n=r.choice((4, 8)), n_chosen=2, d_ff=r.choice((None, 4)), scores=r.choice(("softmax", "sigmoid")),
        normalised=r.random() < 0.5, scale=r.choice((None, 1.5)), router_bias=r.random() < 0.4,
        correction=r.random() < 0.4, n_groups=2 if groups else None, n_groups_chosen=1 if groups else None,
        group_best=r.choice((1, 2)) if groups else 1, shared=shared,
        shared_gate=shared is not None and r.random() < 0.5,        layers=r.choice((None, (n_layers - 1,))),
    )  # fmt: skip


def random_positions(r: random.Random) -> c.Positions:
    scaling = r.choice(
        (
            None,
            c.LinearScaling(factor=2.0),
            c.WavelengthScaling(factor=4.0, original_length=8),
            c.YarnScaling(factor=4.0, original_length=8),
        )
    )
    choices: tuple[c.Positions, ...] = (
        c.Sinusoidal(layout=r.choice(("interleaved", "concatenated")), base=r.choice((10_000.0, 100.0))),
        c.Learned(max_length=16, offset=r.choice((0, 2))),
        c.Rotary(base=r.choice((10_000.0, 50.0)), fraction=r.choice((1.0, 0.5)), scaling=scaling),
        c.RelativeBias(n_buckets=r.choice((4, 8)), max_distance=r.choice((6, 16))),
        c.ALiBi(),
        c.NoPositions(),
    )
    return r.choice(choices)


def made(config: c.ModelConfig, seed: int, text: int, lengths: tuple[int, int]) -> Run:
    """Random weights, norms and biases too; a text of so many tokens for each stack."""
    torch.manual_seed(seed)
    network = Transformer(config).eval()
    for one in network.parameters():
        torch.nn.init.normal_(one, std=2 * config.output.d_model**-0.5)
    torch.manual_seed(1000 * text + seed)
    inputs: list[Tokens] = []
    stacks = [stack for stack in (config.encoder, config.decoder) if stack]
    for stack, length in zip(stacks, lengths, strict=False):
        reads = stack.input
        if isinstance(reads, c.Continuous):
            inputs.append(Tokens(torch.rand(1, *reads.shape_of(length if not reads.is_fixed else reads.length))))
        else:
            types = torch.randint(reads.n_types, (1, length)) if reads.n_types else None
            inputs.append(Tokens(torch.randint(reads.vocab_size, (1, length)), types=types))
    return Run(network, inputs)


# --- edits ------------------------------------------------------------------------------------------------------


def random_edits(r: random.Random, run: Run, other: Run) -> list[Json]:
    """One to four that leave all numbers finite, each at a random part of a random value."""
    seen = run.plain
    paths = [path for path in seen for _ in range(4 if path.endswith(CLOSABLE) else 1)]
    for _ in range(100):
        edits = [random_edit(r, r.choice(paths), seen) for _ in range(r.randint(1, 4))]
        values = values_of(run, edits, other).values()
        if all(bool((value < float("inf")).all()) for value in values):  # Not so of NaN.
            return edits
    raise AssertionError("no edit leaves the numbers finite")


def random_edit(r: random.Random, path: str, seen: Trace) -> Json:
    axes, shape = seen.axes[path].split()[1:], seen[path].shape[1:]
    closes = path.endswith(CLOSABLE) and r.random() < 0.7
    often = 0.9 if closes else 0.4  # Closing much leaves a row with nothing open, which no softmax can share out.
    index = [(a, r.randrange(-n, n)) for a, n in zip(axes, shape, strict=True) if r.random() < often]
    rest = [a for a in axes if a not in dict(index)]
    kinds = ["zero", "set", "scale", "patch"]
    kinds += ["mean"] * 2 if {"t", "s"} & set(rest) else []
    at = path + ("[" + ",".join(f"{a}={i}" for a, i in index) + "]" if index else "")
    match "close" if closes else r.choice(kinds):
        case "set" if rest and r.random() < 0.5:
            length = shape[axes.index(rest[-1])]
            return {"at": at, "do": "set", "value": [round(r.uniform(-2, 2), 3) for _ in range(length)]}
        case "set" | "scale" as do:
            return {"at": at, "do": do, "value": round(r.uniform(-1.5, 2), 3)}
        case "patch":
            return {"at": at, "do": "patch", "from": {"text": "another"}}
        case do:
            return {"at": at, "do": do}


def values_of(run: Run, edits: list[Json], other: Run) -> dict[str, Tensor]:
    """Every tapped value, without the batch."""
    there = other.plain

    def look(_: RunRequest, address: str, /) -> Tensor:
        return there[address.replace("[", "[b=0,") if "[" in address else f"{address}[b=0]"]

    known = run.plain.axes
    seen = run.trace(functions(resolve([EditRequest.model_validate(edit) for edit in edits], known), look))
    return {path: seen[path][0] for path in seen}


def plan_json(config: c.ModelConfig, ops: Sequence[Op]) -> Json:
    return {
        "config": config.model_dump(mode="json"),
        "ops": [op.model_dump(mode="json", exclude_defaults=True) for op in ops],
        "masks": {name: mask.model_dump(mode="json") for name, mask in masks_of(config).items()},
    }


# --- files ------------------------------------------------------------------------------------------------------


def write_run(file: Path, run: Run, edits: list[Json], *, other: Run | None = None, only: str = "") -> None:
    """`only`: the start of the addresses whose values are written."""
    other = other or run
    config, values = run.network.config, values_of(run, edits, other)
    ops, there = [*ops_of(config), *vector_ops(config, Sentences())], other.plain
    tensors = {f"values/{path}": value for path, value in values.items() if path.startswith(only)}
    names = {name for op in ops for name in op.weights}
    tensors |= {f"weights/{name}": parameter(run.network, name).detach() for name in names}
    patched = {str(edit["at"]).split("[")[0] for edit in edits if edit["do"] == "patch"}
    tensors |= {f"other/{path}": there[path][0] for path in patched}
    tokens: Json = {}
    for name, read in zip([n for n in ("encoder", "decoder") if getattr(config, n)], run.inputs, strict=True):
        if read.ids.is_floating_point():
            tensors["pixels"], tokens[name] = read.ids[0], []
            continue
        types = torch.zeros_like(read.ids) if read.types is None else read.types
        pairs = zip(read.ids[0].tolist(), types[0].tolist(), strict=True)
        tokens[name] = [{"id": i, "type": kind} for i, kind in pairs]
    plan = plan_json(config, ops)
    axes = {path: text.removeprefix("b ") for path, text in run.plain.axes.items()}
    document = {"plan": plan, "tokens": tokens, "edits": edits, "axes": axes}
    file.with_suffix(".json").write_text(json.dumps(document), encoding="utf-8")
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, file.with_suffix(".safetensors"))


def write_batch(folder: Path, name: str, config: c.ModelConfig) -> str:
    """Three sentences of other lengths, what each place should say, and PyTorch's gradients of the mean loss."""
    network = made(config, 0, 0, (1, 1)).network.double()
    inputs, ids = list[Tokens](), dict[str, list[list[int]]]()
    for stack, lengths in zip(config.stacks, ((5, 2, 4), (3, 6, 1)), strict=False):
        ids[stack] = [torch.randint(3, VOCABULARY, (n,)).tolist() for n in lengths]
        valid = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        rows = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids[stack]], batch_first=True)
        inputs.append(Tokens(rows, valid=valid))
    wanted = torch.randint(3, VOCABULARY, valid.shape).masked_fill(~valid, -100)
    wanted[0, 0] = -100
    loss = torch.nn.functional.cross_entropy(network(*inputs).flatten(0, 1), wanted.flatten(), ignore_index=-100)
    loss.backward()
    tensors: dict[str, Tensor] = {"loss": loss.detach().float()[None]}
    first, same = dict[int, str](), dict[str, str]()
    for one in sorted({name for op in ops_of(config) for name in op.weights}):
        weight = parameter(network, one)
        same[one] = first.setdefault(id(weight), one)
        assert weight.grad is not None
        tensors |= {f"weights/{one}": weight.detach().float(), f"gradients/{one}": weight.grad.float()}
    document = {
        "same": same,
        "plan": plan_json(config, ops_of(config)),
        "ids": ids,
        "labels": wanted.clamp(min=-1).tolist(),
    }
    (folder / f"{name}.json").write_text(json.dumps(document))
    save_file({key: value.clone().contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors")
    return name


def write_functions(folder: Path) -> None:
    """Every half; activations over a range; buckets of relative distances."""
    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    halves, brains, x = bits.view(torch.float16), bits.clone().view(torch.bfloat16), torch.linspace(-12, 12, 4001)
    tensors = {"halves": halves, "halves.float": halves.float(), "brains": brains}
    tensors |= {"brains.float": brains.float(), "bytes": torch.arange(7, dtype=torch.uint8)}
    tensors |= {"whole": torch.tensor([-(2**31), 0, 2**31 - 1]), "x": x, "activation/tanh": x.tanh()}
    tensors["activation/sigmoid"] = x.sigmoid()
    tensors |= {f"activation/{name}": function(x) for name, function in ACTIVATIONS.items()}
    distances = torch.arange(-700, 701)
    for buckets, far in ((4, 6), (8, 16), (32, 128), (32, 100), (64, 513), (16, 4096)):
        for causal in (False, True):
            name = f"buckets/{buckets}/{far}/{'past' if causal else 'both'}"
            tensors[name] = bucket(distances, buckets, far, causal=causal).to(torch.int32)
    save_file(tensors, folder / "functions.safetensors")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
