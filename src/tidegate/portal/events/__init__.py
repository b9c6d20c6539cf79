"""The data explorer's work: reading events in any direction, composing them from templates, and generating them."""
