"""How wide heads are, and what they write to."""

from clearhead_lab.exercises.exercise import Exercise, Wrong
from clearhead_lab.exercises.writing import answered, says, value

AT = "decoder.blocks.0.attn"


def head_width() -> Exercise:
    """Heads share the width."""
    width = ["count", value(f"{AT}.q[h=0,t=0]")]
    return Exercise(
        "head-width", "More heads, narrower heads",
        "This model is 16 wide and has 2 heads. You double the number of heads and keep d_model. How wide is a head then "
        "(d_k)?",
        "drawn", {"shown": "the lion sees a deer"},
        answered(["/", width, 2], by=0.01),
        "4. Heads share d_model: d_k = d_model / h. More heads can look at more things at once, but each compares shorter "
        "vectors. The number of parameters of W_Q, W_K, W_V and W_O does not change.",
        says(4.0),
        (
            Wrong("same", answered(width, by=0.01), "That is d_k now. Twice the heads share the same 16 components.", says(8.0)),
            Wrong("wider", answered(["*", width, 2], by=0.01), "That is d_model. The heads divide it among them.", says(16.0)),
            Wrong("heads", answered(2, by=0.01), "That is the number of heads now, not the width of one.", says(2.0)),
        ),
        source="document 001, reflection question 1",
    )  # fmt: skip


def output_matrix() -> Exercise:
    """W_O mixes heads."""
    adds = value(f"{AT}.heads[h=1,t=2]")
    reached = ["*", ["count", adds], ["share", ">=", ["abs", adds], 1e-4]]
    return Exercise(
        "output-matrix", "Why there is a W_O",
        "Head 1 of block 0 mixes values that are 8 wide. To how many components of the stream does it add something, after "
        "W_O?",
        "drawn", {"shown": "the lion sees a deer"},
        answered(reached, by=0.01),
        "16, all of d_model. Side by side, the heads would each stay in their own 8 components; W_O lets every head write to "
        "every component, and lets heads agree or cancel.",
        says(16.0),
        (
            Wrong("concatenated", answered(["count", value(f"{AT}.z[h=1,t=2]")], by=0.01),
                  "That is the width of one head: so it would be if heads were only put side by side, without W_O.", says(8.0)),
            Wrong("one", answered(1, by=0.01), "A head adds a whole vector, not one number.", says(1.0)),
            Wrong("both-heads", answered(["count", value(f"{AT}.heads[t=2]")], by=0.01),
                  "That counts both heads. Their vectors are added in the same 16 components.", says(32.0)),
        ),
        source="document 001, reflection question 5", view="output", head=1,
    )  # fmt: skip
