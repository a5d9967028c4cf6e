"""The sets of exercises. One page each."""

from collections.abc import Callable

from clearhead.lab.exercises.exercise import ExerciseSet
from clearhead.lab.exercises.sets.looking import looking
from clearhead.lab.exercises.sets.masks import masks
from clearhead.lab.exercises.sets.positions import positions

SETS: dict[str, Callable[[], ExerciseSet]] = {
    "looking": looking,
    "masks": masks,
    "positions": positions,
}
"""By name, in the order of the course."""
