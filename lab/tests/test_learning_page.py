"""What a page of `clearhead lab train` holds."""

import pytest

from clearhead_lab.learning_page import TASKS, _document


@pytest.mark.parametrize("name", TASKS)
def test_every_example_fits_the_network(name):
    made = _document(name, TASKS[name]())
    weights = {weight for op in made["plan"]["ops"] for weight in op.get("weights", ())}
    assert weights <= made["parameters"].keys()
    for one in [*made["train"], *made["unseen"]]:
        assert len(one["labels"]) == len(one["ids"]["decoder"])
        asked = [(i, label) for i, label in enumerate(one["labels"]) if label >= 0]
        assert [one["ids"]["decoder"][i + 1] for i, _ in asked[:-1]] == [label for _, label in asked[:-1]]
    assert not [one for one in made["unseen"] if one in made["train"]]
    assert len(made["unseen"]) == 100
    rounded = [one["std"] for one in made["parameters"].values() if "std" in one]
    assert min(rounded) == 0 < max(rounded)
