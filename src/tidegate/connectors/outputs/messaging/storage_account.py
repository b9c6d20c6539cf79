"""A storage account's table service: its address, and how requests to it are signed.

Source: "Authorize with Shared Key" (Shared Key Lite for the Table service) and "Configure Azure Storage connection
strings". An account is named by its connection string, whose key or shared access signature is never shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from email.utils import formatdate
from urllib.parse import urlsplit

from tidegate.connectors.model.errors import OutputError

# The well-known account of Microsoft's emulator, which is documented and no secret.
_EMULATOR_ACCOUNT = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_EMULATOR_ENDPOINT = f"http://127.0.0.1:10002/{_EMULATOR_ACCOUNT}"
_SUFFIX = "core.windows.net"
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_FORM = "AccountName=…;AccountKey=…; or TableEndpoint=https://…;SharedAccessSignature=…;"


@dataclass(frozen=True, slots=True)
class StorageAccount:
    """The table service of an account.

    Attributes:
        endpoint: its address, without a slash at the end.
        name: of the account.
        key: the account's key; None if a signature is used.
        signature: a shared access signature, without its question mark; None if a key is used.
    """

    endpoint: str
    name: str
    key: bytes | None
    signature: str | None

    @classmethod
    def parse(cls, connection_string: str, output: str) -> StorageAccount:
        """Return the account that a connection string names.

        Raises:
            OutputError: it names none; the message does not repeat it.
        """
        parts = dict(part.strip().partition("=")[::2] for part in connection_string.split(";") if part.strip())
        named = {name.lower(): value for name, value in parts.items()}
        if named.get("usedevelopmentstorage", "").lower() == "true":
            return cls(_EMULATOR_ENDPOINT, _EMULATOR_ACCOUNT, base64.b64decode(_EMULATOR_KEY), None)
        name, endpoint = named.get("accountname", ""), named.get("tableendpoint", "").rstrip("/")
        suffix = named.get("endpointsuffix", _SUFFIX)
        for setting, value in (("AccountName", name), ("EndpointSuffix", suffix)):
            if value and not _HOST_NAME.fullmatch(value):
                raise OutputError(
                    f"output '{output}': {setting} in connection_string is part of a host's name: letters, digits, "
                    "'.' and '-'"
                )
        if not endpoint and name:
            endpoint = f"{named.get('defaultendpointsprotocol', 'https')}://{name}.table.{suffix}"
        signature = named.get("sharedaccesssignature", "").lstrip("?") or None
        try:
            key = base64.b64decode(named["accountkey"], validate=True) if named.get("accountkey") else None
        except binascii.Error:
            key = None
        if not endpoint or (signature is None and (key is None or not name)):
            raise OutputError(
                f"output '{output}': expected the connection string of a storage account, {_FORM}, with a key in base64"
            )
        return cls(endpoint, name, None if signature else key, signature)

    @property
    def path(self) -> str:
        """The path of the endpoint; an emulator's begins with the account's name."""
        return urlsplit(self.endpoint).path

    def target(self, resource: str) -> str:
        """Return the path, and the signature if there is one, of a request to a resource such as ``Tables``."""
        path = f"{self.path}/{resource}"
        return path if self.signature is None else f"{path}?{self.signature}"

    def headers(self, resource: str) -> dict[str, str]:
        """Return the headers that date and sign a request to a resource."""
        date = formatdate(usegmt=True)
        if self.key is None:
            return {"x-ms-date": date}
        return {
            "x-ms-date": date,
            "Authorization": f"SharedKeyLite {self.name}:{self._sign(date, f'{self.path}/{resource}')}",
        }

    def _sign(self, date: str, path: str) -> str:
        assert self.key is not None
        signed = f"{date}\n/{self.name}{path}"
        return base64.b64encode(hmac.new(self.key, signed.encode(), hashlib.sha256).digest()).decode()
