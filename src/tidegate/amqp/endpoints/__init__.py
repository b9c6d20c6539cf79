"""The local endpoints of connections, sessions and links (part 2, sections 2.4 to 2.6): state machines without I/O."""
