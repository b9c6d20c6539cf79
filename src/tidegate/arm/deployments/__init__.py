"""Template deployments: the resources of a template, made one after the other."""
