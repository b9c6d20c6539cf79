"""AMQP's type system as bytes (part 1): values, their encodings, composites, and the errors of this package."""
