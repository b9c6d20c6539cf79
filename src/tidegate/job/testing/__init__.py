"""Case files: a query, a recorded log and the expected rows; and how actual rows differ from expected ones.

`tidegate job test` runs case files from the command line; a Python test suite can read and run them itself.
"""

from tidegate.job.testing.case import Case, CaseResult, case_result, differences, read_case
from tidegate.job.testing.row_difference import RowDifference, compare_rows

__all__ = ["Case", "CaseResult", "RowDifference", "case_result", "compare_rows", "differences", "read_case"]
