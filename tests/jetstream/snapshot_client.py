"""Takes snapshots of streams from a real server and restores them into one, byte by byte on the wire."""

from __future__ import annotations

import json
from typing import Any

from tests.jetstream.raw_client import RawClient

# Small, so that most archives take several.
CHUNK_BYTES = 4096


class SnapshotClient(RawClient):
    """A client that also knows what backup tools do."""

    _snapshots = 0

    def snapshot(self, stream: str, consumers: bool = True) -> tuple[dict[str, Any], bytes]:
        """The answer to the request, with configuration and state, and the archive."""
        # Subscribed to once more, the chunks of the next snapshot would come twice.
        self._snapshots += 1
        deliver_subject = f"S.{self._snapshots}"
        self.subscribe(deliver_subject)
        request = {
            "deliver_subject": deliver_subject,
            "no_consumers": not consumers,
            "chunk_size": CHUNK_BYTES,
        }
        self.publish(
            f"$JS.API.STREAM.SNAPSHOT.{stream}".encode(), b"", json.dumps(request).encode(), b"R.snap"
        )
        answer: dict[str, Any] = {}
        archive = bytearray()
        is_complete = False
        # nats-server sends the answer and the chunks each by their own way: either may be first.
        while not (answer and is_complete):
            subject, reply, block, payload = self._receive_with_reply()
            if subject == b"R.snap":
                answer = json.loads(payload)
                assert "error" not in answer, answer
            elif subject == deliver_subject.encode():
                if not payload:
                    assert not block or b" 204" in block, block
                    is_complete = True
                archive += payload
                if reply:
                    # The server sends a window of chunks ahead of these.
                    self.publish(reply)
        return answer, bytes(archive)

    def restore(self, config: dict[str, Any], state: dict[str, Any], archive: bytes) -> dict[str, Any]:
        """Give an archive to the server; its last answer, which may be an error."""
        request = json.dumps({"config": config, "state": state}).encode()
        answer: dict[str, Any] = self.ask(f"$JS.API.STREAM.RESTORE.{config['name']}", b"", request).document
        assert "error" not in answer, answer
        subject = answer["deliver_subject"]
        for start in range(0, len(archive), CHUNK_BYTES):
            chunk_answer = self.ask(subject, b"", archive[start : start + CHUNK_BYTES])
            if chunk_answer.payload:
                failed: dict[str, Any] = chunk_answer.document
                return failed
        last: dict[str, Any] = self.ask(subject).document
        return last

    def pull(self, stream: str, consumer: str, batch: int) -> list[bytes]:
        """Fetch messages from a consumer; where to acknowledge them."""
        self.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode(),
            b"",
            json.dumps({"batch": batch}).encode(),
            b"R.pull",
        )
        return [self._receive_with_reply()[1] for _ in range(batch)]

    def _receive_with_reply(self) -> tuple[bytes, bytes, bytes, bytes]:
        while True:
            words = self._input.readline().split()
            if words and words[0] in (b"MSG", b"HMSG"):
                data = self._input.read(int(words[-1]) + 2)[:-2]
                has_headers = words[0] == b"HMSG"
                header_bytes = int(words[-2]) if has_headers else 0
                has_reply = len(words) == 5 + has_headers
                return words[1], words[3] if has_reply else b"", data[:header_bytes], data[header_bytes:]
            assert words and words[0] != b"-ERR", words
            if words[0] == b"PING":
                self.send(b"PONG\r\n")


# By the names of their servers.
Clients = dict[str, SnapshotClient]
