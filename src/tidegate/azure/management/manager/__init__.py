"""The resource manager: subscriptions, resource groups, providers, and the way of a request to its operation."""
