"""The step: which ranges to read, what a task does with a range, and how results and watermarks are merged.

Nothing here knows Spark. A step hands tasks to a runner and gets their results, wherever they ran.
"""
