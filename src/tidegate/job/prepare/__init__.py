"""From a job file to a job that can run: compile the query, register functions, open inputs, report every mistake."""
