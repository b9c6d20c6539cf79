"""Servers in Java for tests: their jars come from Maven Central, by the pom.xml in the server's folder."""

import shutil
import socket
import subprocess
from pathlib import Path


def class_path(folder: Path) -> str:
    """Return the class path of the jars that a folder's pom.xml names, which are fetched if they are missing."""
    jars = folder / "jars"
    if not (jars / "fetched").exists():
        assert shutil.which("mvn"), "Maven is needed for this test: `scripts/need maven` installs it"
        command = ["mvn", "--quiet", "--batch-mode", f"--file={folder / 'pom.xml'}", "dependency:copy-dependencies"]
        subprocess.run([*command, "-DoutputDirectory=jars", "-DincludeScope=runtime"], check=True, capture_output=True)
        (jars / "fetched").touch()
    return f"{jars}/*"


def java(*arguments: str) -> list[str]:
    """Return the command that starts Java for a server that lives for seconds."""
    assert shutil.which("java"), "Java is needed for this test: `scripts/need java` installs it"
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", *arguments]


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nothing listens on."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
