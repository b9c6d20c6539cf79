"""A PostgreSQL server of one's own, on a socket in a folder."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.programs import program

# Debian and Homebrew keep the server's programs out of the path.
PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")


def _program(name: str) -> str:
    return program(name, places=PLACES, needed="postgres")


@contextmanager
def postgres(port: int | None = None) -> Iterator[str]:
    """The connection string of an empty database. It listens on no network address, or on a port of loopback."""
    # PostgreSQL will not run as root.
    user = "postgres" if os.geteuid() == 0 else None
    owner = user or pwd.getpwuid(os.geteuid()).pw_name
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="tg-", dir="/tmp") as folder:
        if user:
            shutil.chown(folder, user)
        data = Path(folder) / "data"

        def run(*command: str) -> None:
            subprocess.run(command, check=True, capture_output=True, user=user, cwd="/")

        run(_program("initdb"), "--auth=trust", f"--username={owner}", "--encoding=UTF8", "--no-sync", str(data))
        network = "-c listen_addresses=''" if port is None else f"-c listen_addresses=127.0.0.1 -c port={port}"
        options = f"{network} -c unix_socket_directories='{folder}' -c fsync=off"
        log = f"--log={folder}/log"
        run(_program("pg_ctl"), "--wait", f"--pgdata={data}", log, f"--options={options}", "start")
        try:
            yield f"postgresql://{owner}@/postgres?host={folder}" + ("" if port is None else f"&port={port}")
        finally:
            run(_program("pg_ctl"), "--wait", "--mode=immediate", f"--pgdata={data}", "stop")
