"""Certificates for the TLS ports: the operator's own, or a development CA made at first start."""

from __future__ import annotations

import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from tidegate.server.transports.strangers import StrangerAwareContext


class CertificateError(Exception):
    """A certificate or key file that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files the TLS ports serve from. `authority_file` is what clients of a development certificate have to trust."""

    cert_file: Path
    key_file: Path
    authority_file: Path | None = None

    def server_context(self) -> StrangerAwareContext:
        """A TLS 1.2+ context for accepted sockets. Raises CertificateError."""
        context = StrangerAwareContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise CertificateError(
                f"cannot use certificate {self.cert_file} with key {self.key_file}: {error}"
            ) from error
        return context


def development_certificate(directory: Path, host: str) -> Certificate:
    """The certificate in `directory` for loopback and `host`; made, together with its CA, if it is not there yet."""
    certificate = Certificate(directory / "server.pem", directory / "server.key", directory / "ca.pem")
    files = (certificate.cert_file, certificate.key_file, directory / "ca.pem")
    if not all(file.exists() for file in files):
        directory.mkdir(parents=True, exist_ok=True)
        names = dict.fromkeys(["localhost", "127.0.0.1", "::1", socket.gethostname(), host])
        # It takes a tenth of a second to load, and is needed once.
        import trustme

        authority = trustme.CA(organization_name="Tidegate development CA")
        issued = authority.issue_cert(*[name for name in names if name not in ("", "0.0.0.0", "::")])
        _write_private(certificate.key_file, issued.private_key_pem.bytes())
        certificate.cert_file.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        authority.cert_pem.write_to_path(directory / "ca.pem")
    return certificate


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
