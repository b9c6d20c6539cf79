"""A Redis server of one's own, on a socket in a folder."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import eventually
from tests.programs import program


@contextmanager
def redis_server() -> Iterator[str]:
    """The address of an empty database. It listens on no network address."""
    server = program("redis-server", needed="redis")
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        socket = Path(folder) / "redis"
        command = [server, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            eventually(socket.exists)
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait()
