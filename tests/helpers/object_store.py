"""An object store on this machine, behind a proxy that fails and stalls: of S3 (moto), or an emulator of Google's."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import Any

import boto3
import pytest
from moto import settings
from moto.core.authorization import ActionAuthenticatorMixin
from moto.server import ThreadedMotoServer

from tests.helpers.faulty_proxy import FaultyProxy

BUCKET = "sweeps"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "ada", "AWS_SECRET_ACCESS_KEY": "key", "AWS_DEFAULT_REGION": "us-east-1"}


class Bucket:
    """A store of S3's language on this machine, moto's server in a thread, with one bucket."""

    def __init__(self, name: str, key: str, secret: str) -> None:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it prints each request
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        _, self.port = self._server.get_host_and_port()
        self.name, self.address = name, f"http://127.0.0.1:{self.port}"
        self.credentials = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
        ids = {"aws_access_key_id": key, "aws_secret_access_key": secret}
        self.client: Any = boto3.client("s3", endpoint_url=self.address, region_name="us-east-1", **ids)
        self.client.create_bucket(Bucket=name)

    def objects(self, prefix: str = "") -> dict[str, int]:
        """Size in bytes of each object, by name, without the empty ones that stand for folders."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        found = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
        return {name.removeprefix(prefix): size for name, size in found.items() if not name.endswith("/")}

    def close(self) -> None:
        with redirect_stderr(io.StringIO()):
            self._server.stop()


class ObjectStore(Bucket):
    """A store with one empty bucket, at ``s3://sweeps`` for what is started inside :func:`object_store`."""

    def __init__(self) -> None:
        super().__init__(BUCKET, "ada", "key")
        self.proxy, self.address = FaultyProxy(self.port), f"s3://{BUCKET}/results"
        self.variables = {**CREDENTIALS, "AWS_ENDPOINT_URL": self.proxy.address}

    def read(self, name: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return content

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def lose_bucket(self) -> None:
        """Delete the bucket, with all that is in it, also what comes meanwhile."""
        while True:
            listed = self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])
            for entry in listed:
                self.client.delete_object(Bucket=BUCKET, Key=entry["Key"])
            with suppress(self.client.exceptions.ClientError):
                self.client.delete_bucket(Bucket=BUCKET)
                return

    @contextmanager
    def refuses(self) -> Iterator[None]:
        """Take no request inside the block, as with credentials that have expired."""
        ActionAuthenticatorMixin.request_count = settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
        try:
            yield
        finally:
            settings.INITIAL_NO_AUTH_ACTION_COUNT = math.inf

    def close(self) -> None:
        self.proxy.close()
        super().close()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    store = ObjectStore()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in store.variables.items():
            patch.setenv(name, value)
        try:
            yield store
        finally:
            store.close()
