"""A query made ready to run: the compiled query (`program`), what tasks compute from batches (`task_side`), and what is
computed from their partial results (`keyed_side`).
"""
