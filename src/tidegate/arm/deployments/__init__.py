"""Template deployments: expressions, the resources that a template means, and the order in which they are made."""
