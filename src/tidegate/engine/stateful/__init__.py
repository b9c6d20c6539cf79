"""Operators that look at more than one event: windows, sessions, LAG, joins, reference data, MATCH_RECOGNIZE.

The rules live in modules that see rows sorted by time and answer in row numbers: windows, the previous row, pairs
(`sliding`, `session`, `lag`, `running`, `joins`). They know times, key codes and masks, but no values. The operators
(`*_operator`, `panes`) fetch the values by those row numbers and hold the rows that may still be needed.
"""
