"""What needs history: sliding windows, sessions, functions of the rows before, and joins.

An operator of this room looks at rows sorted by time and says, in numbers of rows, what belongs together: windows,
the row to look back on, pairs. It knows times, codes of keys and masks, and never values; whoever uses it takes the
values by the numbers it gives.

Each operator looks back a known duration L: what it says of times in [S, W) follows from rows with times in
[S − L, W), whatever was before. Each module proves it for its own L, and its tests hold it to that. So a run may start
anywhere and forget behind itself.
"""
