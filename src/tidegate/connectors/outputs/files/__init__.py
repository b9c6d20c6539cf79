"""Outputs that write files: one file that grows, or many below a folder or in an object store."""
