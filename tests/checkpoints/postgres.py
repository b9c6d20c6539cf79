"""A PostgreSQL server of one's own, on a socket in a folder."""

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Debian and Homebrew keep the server's programs out of the path.
PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")


def program(name: str) -> str:
    found = shutil.which(name)
    places = [path for place in PLACES for path in sorted(glob.glob(f"{place}/{name}"))]
    assert found or places, "PostgreSQL is needed for this test: `scripts/need postgres` installs it"
    return found or places[-1]


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

        run(program("initdb"), "--auth=trust", f"--username={owner}", "--encoding=UTF8", "--no-sync", str(data))
        network = "-c listen_addresses=''" if port is None else f"-c listen_addresses=127.0.0.1 -c port={port}"
        options = f"{network} -c unix_socket_directories='{folder}' -c fsync=off"
        log = f"--log={folder}/log"
        run(program("pg_ctl"), "--wait", f"--pgdata={data}", log, f"--options={options}", "start")
        try:
            yield f"postgresql://{owner}@/postgres?host={folder}" + ("" if port is None else f"&port={port}")
        finally:
            run(program("pg_ctl"), "--wait", "--mode=immediate", f"--pgdata={data}", "stop")
