"""Access to an S3-compatible object store.

It supports whole objects, conditional writes and ranged reads; `store/uploads.py` writes objects in parts.

Writes and reads of whole objects use boto3, because Arrow's S3 file completes an upload that an error
interrupted and has no conditional PUT. Ranged reads (`Remote.open`) use pyarrow.fs. Endpoint, region and
credentials come from the environment (AWS_ENDPOINT_URL, AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID … or a
profile).
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

from tsfmscope.store.errors import LocationError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.fs as pafs

T = TypeVar("T")
SCHEME = "s3://"
# Bytes read at once to compute a checksum.
BLOCK = 32 * 2**20
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 60, 4
# Suffix of the object that contains the BLAKE3 of another object and the ETag for which it is valid.
CHECKSUM = ".checksum"
# Maximum number of objects that S3 deletes in one request.
AT_ONCE = 1_000
MISSING = {"404", "NoSuchKey", "NotFound"}
LOST = {"PreconditionFailed", "412", "ConditionalRequestConflict", "409"}


class ObjectEntry(NamedTuple):
    """Entry of an object in a listing.

    size: bytes. etag: changes whenever the bytes change. modified: seconds since the epoch by the store's
    clock.
    """

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, order=True)
class Remote:
    """Address of an object: `s3://bucket/key`. It is read like a file and never written in place."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, uri: str) -> Remote:
        """Parse s3://BUCKET/PREFIX. ValueError for any other text, or if the prefix is empty."""
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
        """Components of the key, split at slashes."""
        return PurePosixPath(self.key).parts

    @property
    def name(self) -> str:
        """Last component of the key."""
        return PurePosixPath(self.key).name

    @property
    def stem(self) -> str:
        """Last component of the key, without its suffix."""
        return PurePosixPath(self.key).stem

    @property
    def suffix(self) -> str:
        """Suffix of the key, such as `.parquet` or `.arrow`."""
        return PurePosixPath(self.key).suffix

    def open(self) -> pa.NativeFile:
        """Open the object for random access by ranged GETs.

        Raises FileNotFoundError if it is absent, and LocationError if the store does not respond or refuses.
        """
        import pyarrow as pa

        return pa.PythonFile(_Reads(self), mode="r")

    def read(self) -> tuple[bytes, str]:
        """Return all bytes and the ETag. FileNotFoundError if there is no such object."""
        with translate_errors(self):
            answer = client().get_object(Bucket=self.bucket, Key=self.key)
            return answer["Body"].read(), answer["ETag"]

    def head(self) -> ObjectEntry:
        """Return key, size, ETag and modification time. FileNotFoundError if there is no such object."""
        with translate_errors(self):
            head = client().head_object(Bucket=self.bucket, Key=self.key)
        return ObjectEntry(self.key, head["ContentLength"], head["ETag"], head["LastModified"].timestamp())

    def now(self) -> float:
        """Return the seconds since the epoch by the store's clock."""
        return parsedate_to_datetime(self.ready()["date"]).timestamp()

    def ready(self) -> dict[str, str]:
        """Return the headers of a HEAD request for the bucket.

        Raises LocationError if the bucket is missing, access is denied, or the store does not respond.
        """
        try:
            with translate_errors(self):
                return dict(client().head_bucket(Bucket=self.bucket)["ResponseMetadata"]["HTTPHeaders"])
        except FileNotFoundError:
            raise LocationError(_no_bucket(self)) from None

    def exists(self) -> bool:
        """Return whether the object exists."""
        try:
            self.head()
        except FileNotFoundError:
            return False
        return True

    def put(self, body: bytes) -> str:
        """Write the object, completely or not at all, and return its ETag."""
        with translate_errors(self):
            return str(client().put_object(Bucket=self.bucket, Key=self.key, Body=body)["ETag"])

    def put_if_match(self, body: bytes, etag: str | None) -> str | None:
        """Write the object only if it still has this ETag (None: only if it does not exist).

        Return the new ETag, or None if the condition does not hold. If a response was lost and the request
        repeated, the repeated request finds the object that the first one wrote. It is recognised by its
        body, so the body must be unique, for example contain a token or an epoch.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with translate_errors(self):
                answer = client().put_object(Bucket=self.bucket, Key=self.key, Body=body, **condition)
                return str(answer["ETag"])
        except ConditionFailed:
            try:
                content, now = self.read()
            except FileNotFoundError:
                return None
            return now if content == body else None

    def list(self) -> Iterator[ObjectEntry]:
        """Return every object whose key begins with this key and a slash, sorted by key."""
        with translate_errors(self):
            for page in client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.key}/"):
                for entry in page.get("Contents", ()):
                    yield ObjectEntry(entry["Key"], entry["Size"], entry["ETag"], entry["LastModified"].timestamp())

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects of this bucket by their full keys; objects that do not exist are ignored.

        Raises LocationError if the store cannot delete one of them.
        """
        all_keys = list(keys)
        for start in range(0, len(all_keys), AT_ONCE):
            batch = [{"Key": key} for key in all_keys[start : start + AT_ONCE]]
            with translate_errors(self):
                answer = client().delete_objects(Bucket=self.bucket, Delete={"Objects": batch, "Quiet": True})
            if errors := answer.get("Errors"):
                raise LocationError(f"{self}: could not delete {errors[0].get('Key')}: {errors[0].get('Message')}")

    def abort_uploads(self) -> int:
        """Abort the incomplete multipart uploads below this key, which frees their storage.

        Return their number.

        All uploads of the bucket are listed, because MinIO treats a prefix as a full key (minio/minio#20989).
        """
        n = 0
        with translate_errors(self):
            pages = client().get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
            for page in pages:
                for upload in page.get("Uploads", ()):
                    if upload["Key"].startswith(f"{self.key}/"):
                        client().abort_multipart_upload(
                            Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                        )
                        n += 1
        return n

    def fingerprint(self) -> str:
        """Return the BLAKE3 (hex) of the object.

        It is read from the .checksum object next to it if that is valid for the current ETag, else computed.
        """
        etag = self.head().etag
        try:
            checksum = json.loads(self.sibling(CHECKSUM).read()[0])
            if checksum["etag"] == etag:
                return str(checksum["fingerprint"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            # The writer died before it wrote the .checksum object, so the BLAKE3 is computed below.
            pass
        digest = blake3()
        with self.open() as file:
            while block := file.read(BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def sibling(self, suffix: str) -> Remote:
        """Return the address of the object with this key plus a suffix."""
        return Remote(self.bucket, self.key + suffix)


class _Reads:
    """Wrapper of Arrow's file of an object that raises LocationError instead of OSError.

    FileNotFoundError is raised unchanged. Arrow's own OSErrors do not distinguish a store that is temporarily
    unavailable from damaged bytes.
    """

    # pa.PythonFile reads this attribute.
    closed = False

    def __init__(self, at: Remote) -> None:
        self._at = at
        self._file = self._call(lambda: filesystem().open_input_file(f"{at.bucket}/{at.key}"))
        self.seek, self.tell, self.close = self._file.seek, self._file.tell, self._file.close

    def read(self, n: int | None = None) -> bytes:
        return bytes(self._call(lambda: self._file.read(n)))

    def read_buffer(self, n: int | None = None) -> pa.Buffer:
        return self._call(lambda: self._file.read_buffer(n))

    def _call(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LocationError(f"{self._at}: {error}") from None


class ConditionFailed(Exception):
    """The condition of a conditional write did not hold."""


@functools.cache
def client() -> Any:
    """Return boto3's S3 client for the endpoint and credentials of the environment; it is thread-safe.

    Raises LocationError if boto3 is not installed.
    """
    try:
        import boto3  # type: ignore[import-untyped]
        from botocore.config import Config  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise LocationError("a store under s3:// needs boto3; install the extra: tsfmscope[s3]") from None
    limits = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    # Not boto3's default session, because that one would be reused after the environment has changed.
    session = boto3.Session()
    # boto3 does not sign requests without a region; stores other than AWS ignore it.
    region = session.region_name or "us-east-1"
    return session.client("s3", config=limits, region_name=region)


@functools.cache
def filesystem() -> pafs.S3FileSystem:
    """Return Arrow's S3 file system for the same endpoint and credentials."""
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
def translate_errors(at: Remote) -> Iterator[None]:
    """Translate botocore's errors.

    FileNotFoundError: the object is missing. ConditionFailed: a condition did not hold. LocationError: all
    other errors, with a hint.
    """
    from botocore import exceptions as failed  # type: ignore[import-untyped]

    try:
        yield
    except failed.ClientError as error:
        code, status = error.response["Error"].get("Code", ""), error.response["ResponseMetadata"]["HTTPStatusCode"]
        if code == "NoSuchBucket":
            raise LocationError(_no_bucket(at)) from None
        if code in MISSING or status == 404:
            raise FileNotFoundError(f"{at}: no such object") from None
        if code in LOST:
            raise ConditionFailed(str(at)) from None
        if status in (401, 403):
            raise LocationError(
                f"{at}: {_endpoint()} refused the credentials ({code}); see AWS_ACCESS_KEY_ID"
            ) from None
        raise LocationError(f"{at}: {error}") from None
    except failed.NoCredentialsError:
        raise LocationError(
            f"{at}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile"
        ) from None
    except failed.EndpointConnectionError:
        raise LocationError(f"{at}: {_endpoint()} does not respond; see AWS_ENDPOINT_URL") from None
    except failed.BotoCoreError as error:
        raise LocationError(f"{at}: {error}") from None


def _no_bucket(at: Remote) -> str:
    return f"{at}: no bucket {at.bucket!r} at {_endpoint()}; create it, or correct resources.store"


def _endpoint() -> str:
    return str(client().meta.endpoint_url)
