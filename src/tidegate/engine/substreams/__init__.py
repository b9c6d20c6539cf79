"""Substreams (`TIMESTAMP BY … OVER`): their keys, watermarks, waiting rows and emission order."""
