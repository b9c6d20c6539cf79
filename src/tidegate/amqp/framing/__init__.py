"""Frames and the performatives they carry (part 2, sections 2.3 and 2.7)."""
