"""Objects as they are written: in parts, with their BLAKE3, and never visible unless they are whole.

Arrow's own S3 file is not used: when an error cuts the writing off it completes the upload with what it has.
"""

from __future__ import annotations

import io
import json
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from blake3 import blake3

from store.errors import StoreError
from store.objects import PRINT, Refused, Remote, client, explained

logger = logging.getLogger(__name__)
PART = 32 * 2**20  # bytes of a multipart upload's part: 10,000 parts, the most there may be, are 312 GiB
IN_FLIGHT = 2  # parts under way while the next is encoded; each takes PART of memory


class Upload(io.RawIOBase):
    """An object that is being written: one PUT where it is small, else a multipart upload, aborted on any error.

    After the block: `size` (bytes), `fingerprint` (BLAKE3 of what was written) and `etag`.
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
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes so far."""
        return self.size

    def write(self, data: Any) -> int:
        """Take bytes; a full part is sent."""
        block = memoryview(data).cast("B")
        self._digest.update(block)
        self._buffer += block
        self.size += len(block)
        while len(self._buffer) >= PART:
            self._send(bytes(self._buffer[:PART]))
            del self._buffer[:PART]
        return len(block)

    def sign(self) -> None:
        """Write beside the object which BLAKE3 belongs to its ETag."""
        facts = {"fingerprint": self.fingerprint, "etag": self.etag}
        self.target.beside(PRINT).put(json.dumps(facts).encode())

    def _send(self, body: bytes) -> None:
        where = {"Bucket": self.target.bucket, "Key": self.target.key}
        if self._id is None:
            with explained(self.target):
                self._id = client().create_multipart_upload(**where)["UploadId"]
        if len(self._parts) >= IN_FLIGHT:
            self._parts[-IN_FLIGHT].result()  # bounds the memory, and raises early
        number = len(self._parts) + 1

        def send() -> dict[str, Any]:
            with explained(self.target):
                done = client().upload_part(**where, UploadId=self._id, PartNumber=number, Body=body)
            return {"ETag": done["ETag"], "PartNumber": number}

        self._parts.append(self._pool.submit(send))

    def _complete(self) -> None:
        if self._id is None:
            self.etag = self.target.put(bytes(self._buffer))
            return
        try:
            if self._buffer:
                self._send(bytes(self._buffer))
            parts = {"Parts": [part.result() for part in self._parts]}
            where = {"Bucket": self.target.bucket, "Key": self.target.key, "UploadId": self._id}
            with explained(self.target):
                self.etag = str(client().complete_multipart_upload(**where, MultipartUpload=parts)["ETag"])
        except BaseException:
            self._abort()
            raise

    def _abort(self) -> None:
        """What cut the upload off stays the error, whatever comes of this; the next driver ends what is left."""
        self._pool.shutdown(cancel_futures=True)  # a part that arrives after the abort would be kept and paid for
        if self._id is None:
            return
        try:
            with explained(self.target):
                client().abort_multipart_upload(Bucket=self.target.bucket, Key=self.target.key, UploadId=self._id)
        except (StoreError, OSError, Refused) as error:
            logger.warning("could not abort the upload of %s: %s", self.target, error)
