"""The rotary angles of GGUF files, and the other values that the architectures keep in ways of their own.

Each `read` takes values out of a file's metadata and returns fields of the family's config; each `write` is its
inverse. Sources: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and the models' own papers for the angles.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isclose, log, pi
from typing import Any, TypeAlias

from clearhead.checkpoints.weights.documents import AGAIN, short
from clearhead.errors import UserError

Said: TypeAlias = dict[str, Any]
Fields: TypeAlias = Mapping[str, Any]
Vectors: TypeAlias = dict[str, list[float]]

FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
SCALING = "rope.scaling."
THETA = 10_000.0
LOCAL_THETA = 10_000.0
"""The base of layers with a window, which files do not state."""
BETAS = {f"{SCALING}yarn_beta_fast": "beta_fast", f"{SCALING}yarn_beta_slow": "beta_slow"}
CLOSE = 2e-6
"""The largest relative difference of divisors that float32 explains."""


@dataclass(frozen=True)
class Content:
    """The header of a file, read or to be written."""

    where: str
    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    vector: Callable[[str], list[float] | None]
    """The numbers of a small tensor; None if there is none."""


# --- heads that are rotated whole ------------------------------------------------------------------------------------


def read(said: Said, document: Fields, content: Content) -> Fields:
    """The width of the heads, and the angles."""
    found = _heads(said, document, content)
    n = said.pop("rope.dimension_count", found["head_dim"])
    if n != found["head_dim"]:
        raise UserError(f"{content.where}:rope.dimension_count: expected {found['head_dim']}, got {n}; {AGAIN}")
    return found | {"rope_parameters": _parameters(said, {**document, **found}, content)}


def write(document: Fields) -> tuple[Said, Vectors]:
    """The inverse of `read`."""
    values, vectors = _values(document["rope_parameters"], document)
    return values | {
        "rope.dimension_count": document["head_dim"],
        "attention.value_length": document["head_dim"],
    }, vectors


def read_with_biases(said: Said, document: Fields, content: Content) -> Fields:
    """`read`, and the biases, which only the tensors tell."""
    biases = {"attention_bias": "attn_q", "mlp_bias": "ffn_up"}
    there = {name: f"blk.0.{tensor}.bias" in content.shapes for name, tensor in biases.items()}
    return {**read(said, document, content), **there}


def _heads(said: Said, document: Fields, content: Content) -> dict[str, Any]:
    heads, hidden = document["num_attention_heads"], document["hidden_size"]
    if not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1:
        raise UserError(f"{content.where}:attention.head_count: expected a count, got {short(heads)}; {AGAIN}")
    width = document.get("head_dim", hidden // heads)
    if said.get("attention.value_length", width) != width:
        got = said["attention.value_length"]
        raise UserError(f"{content.where}:attention.value_length: expected {width}, as keys have, got {got}; {AGAIN}")
    return {"head_dim": width, "num_key_value_heads": document.get("num_key_value_heads", heads)}


def _parameters(said: Said, document: Fields, content: Content) -> dict[str, Any]:
    """`rope_parameters` of the family's config."""
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": float(said.pop("rope.freq_base", THETA))}
    older = said.pop("rope.scale_linear", None)
    factor = said.pop(f"{SCALING}factor", older)
    kind = said.pop(f"{SCALING}type", "linear" if factor else "none")
    original = said.pop(f"{SCALING}original_context_length", None)
    attention = said.pop(f"{SCALING}attn_factor", 1.0)
    betas = {name: said.pop(key) for key, name in BETAS.items() if key in said}
    divisors = content.vector(FREQS)
    if divisors is not None:
        lengths = [8192, *([original] if original else [])]
        return found | _by_wavelength(divisors, found["rope_theta"], lengths, content.where)
    if kind == "none" or not factor or (kind == "linear" and factor == 1.0):
        return found
    if kind == "linear":
        return found | {"rope_type": "linear", "factor": float(factor)}
    if kind != "yarn":
        raise UserError(
            f"{content.where}:{SCALING}type: expected none, linear or yarn, got {short(kind)}; try another model"
        )
    given = {"attention_factor": attention * (0.1 * log(factor) + 1.0)} if attention != 1.0 else {}
    length = original or document["max_position_embeddings"]
    return found | {
        "rope_type": "yarn", "factor": float(factor), "original_max_position_embeddings": length, **betas, **given
    }  # fmt: skip


