"""An S3 server on this machine: moto's, on loopback and in memory. It refuses conditional writes as S3 does.

Its packages are in a folder of their own, from requirements.lock beside this file. It cannot share the project's
environment, because botocore wants an older python-dateutil than the lock file has.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.jars import free_ports
from tests.patience import PATIENCE_S

FOLDER = Path(__file__).parent
PACKAGES = FOLDER.parents[1] / ".s3_server" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
REGION = "us-east-1"
# S3 refuses a request that nobody has signed; this server looks only for the name of the service in the signature.
_SIGNATURE = f"AWS4-HMAC-SHA256 Credential=tidegate/20260101/{REGION}/s3/aws4_request, SignedHeaders=host, Signature=0"


@dataclass(frozen=True, slots=True)
class S3Server:
    """A server that holds no buckets at first."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which S3's own tools find the server."""
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "tidegate",
            "AWS_SECRET_ACCESS_KEY": "secret-of-tidegate",
        }

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its URL."""
        headers = {"Authorization": _SIGNATURE}
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT", data=b"", headers=headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            return f"s3://{name}"


def install() -> None:
    """Fetch the server's packages unless they are there. The folder appears whole, whoever else is fetching them."""
    if PACKAGES.exists():
        return
    PACKAGES.parent.mkdir(exist_ok=True)
    fetched = tempfile.mkdtemp(prefix=".fetched-", dir=PACKAGES.parent)
    lock = str(FOLDER / "requirements.lock")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--requirement", lock]
    try:
        subprocess.run([*command, "--target", fetched], check=True, capture_output=True)
        try:
            os.rename(fetched, PACKAGES)
        except OSError:
            assert PACKAGES.exists()
    finally:
        shutil.rmtree(fetched, ignore_errors=True)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """An S3 server without buckets."""
    install()
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield S3Server(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, "moto's server ended"
        assert time.monotonic() < deadline, "moto's server did not come up"
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
