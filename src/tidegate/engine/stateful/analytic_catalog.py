"""The functions of the rows before: every public class of a module in `engine.stateful.analytics`, and entry points."""

from __future__ import annotations

from tidegate.engine.stateful import analytics
from tidegate.engine.stateful.analytics.specification import AnalyticFunction
from tidegate.extensions import classes_of

ANALYTICS: dict[str, AnalyticFunction] = {
    function.name: function
    for function in (
        each() for each in classes_of(analytics, "tidegate.analytics") if issubclass(each, AnalyticFunction)
    )
}
"""By lower-case name."""
