"""The pages of jobs, on the service's interface and on the workbench."""
