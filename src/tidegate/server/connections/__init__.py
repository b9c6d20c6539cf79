"""The AMQP side: one client's connection, and what stands behind each kind of link."""
