"""Running a job: the loop over steps, the journal, the commit order, status and metrics."""
