"""Windows of GROUP BY: which windows a row is in, and how states or held rows become results.

`kind` says what a window is to the engine; the kinds of the language are one module each, in `engine.windows.kinds`. A
window that comes in panes is evaluated by `panes_operator`, which keeps aggregates instead of rows; each of the others
has its own operator.
"""
