"""Fetch the packages of the S3 server, for `make test`."""

from tests.s3_server import install

if __name__ == "__main__":
    install()
