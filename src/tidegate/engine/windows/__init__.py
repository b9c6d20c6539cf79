"""Windows of GROUP BY: where rows go, and how what is kept of them becomes results.

`kind` says what a window is to the engine; the kinds of the language are one module each, in `engine.windows.kinds`. A
window that comes in panes is evaluated by `panes_operator`, which keeps aggregates instead of rows; any other has an
operator of its own.
"""
