"""What needs history: sliding windows, sessions, functions of the rows before, joins.

The rules stand in modules that look at rows sorted by time and say, in numbers of rows, what belongs together: windows,
the row to look back on, pairs (`sliding`, `session`, `lag`, `running`, `joins`). They know times, codes of keys and
masks, and no values. The operators take the values by those numbers and hold what is still looked back on.

Each rule looks back a known duration L: what it says of times in [S, W) follows from rows with times in [S − L, W),
whatever was before. Each module proves it for its own L, and its tests hold it to that. So a run may start anywhere and
forget behind itself.
"""
