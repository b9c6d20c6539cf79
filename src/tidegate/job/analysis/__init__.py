"""Questions about a job, answered by replaying its log: explain, tune, verify, draw, show the plan."""
