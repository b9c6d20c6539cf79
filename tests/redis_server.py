"""A Redis server of one's own, on a socket in a folder."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import eventually


@contextmanager
def redis_server() -> Iterator[str]:
    """The address of an empty database. It listens on no network address."""
    program = shutil.which("redis-server")
    assert program, "Redis is needed for this test: `scripts/need redis` installs it"
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        socket = Path(folder) / "redis"
        command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            eventually(socket.exists)
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait()
