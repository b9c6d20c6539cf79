"""A connection string is read as Azure's tools read it."""

import pytest

from tidegate.blobs.object_store import azure_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UseDevelopmentStorage=true", {"use_emulator": "true"}),
        (
            "DefaultEndpointsProtocol=https;AccountName=lake;AccountKey=a2V5==;EndpointSuffix=core.windows.net",
            {"account_name": "lake", "account_key": "a2V5==", "endpoint": "https://lake.blob.core.windows.net"},
        ),
        (
            "AccountName=lake;AccountKey=k;BlobEndpoint=http://127.0.0.1:10000/lake/;",
            {"account_name": "lake", "account_key": "k", "endpoint": "http://127.0.0.1:10000/lake"},
        ),
        (
            "BlobEndpoint=https://lake.blob.core.windows.net;SharedAccessSignature=?sv=1&sig=x%3D",
            {"account_name": "lake", "sas_key": "sv=1&sig=x%3D", "endpoint": "https://lake.blob.core.windows.net"},
        ),
        ("AccountName=lake;AccountKey=k", {"account_name": "lake", "account_key": "k"}),
    ],
)
def test_a_connection_string_names_an_account(text: str, expected: dict[str, str]) -> None:
    assert azure_config(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "AccountName=127.0.0.1:5300/secret?;AccountKey=k",
        "AccountName=secret@127.0.0.1;AccountKey=k",
        "AccountName=lake;AccountKey=k;EndpointSuffix=x@127.0.0.1:5300/secret",
    ],
)
def test_an_account_is_no_more_of_an_address_than_a_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"part of a host's name") as failure:
        azure_config(text)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("text", ["", "secret", "AccountKey=secret", ";;"])
def test_a_connection_string_without_an_account_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="AZURE_STORAGE_CONNECTION_STRING") as failure:
        azure_config(text)
    assert "secret" not in str(failure.value)
