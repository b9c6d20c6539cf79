"""Lines of a hopping window: the states of one key in one pane, and which lines no later window needs.

All lines stay inside for the same time, so a window that contains a line contains all later lines of its key that have
entered. A later line therefore makes an earlier one useless that it surpasses: of minima and maxima the earlier one if
it is not better, of the best n rows those that n later ones surpass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.engine.aggregates.states.state import DominatedState, State, concat_states
from tidegate.engine.values.vectors import Int64Array


@dataclass(slots=True)
class Lines:
    """Lines: the number of the key, the end of the pane, and some of the states."""

    ids: Int64Array
    ends: Int64Array
    states: tuple[State, ...]

    def take(self, lines: Int64Array) -> Lines:
        """Return some of the lines."""
        return Lines(self.ids[lines], self.ends[lines], tuple(state.take(lines) for state in self.states))

    @classmethod
    def concat(cls, parts: Sequence[Lines]) -> Lines:
        """Return the lines of several parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.ends for part in parts]),
            concat_states([part.states for part in parts]),
        )


def undominated(lines: Lines) -> Lines:
    """Return the lines that a later window may still need; each has one state."""
    if not len(lines.ids):
        return lines
    (state,) = lines.states
    assert isinstance(state, DominatedState)
    places, states = state.undominated(lines.ids, lines.ends)
    return Lines(lines.ids[places], lines.ends[places], (states,))
