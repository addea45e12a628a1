"""An S3-compatible object store: whole objects, conditional writes, multipart uploads, ranged reads.

Writes go through boto3, since Arrow's S3 file completes an upload that an error cut off and knows no conditional PUT;
data are read through pyarrow.fs. Endpoint, region and credentials are the environment's (AWS_ENDPOINT_URL,
AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID … or a profile).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from blake3 import blake3

from store.errors import PlaceError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

T = TypeVar("T")
SCHEME = "s3://"
BLOCK = 32 * 2**20  # bytes read at once to be summed
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 60, 4
PRINT = ".print"  # suffix of the object that says which BLAKE3 belongs to an object's ETag
AT_ONCE = 1_000  # objects deleted by one request, the most that S3 takes
MISSING = {"404", "NoSuchKey", "NotFound"}
LOST = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


class Found(NamedTuple):
    """An object as a listing shows it. etag changes whenever its bytes do; modified: seconds by the store's clock."""

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, order=True)
class Remote:
    """Where an object lies: `s3://bucket/key`, read like a file and never written in place."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Remote:
        """ValueError unless s3://BUCKET/PREFIX, the prefix not empty."""
        bucket, _, key = uri.removeprefix(SCHEME).partition("/")
        if not uri.startswith(SCHEME) or not bucket or not key.strip("/"):
            raise ValueError(f"object store {uri!r}: expected s3://BUCKET/PREFIX")
        return cls(bucket, key.strip("/"))

    def __truediv__(self, name: str) -> Remote:
        return Remote(self.bucket, f"{self.key}/{name}")

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The key's names."""
        return PurePosixPath(self.key).parts

    @property
    def name(self) -> str:
        """The last name of the key."""
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        """That, without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """`.parquet`, `.arrow`."""
        return PurePosixPath(self.key).suffix

    def open(self) -> pa.NativeFile:
        """A file to read anywhere in by ranged GETs. FileNotFoundError where there is none, else as in `ready`."""
        import pyarrow as pa

        return pa.PythonFile(_Reads(self), mode="r")

    def read(self) -> tuple[bytes, str]:
        """All bytes and the ETag. FileNotFoundError where there is no such object."""
        with explained(self):
            answer = client().get_object(Bucket=self.bucket, Key=self.key)
            return answer["Body"].read(), answer["ETag"]

    def look(self) -> Found:
        """Size and ETag. FileNotFoundError where there is no such object."""
        with explained(self):
            head = client().head_object(Bucket=self.bucket, Key=self.key)
        return Found(self.key, head["ContentLength"], head["ETag"], head["LastModified"].timestamp())

    def now(self) -> float:
        """Seconds since the epoch by the store's clock."""
        return parsedate_to_datetime(self.ready()["date"]).timestamp()

    def ready(self) -> dict[str, str]:
        """Headers of an answer about the bucket. PlaceError where it is missing, closed or not answered for."""
        try:
            with explained(self):
                return dict(client().head_bucket(Bucket=self.bucket)["ResponseMetadata"]["HTTPHeaders"])
        except FileNotFoundError:
            raise PlaceError(_no_bucket(self)) from None

    def exists(self) -> bool:
        """Whether there is such an object."""
        try:
            self.look()
        except FileNotFoundError:
            return False
        return True

    def put(self, body: bytes) -> str:
        """Write the object, whole or not at all; its ETag."""
        with explained(self):
            return str(client().put_object(Bucket=self.bucket, Key=self.key, Body=body)["ETag"])

    def swap(self, body: bytes, etag: str | None) -> str | None:
        """Write only where the object still has that ETag (None: where there is none); the new one, None if lost.

        A request that was repeated after its answer got lost finds what it wrote itself: a body that is unique, as one
        with a token or an epoch in it, is then known again.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with explained(self):
                answer = client().put_object(Bucket=self.bucket, Key=self.key, Body=body, **condition)
                return str(answer["ETag"])
        except Refused:
            try:
                held, now = self.read()
            except FileNotFoundError:
                return None
            return now if held == body else None

    def list(self) -> Iterator[Found]:
        """Every object whose key begins with this one and a slash, by key."""
        with explained(self):
            for page in client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.key}/"):
                for one in page.get("Contents", ()):
                    yield Found(one["Key"], one["Size"], one["ETag"], one["LastModified"].timestamp())

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects of this bucket by their whole keys; those that are gone do not matter."""
        wanted = list(keys)
        for start in range(0, len(wanted), AT_ONCE):
            named = [{"Key": key} for key in wanted[start : start + AT_ONCE]]
            with explained(self):
                answer = client().delete_objects(Bucket=self.bucket, Delete={"Objects": named, "Quiet": True})
            if errors := answer.get("Errors"):
                raise PlaceError(f"{self}: could not delete {errors[0].get('Key')}: {errors[0].get('Message')}")

    def abort_uploads(self) -> int:
        """End the multipart uploads below this key that nobody completed, and free what they hold; how many.

        The bucket's are all listed: MinIO takes a prefix for a whole key (minio/minio#20989).
        """
        n = 0
        with explained(self):
            pages = client().get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
            for page in pages:
                for one in page.get("Uploads", ()):
                    if one["Key"].startswith(f"{self.key}/"):
                        client().abort_multipart_upload(Bucket=self.bucket, Key=one["Key"], UploadId=one["UploadId"])
                        n += 1
        return n

    def fingerprint(self) -> str:
        """BLAKE3 (hex) of the object: as written beside it for the ETag it has, else of its bytes."""
        etag = self.look().etag
        try:
            written = json.loads(self.beside(PRINT).read()[0])
            if written["etag"] == etag:
                return str(written["fingerprint"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            pass  # a writer that died between the two; the bytes know
        digest = blake3()
        with self.open() as file:
            while block := file.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def beside(self, suffix: str) -> Remote:
        """The object of that name and a suffix."""
        return Remote(self.bucket, self.key + suffix)


class _Reads:
    """Arrow's file of an object. Its own OSErrors do not tell a store that is away for a while from damaged bytes."""

    closed = False  # pa.PythonFile asks

    def __init__(self, at: Remote) -> None:
        self._at = at
        self._file = self._asked(lambda: filesystem().open_input_file(f"{at.bucket}/{at.key}"))
        self.seek, self.tell, self.close = self._file.seek, self._file.tell, self._file.close

    def read(self, n: int | None = None) -> bytes:
        return bytes(self._asked(lambda: self._file.read(n)))

    def read_buffer(self, n: int | None = None) -> pa.Buffer:
        return self._asked(lambda: self._file.read_buffer(n))

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise PlaceError(f"{self._at}: {error}") from None


class Refused(Exception):
    """A condition of a conditional write did not hold."""


@functools.cache
def client() -> Any:
    """boto3's client of the environment's endpoint and credentials; thread-safe."""
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise PlaceError("a store under s3:// needs boto3; install the extra: tsfm-lens[s3]") from None
    limits = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    session = boto3.Session()  # of its own: the default one is not told apart by environment
    region = session.region_name or "us-east-1"  # stores beside AWS do not care, and boto3 does not sign without
    return session.client("s3", config=limits, region_name=region)


@functools.cache
def filesystem() -> pafs.S3FileSystem:
    """Arrow's file system of the same endpoint and credentials."""
    from pyarrow import fs

    meta = client().meta
    scheme, _, host = meta.endpoint_url.partition("://")
    return fs.S3FileSystem(
        endpoint_override=host,
        scheme=scheme,
        region=meta.region_name,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=READ_SECONDS,
    )


@contextmanager
def explained(at: Remote) -> Iterator[None]:
    """botocore's errors as ours: what is missing, what was refused, and what to do about the rest."""
    from botocore import exceptions as failed  # type: ignore[import-untyped]

    try:
        yield
    except failed.ClientError as error:
        code, status = error.response["Error"].get("Code", ""), error.response["ResponseMetadata"]["HTTPStatusCode"]
        if code == "NoSuchBucket":
            raise PlaceError(_no_bucket(at)) from None
        if code in MISSING or status == 404:
            raise FileNotFoundError(f"{at}: no such object") from None
        if code in LOST:
            raise Refused(str(at)) from None
        if status in (401, 403):
            raise PlaceError(f"{at}: {_endpoint()} refused the credentials ({code}); see AWS_ACCESS_KEY_ID") from None
        raise PlaceError(f"{at}: {error}") from None
    except failed.NoCredentialsError:
        raise PlaceError(
            f"{at}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile"
        ) from None
    except failed.EndpointConnectionError:
        raise PlaceError(f"{at}: {_endpoint()} does not answer; see AWS_ENDPOINT_URL") from None
    except failed.BotoCoreError as error:
        raise PlaceError(f"{at}: {error}") from None


def _no_bucket(at: Remote) -> str:
    return f"{at}: no bucket {at.bucket!r} at {_endpoint()}; make it, or mend resources.store"


def _endpoint() -> str:
    return str(client().meta.endpoint_url)
