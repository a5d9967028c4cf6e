"""Every field that the reference library reads has an entry here: what has none is known to nobody."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from clearhead.errors import UserError
from clearhead.families import FAMILIES, Family, HeadMap, family_of
from clearhead.weights.fields import FieldMap, Only, ignored, same
from tests.later import later
from tests.parity.cases import DERIVED_REPRESENTATIVES, REPRESENTATIVES
from tests.parity.harness import Case

transformers = later("transformers")

READS = re.compile(r"""\bconfig\.([a-z_0-9]+)\b(?!\()|(?:get|has)attr\((?:self\.)?config, "([a-z_0-9]+)\"""")
NO_FIELDS = {
    # What a config is or can do, and names in other libraries' files.
    *("json", "sub_configs", "name_or_path", "default_theta", "nested_rope_parameter_keys", "convert_rope_params"),
    # Heads for the prediction of several tokens, which no class here has.
    # Of models with pictures, beside the text's; what moves into another field; a mark on a loaded object.
    *("image_token_id", "mm_tokens_per_image", "text_config", "vision_config"),
    *("partial_rotary_factor", "_is_quantized"),
    *("chain_hidden_post_norm", "unpadded_vocab_size", "mtp_hidden_states_first", "logits_mup_width_multiplier"),
}


def shared_code() -> Iterator[ModuleType]:
    from transformers import cache_utils, masking_utils, modeling_layers

    yield from (cache_utils, masking_utils, modeling_layers)


def reads(module: ModuleType) -> set[str]:
    return {a or b for a, b in READS.findall(inspect.getsource(module))} - NO_FIELDS


PUBLISHED = [family for family in FAMILIES if not family.read_only]
CLASSES = [pytest.param(family, head, id=head.architecture) for family in PUBLISHED for head in family.heads]


@pytest.mark.parametrize(("family", "head"), CLASSES)
def test_no_field_that_the_reference_knows_is_told_as_unknown(family: Family, head: HeadMap) -> None:
    model: Any = getattr(transformers, head.architecture)
    config = model.config_class()
    names = {*config.to_dict(), *config.attribute_map} - {"_name_or_path"}
    assert family.map_of(head).unknown(names) == []
    module = inspect.getmodule(model)
    assert module is not None
    assert family.map_of(head).unknown(reads(module)) == []


def test_no_field_that_shared_code_reads_is_told_as_unknown() -> None:
    known = [family.map_of(head) for family in FAMILIES for head in family.heads]
    # Fields of sizes are each family's own; those that any config may have are in what all families share.
    sizes = {name for name in set().union(*map(reads, shared_code())) if any(not m.unknown([name]) for m in known)}
    missing = {name for module in shared_code() for name in reads(module)} - sizes
    assert missing == set()
    causal = [m for m in known if not m.unknown(["rope_parameters"])]
    names = ("is_causal", "sliding_window", "layer_types", "attention_chunk_size", "kv_sharing_modes")
    assert all(m.unknown(names) == [] for m in known)
    assert causal


def test_what_has_no_entry_is_unknown() -> None:
    fields = FieldMap((same("a", "x", default=1), Only("b", None), ignored("c_*")))
    assert fields.unknown(["a", "b", "c_1", "d"]) == ["d"]
    assert fields.read({"a": 2, "d": 5}, where="f") == {"x": 2}


READABLE: dict[str, dict[str, Any]] = {
    "Gemma3TextModel": {"use_bidirectional_attention": True},
    "Glm4MoeForCausalLM": {"head_dim": 128},
    "DeepseekV2ForCausalLM": {"num_experts_per_tok": 2},
    "EsmForMaskedLM": {"vocab_size": 33, "pad_token_id": 1},
}
"""What classes need to be read, whose own defaults are no network here."""


@pytest.mark.parametrize("family", PUBLISHED, ids=lambda family: family.heads[0].architecture)
def test_an_absent_field_has_the_reference_s_default(family: Family) -> None:
    head = family.heads[0]
    config_class: Any = getattr(transformers, head.architecture).config_class
    needed = READABLE.get(head.architecture, {})
    document = {**config_class(**needed).to_dict(), "architectures": [head.architecture]}
    whole = family.read(document, where="c")
    # What is None by default follows there from other fields, as it does here.
    derived = {name for name in document if name in vars(config_class) and vars(config_class)[name] is None}
    for name in sorted({field.theirs for field in family.map_of(head).fields()} - derived - needed.keys()):
        absent = {key: value for key, value in document.items() if key != name}
        assert family.read(absent, where="c") == whole, name


@pytest.mark.parametrize("case", [*REPRESENTATIVES, *DERIVED_REPRESENTATIVES], ids=str)
def test_a_null_that_the_reference_refuses_is_refused(case: Case) -> None:
    config_class: Any = getattr(transformers, case.architecture).config_class
    document = {**config_class(**case.config).to_dict(), "architectures": [case.architecture]}
    family = family_of(document, where="c")
    mapped = {field.theirs for field in family.map_of(family.head_of(document, where="c")).fields()}
    for name in sorted(name for name in mapped if document.get(name) is not None):
        changed = {**document, name: None}
        try:
            family.read(changed, where="c")
        except UserError:
            continue
        config_class.from_dict(changed)
