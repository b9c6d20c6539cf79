"""Microsoft's own live tests of its Python client, run against Tidegate: `python -m tests.soak.microsoft_live [-k …]`.

The tests come with the source distribution of azure-eventhub on PyPI, in the version that is installed here. Their
conftest creates resources in Azure; `live_conftest.py` takes its place. It needs the ports 5671 and 443 of 127.0.0.2
(the tests name no port), so Linux, and the right to listen on 443 for the tests over web sockets. Takes about half
an hour, most of it in the sleeps of the tests. Options are those of pytest.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.source import ROOT

NEEDS_AZURE = {
    "test_faultinjector": "needs Microsoft's fault injector",
    "test_client_azure_sas_credential_entra": "needs Microsoft Entra",
    "test_receive_storage_checkpoint": "needs a storage account and a subscription in Azure",
}
LIVE = "livetest"


def fetch(folder: Path) -> Path:
    """Return the folder of the tests in the source distribution of the installed client."""
    wanted = f"azure-eventhub=={importlib.metadata.version('azure-eventhub')}"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    subprocess.run([*pip, wanted], check=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    (tests,) = folder.glob("*/tests")
    return tests


def main(options: list[str]) -> int:
    """Run the tests. Return pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        tests = fetch(Path(folder))
        shutil.copy(Path(__file__).with_name("live_conftest.py"), tests / "conftest.py")
        left_out = " and ".join(f"not {name}" for name in NEEDS_AZURE)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir",
            str(tests),
        ]
        path = os.pathsep.join([str(ROOT), str(tests)])
        return subprocess.run(
            [*command, "-k", left_out, *options, str(tests / LIVE)], env={**os.environ, "PYTHONPATH": path}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
