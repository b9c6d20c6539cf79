"""The account of object storage that a section's path is in."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field, model_validator

from tidegate.blobs import is_azure
from tidegate.blobs.object_store import CONNECTION_STRING, azure_config
from tidegate.connectors.model.kinds import KindSection
from tidegate.connectors.model.section import Secret, SecretUrl


class StorageAccountSection(KindSection):
    """A section with a path that may be in a container of Blob storage."""

    path: SecretUrl
    connection_string: Secret | None = Field(
        default=None,
        description="of the storage account, for a path such as `az://CONTAINER/…`; default: "
        f"`{CONNECTION_STRING}` of the environment",
    )

    @model_validator(mode="after")
    def _connection_string_is_of_an_account(self) -> StorageAccountSection:
        if self.connection_string is not None:
            if not is_azure(self.path):
                raise ValueError(
                    "connection_string is for a path in Blob storage: expected az://CONTAINER/… or abfss://…"
                )
            azure_config(self.connection_string, "connection_string")
        return self

    @property
    def storage_environment(self) -> Mapping[str, str] | None:
        """Where the credentials are, in the place of the environment; None for the environment itself."""
        return None if self.connection_string is None else {CONNECTION_STRING: self.connection_string}
