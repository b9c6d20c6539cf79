"""Microsoft.StreamAnalytics: streaming jobs with their inputs, outputs, functions and query, run by the service."""
