"""The namespace without sockets: event hubs, partitions, consumer groups, access, placement, publishing, readers."""
