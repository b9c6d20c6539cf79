"""A MariaDB server of one's own, on a socket in a folder."""

from __future__ import annotations

import getpass
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.programs import program

# Debian and Homebrew keep the server out of a user's path.
PLACES = ("/usr/sbin", "/opt/homebrew/opt/mariadb/bin")


@contextmanager
def mariadb(*more: str) -> Iterator[str]:
    """The connection string of an empty database of a server with more options. It listens on no network address."""
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        server = program("mariadbd", places=PLACES, needed="mariadb")
        data, socket = Path(folder) / "data", Path(folder) / "socket"
        data.mkdir()
        # Without tables of grants the server needs no installation, and everybody may do everything.
        options = ["--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}", "--skip-grant-tables"]
        fast = ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"]
        command = [server, *options, f"--socket={socket}", "--skip-networking", *fast, *more]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not socket.exists():
                assert process.poll() is None, "MariaDB ended"
                assert time.monotonic() < deadline, "MariaDB did not come up"
                time.sleep(0.05)
            address = f"mysql://root@localhost/results?unix_socket={socket}"
            import pymysql

            with pymysql.connect(user="root", unix_socket=str(socket)) as connection:
                connection.cursor().execute("CREATE DATABASE results")
            yield address
        finally:
            process.terminate()
            process.wait()
