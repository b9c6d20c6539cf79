"""Azure's own forms: the management API for unmodified clients, templates, and Stream Analytics projects."""
