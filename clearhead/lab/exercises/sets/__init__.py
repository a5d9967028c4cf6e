"""The sets of exercises. One page each."""

from collections.abc import Callable

from clearhead.lab.exercises.exercise import ExerciseSet
from clearhead.lab.exercises.sets.knowing import knowing
from clearhead.lab.exercises.sets.looking import looking
from clearhead.lab.exercises.sets.masks import masks
from clearhead.lab.exercises.sets.meaning import meaning
from clearhead.lab.exercises.sets.norms import norms
from clearhead.lab.exercises.sets.positions import positions
from clearhead.lab.exercises.sets.repeating import repeating
from clearhead.lab.exercises.sets.scaling import scaling
from clearhead.lab.exercises.sets.stream import stream
from clearhead.lab.exercises.sets.translating import translating

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
