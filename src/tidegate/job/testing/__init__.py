"""Case files: a query, a recorded log and the expected rows; and how actual rows differ from expected ones."""