def _values(parameters: Fields, document: Fields) -> tuple[Said, Vectors]:
    """The inverse of `_parameters`."""
    said: Said = {"rope.freq_base": float(parameters["rope_theta"])}
    kind = parameters.get("rope_type", "default")
    if kind not in ("llama3", "linear", "yarn"):
        return said, {}
    factor, original = float(parameters["factor"]), parameters.get("original_max_position_embeddings", 0)
    if kind == "llama3":
        known = (factor, parameters["low_freq_factor"], parameters["high_freq_factor"], original)
        divisors = wavelength_divisors(document["head_dim"], parameters["rope_theta"], *known)
        return said | {f"{SCALING}original_context_length": original}, {FREQS: divisors}
    said |= {f"{SCALING}type": kind, f"{SCALING}factor": factor}
    if kind == "yarn":
        said[f"{SCALING}original_context_length"] = original
        said |= {key: parameters[name] for key, name in BETAS.items() if name in parameters}
        if "attention_factor" in parameters:
            said[f"{SCALING}attn_factor"] = parameters["attention_factor"] / (0.1 * log(factor) + 1.0)
    return said, {}


# --- divisors by wavelength ------------------------------------------------------------------------------------------


def wavelength_divisors(
    width: int, theta: float, factor: float, low: float, high: float, original: float
) -> list[float]:
    """1 for wavelengths below original / high, `factor` for those above original / low, a blend between them."""
    waves = [2 * pi * theta ** (2 * i / width) for i in range(width // 2)]
    shares = [min(max((original / wave - low) / (high - low), 0.0), 1.0) for wave in waves]
    return [1 / ((1 - share) / factor + share) for share in shares]


def _by_wavelength(divisors: Sequence[float], theta: float, lengths: Sequence[int], where: str) -> dict[str, Any]:
    """The scaling that gives these divisors. Only original / low and original / high matter, so that low is 1."""
    if all(isclose(one, 1.0, rel_tol=CLOSE) for one in divisors):
        return {}
    factor = float(f"{max(divisors):.6g}")
    candidates = [(4.0, float(length)) for length in lengths] + [*_solved(divisors, theta, factor)]
    for high, original in candidates:
        made = wavelength_divisors(2 * len(divisors), theta, factor, 1.0, high, original)
        if all(isclose(one, other, rel_tol=CLOSE) for one, other in zip(made, divisors, strict=True)):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": 1.0,
                "high_freq_factor": high,
                "original_max_position_embeddings": round(original),
            }
    raise UserError(f"{where}:{FREQS}: expected divisors that a wavelength decides, got others; try another model")


def _solved(divisors: Sequence[float], theta: float, factor: float) -> list[tuple[float, float]]:
    """(high, original) from two divisors between 1 and `factor`: there 1 / divisor is linear in 1 / wavelength."""
    n = len(divisors)
    points = [(theta ** (-i / n) / (2 * pi), 1 / one) for i, one in enumerate(divisors) if 1.001 < one < 0.999 * factor]
    found: list[tuple[float, float]] = []
    for (x, y), (u, v) in pairwise(points):
        slope = (y - v) / (x - u)
        above = (1 - 1 / factor) / max(1 / factor - (y - slope * x), 1e-9)
        original = round(slope * above / (1 - 1 / factor))
        found.append((float(f"{1 + above:.4g}"), float(original)))
    return found


# --- scores with a scale of their own, and layers of two kinds -------------------------------------------------------


def read_scaled(*, wide_blocks: int) -> Callable[[Said, Fields, Content], Fields]:
    """`read`, with scores divided by the root of a head's width.

    The largest model, with `wide_blocks` layers, has hidden_size / num_attention_heads in its place.
    """

    def fields(said: Said, document: Fields, content: Content) -> Fields:
        found = read(said, document, content)
        is_wide = document["num_hidden_layers"] == wide_blocks
        share = document["hidden_size"] // document["num_attention_heads"]
        return {**found, "query_pre_attn_scalar": share if is_wide else found["head_dim"]}

    return fields


def read_layered(*, wide_blocks: int) -> Callable[[Said, Fields, Content], Fields]:
    """`read_scaled` for layers of two kinds: the angles in the file are those of the layers without a window."""
    scaled = read_scaled(wide_blocks=wide_blocks)

    def fields(said: Said, document: Fields, content: Content) -> Fields:
        local = {"rope_type": "default", "rope_theta": float(said.pop("rope.freq_base_swa", LOCAL_THETA))}
        found = dict(scaled(said, document, content))
        both = {"full_attention": found.pop("rope_parameters"), "sliding_attention": local}
        return {**found, "rope_parameters": both}

    return fields


def write_layered(document: Fields) -> tuple[Said, Vectors]:
    """The inverse of `read_layered`."""
    return write({**document, "rope_parameters": document["rope_parameters"]["full_attention"]})


# --- heads that are rotated in part, with divisors of their own ------------------------------------------------------


def read_long(said: Said, document: Fields, content: Content) -> Fields:
    """`read` for heads that may be rotated in part, and for divisors that the file lists."""
    found = _heads(said, document, content)
    part = said.pop("rope.dimension_count", found["head_dim"]) / found["head_dim"]
    original = said.pop(f"{SCALING}original_context_length", document["max_position_embeddings"])
    attention = said.pop(f"{SCALING}attn_factor", None)
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": float(said.pop("rope.freq_base", THETA))}
    short_ones, longer = content.vector(SHORT), content.vector(LONG)
    if short_ones is not None and longer is not None:
        lists = {"short_factor": short_ones, "long_factor": longer}
        parameters |= {
            "rope_type": "longrope",
            **({} if attention is None else {"attention_factor": attention}),
            **lists,
        }
    return found | {
        "original_max_position_embeddings": original,
        "sliding_window": said.pop("attention.sliding_window", 0) or None,
        "rope_parameters": {**parameters, "partial_rotary_factor": part},
    }


def write_long(document: Fields) -> tuple[Said, Vectors]:
    """The inverse of `read_long`."""
    parameters, width = document["rope_parameters"], document["head_dim"]
    said: Said = {
        "rope.freq_base": float(parameters["rope_theta"]),
        "rope.dimension_count": int(width * parameters.get("partial_rotary_factor", 1.0)),
        "attention.value_length": width,
        "attention.sliding_window": document.get("sliding_window") or 0,
        f"{SCALING}original_context_length": document["original_max_position_embeddings"],
    }
    if parameters.get("rope_type") != "longrope":
        return said, {}
    if "attention_factor" in parameters:
        said[f"{SCALING}attn_factor"] = float(parameters["attention_factor"])
    return said, {SHORT: parameters["short_factor"], LONG: parameters["long_factor"]}


# --- positions in a table --------------------------------------------------------------------------------------------


def read_none(said: Said, document: Fields, content: Content) -> Fields:
    """Reads no further fields. If a file gives the number of key heads, it must equal the number of query heads."""
    if said.pop("attention.head_count_kv", document["n_head"]) != document["n_head"]:
        raise UserError(f"{content.where}:attention.head_count_kv: expected {document['n_head']}; try another model")
    return {}


def write_none(_: Fields) -> tuple[Said, Vectors]:
    """The inverse of `read_none`."""
    return {}, {}
