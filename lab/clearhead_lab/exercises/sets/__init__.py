"""The sets of exercises. One page each."""

from collections.abc import Callable

from clearhead_lab.exercises.exercise import ExerciseSet
from clearhead_lab.exercises.sets.knowing import knowing
from clearhead_lab.exercises.sets.looking import looking
from clearhead_lab.exercises.sets.masks import masks
from clearhead_lab.exercises.sets.meaning import meaning
from clearhead_lab.exercises.sets.norms import norms
from clearhead_lab.exercises.sets.positions import positions
from clearhead_lab.exercises.sets.repeating import repeating
from clearhead_lab.exercises.sets.scaling import scaling
from clearhead_lab.exercises.sets.stream import stream
from clearhead_lab.exercises.sets.translating import translating

SETS: dict[str, Callable[[], ExerciseSet]] = {
    "positions": positions,
    "meaning": meaning,
    "looking": looking,
    "scaling": scaling,
    "masks": masks,
    "norms": norms,
    "stream": stream,
    "knowing": knowing,
    "repeating": repeating,
    "translating": translating,
}
"""By name, in the order of the course."""
