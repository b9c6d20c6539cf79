"""Our ends of connections, sessions and links (part 2, sections 2.4 to 2.6), as state machines without I/O."""
