import pytest

from clearhead.randomness import key


def test_a_key_is_a_fixed_function_of_its_parts_in_every_process():
    assert key(7, "shuffle", 0) == 468102073689539389
    keys = {key(seed, what, n) for seed in range(5) for what in ("a", "b", "1") for n in range(200)}
    assert len(keys) == 3000
    assert all(0 <= k < 2**63 for k in keys)
    assert key("ab", "c") != key("a", "bc")
    assert key(1) != key("1")


@pytest.mark.parametrize("part", [True, 1.0, None, (1,)])
def test_a_part_without_a_stable_text_is_refused(part):
    with pytest.raises(TypeError, match="str or int"):
        key(part)
