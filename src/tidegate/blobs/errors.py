"""What can go wrong with files to read."""


class BlobError(Exception):
    """A folder or store cannot be listed, or a file not read; the message holds no secret."""


class BlobGone(BlobError):
    """There is no such file, or it is not the one that was there."""
