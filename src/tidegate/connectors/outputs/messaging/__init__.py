"""Outputs that send messages."""
