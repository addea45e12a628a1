"""A local S3 for tests, and how a test's processes find it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

BUCKET = "lens"
ACCESS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


def forget() -> None:
    """Let the next use of an object store look at the environment again."""
    from tsfmscope.store import objects

    objects.client.cache_clear()
    objects.filesystem.cache_clear()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URI of a bucket of a server of its own, which the environment names until the module's tests are done."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in (ACCESS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}).items():
            patch.setenv(name, value)
        forget()
        from tsfmscope.store.objects import client

        client().create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}"
    forget()
    server.stop()
