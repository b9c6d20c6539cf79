from collections.abc import Iterator

import pytest

from tests.workers.support import HubOfWorkers


@pytest.fixture(scope="package")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubOfWorkers]:
    """A hub of two workers, with TLS."""
    hub = HubOfWorkers(tmp_path_factory.mktemp("workers") / "data")
    hub.start("--https-port", str(hub.https_port))
    yield hub
    if hub.process.poll() is None:
        hub.kill()
