"""Microsoft.EventHub: the namespace, its event hubs, consumer groups and authorization rules."""
