"""The client that judges clusters takes bytes as they come, whole messages or not."""

from __future__ import annotations

import socket
import time
from threading import Thread

from tests.jepsen.connection import Connection

PAUSE_S = 0.05


def serve_in_pieces(listener: socket.socket, pieces: list[bytes]) -> None:
    """Greet one client, then send these with pauses between them."""
    client, _ = listener.accept()
    with client:
        while b"PING\r\n" not in client.recv(65536):
            pass
        client.sendall(b"INFO {}\r\nPONG\r\n")
        for piece in pieces:
            time.sleep(PAUSE_S)
            client.sendall(piece)
        client.recv(1)


def test_half_a_message_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pieces = [b"MSG I.1 1 5\r\nhe", b"llo", b"\r\n"]
        server = Thread(target=serve_in_pieces, args=(listener, pieces))
        server.start()
        with Connection(listener.getsockname()) as connection:
            arrived = connection.receive(10.0)
            nothing = connection.receive(PAUSE_S)
        server.join()
    assert [one.payload for one in arrived] == [b"hello"]
    assert nothing == []
