"""Lines of a hopping window: what is kept of one key in one pane, and which lines no window to come will ask for.

A line is in the windows from when it enters until it leaves; all lines stay equally long. So what a later line of the
same key has makes an earlier one useless wherever it would be chosen before it: of a least or greatest value the
earlier one that is not better, of the best n ranked rows those that n later ones are better than.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.aggregates.states.state import DominatedState, State, concat_states
from tidegate.engine.values.vectors import Int64Array


@dataclass(slots=True)
class Lines:
    """Lines by the number of their key: which key, the pane's end, some of the states."""

    ids: Int64Array
    ends: Int64Array
    states: tuple[State, ...]

    def take(self, lines: Int64Array) -> Lines:
        """Some of the lines."""
        return Lines(self.ids[lines], self.ends[lines], tuple(state.take(lines) for state in self.states))

    @classmethod
    def concat(cls, parts: Sequence[Lines]) -> Lines:
        """The lines of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.ends for part in parts]),
            concat_states([part.states for part in parts]),
        )


def undominated(lines: Lines) -> Lines:
    """Return the lines that a window to come may still ask for; each has one state."""
    if not len(lines.ids):
        return lines
    (state,) = lines.states
    assert isinstance(state, DominatedState)
    places, states = state.undominated(lines.ids, lines.ends)
    return Lines(lines.ids[places], lines.ends[places], (states,))
