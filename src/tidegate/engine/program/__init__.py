"""A compiled query, ready to run: what it reads, what a task computes, and what is computed from the task results."""
