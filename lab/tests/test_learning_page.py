"""What a page of `clearhead lab train` holds."""

from clearhead_lab.learning_page import task


def test_every_example_fits_the_network():
    made = task()
    weights = {weight for op in made["plan"]["ops"] for weight in op.get("weights", ())}
    assert weights <= made["parameters"].keys()
    assert {made["parameters"][one["same"]]["std"] > 0 for one in made["parameters"].values() if "same" in one} == {
        True
    }
    for one in [*made["train"], *made["unseen"]]:
        assert one["ids"]["decoder"][1:] == one["labels"][:-1]
    assert not [one for one in made["unseen"] if one in made["train"]]
    assert len(made["unseen"]) == 100
    begins = [one["std"] for one in made["parameters"].values() if "std" in one]
    assert min(begins) == 0 < max(begins)
