"""Uploads of objects in parts, with their BLAKE3; an object is visible only when it is complete.

Arrow's own S3 file is not used, because after an error it completes the upload with the bytes written so far.
"""

from __future__ import annotations

import io
import json
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from blake3 import blake3

from tsfmscope.store.errors import StoreError
from tsfmscope.store.objects import CHECKSUM, ConditionFailed, Remote, client, translate_errors

logger = logging.getLogger(__name__)
# Bytes per part of a multipart upload. S3 allows 10,000 parts, so an object can have 312 GiB.
PART = 32 * 2**20
# Parts being sent while the next one is encoded; each takes PART bytes of memory.
IN_FLIGHT = 2


class Upload(io.RawIOBase):
    """Object that is being written: one PUT if it is small, else a multipart upload, which any error aborts.

    After the block, it has `size` (bytes), `fingerprint` (BLAKE3 of the bytes written, hex) and `etag`.
    """

    def __init__(self, target: Remote) -> None:
        super().__init__()
        self.target = target
        self.size = 0
        self.etag = ""
        self._digest = blake3()
        self._buffer = bytearray()
        self._id: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._pool = ThreadPoolExecutor(IN_FLIGHT, "upload")

    @property
    def fingerprint(self) -> str:
        """BLAKE3 (hex) of the bytes so far."""
        return str(self._digest.hexdigest())

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._complete()
            else:
                self._abort()
        finally:
            self._pool.shutdown()
            self.close()

    def writable(self) -> bool:
        """Return True, as the io protocol requires of a file for writing."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.size

    def write(self, data: Any) -> int:
        """Buffer bytes, send each full part, and return the number of bytes taken."""
        block = memoryview(data).cast("B")
        self._digest.update(block)
        self._buffer += block
        self.size += len(block)
        while len(self._buffer) >= PART:
            self._send(bytes(self._buffer[:PART]))
            del self._buffer[:PART]
        return len(block)

    def sign(self) -> None:
        """Write the .checksum object: the BLAKE3 of this object and the ETag for which it is valid."""
        facts = {"fingerprint": self.fingerprint, "etag": self.etag}
        self.target.sibling(CHECKSUM).put(json.dumps(facts).encode())

    def _send(self, body: bytes) -> None:
        address = {"Bucket": self.target.bucket, "Key": self.target.key}
        if self._id is None:
            with translate_errors(self.target):
                self._id = client().create_multipart_upload(**address)["UploadId"]
        if len(self._parts) >= IN_FLIGHT:
            # Waiting here limits the memory and raises errors early.
            self._parts[-IN_FLIGHT].result()
        number = len(self._parts) + 1

        def send() -> dict[str, Any]:
            with translate_errors(self.target):
                response = client().upload_part(**address, UploadId=self._id, PartNumber=number, Body=body)
            return {"ETag": response["ETag"], "PartNumber": number}

        self._parts.append(self._pool.submit(send))

    def _complete(self) -> None:
        if self._id is None:
            self.etag = self.target.put(bytes(self._buffer))
            return
        try:
            if self._buffer:
                self._send(bytes(self._buffer))
            parts = {"Parts": [part.result() for part in self._parts]}
            address = {"Bucket": self.target.bucket, "Key": self.target.key, "UploadId": self._id}
            with translate_errors(self.target):
                self.etag = str(client().complete_multipart_upload(**address, MultipartUpload=parts)["ETag"])
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        """Abort the upload. An error here is only logged, so that the original error is raised.

        The next driver aborts what is left.
        """
        # A part that arrived after the abort would be stored and billed.
        self._pool.shutdown(cancel_futures=True)
        if self._id is None:
            return
        try:
            with translate_errors(self.target):
                client().abort_multipart_upload(Bucket=self.target.bucket, Key=self.target.key, UploadId=self._id)
        except (StoreError, OSError, ConditionFailed) as error:
            logger.warning("could not abort the upload of %s: %s", self.target, error)
