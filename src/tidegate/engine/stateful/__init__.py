"""Stateful operators other than windows: functions of earlier rows, joins, reference data, MATCH_RECOGNIZE.

The semantics are in modules that take rows sorted by time and return row numbers: the previous row, ranges of rows,
pairs, matches (`analytics`, `joins`, `match`). They know times, key codes and masks, but no values. The operators
(`*_operator`) look up the values by these row numbers, and hold the rows that may still be needed.
"""
