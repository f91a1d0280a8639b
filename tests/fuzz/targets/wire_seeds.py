"""Conversations of clients and of leaf nodes, as seeds for all that reads the wire protocol."""

from __future__ import annotations

OPERATIONS: tuple[bytes, ...] = (
    b"PING\r\n",
    b"PONG\r\n",
    b"+OK\r\n",
    b"-ERR 'x'\r\n",
    b"INFO {}\r\n",
    b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n',
    b'CONNECT {"user":"a","pass":"b"}\r\n',
    b"SUB a.b 1\r\n",
    b"SUB a.* q 2\r\n",
    b"SUB > 3\r\n",
    b"UNSUB 1\r\n",
    b"UNSUB 2 3\r\n",
    b"PUB a.b 5\r\nhello\r\n",
    b"PUB a.b reply.1 0\r\n\r\n",
    b"pub\ta.c  5 \nhello\r\n",
    b"HPUB a.b 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"HPUB a.b r 22 22\r\nNATS/1.0\r\nKey: Val\r\n\r\n\r\n",
    b"PUB a.b 40\r\n" + b"PUB a.b 5\r\nhello\r\n" * 2 + b"PING\r\n" + b"\r\n",
)

SEEDS: tuple[bytes, ...] = (
    *OPERATIONS,
    b"".join(OPERATIONS[:3] + OPERATIONS[4:]),
    b'CONNECT {"headers":true}\r\nPING\r\nSUB a.> 1\r\nPUB a.b 2\r\nhi\r\n'
    b"PUB a.c r 2\r\nho\r\nUNSUB 1\r\nPING\r\n",
    b"PUB a.b 1\r\nx\r\n" * 20,
    b"SUB a.b q 1\r\nSUB a.b q 2\r\nSUB a.* 3\r\n" + b"PUB a.b r 1\r\nx\r\n" * 4 + b"UNSUB 3 1\r\n",
    b"",
)

WORDS: tuple[bytes, ...] = (
    *(b"PUB ", b"HPUB ", b"SUB ", b"UNSUB ", b"PING", b"PONG", b"CONNECT ", b"INFO ", b"+OK", b"-ERR "),
    *(b"\r\n", b"\r", b"\n", b" ", b"\t", b"\r\n\r\n", b"a.b", b"a.*", b">", b"*", b".", b"..", b"{", b"}"),
    *(b"NATS/1.0\r\n", b"5", b"12", b"17", b"100", b"101", b"x" * 64, b"x" * 101, b"_R_.x", b"$JS.ACK.x"),
    *(b"pub ", b"Hpub\t", b"\xff\xfe", b"\x00", *OPERATIONS),
)

LEAF_OPERATIONS: tuple[bytes, ...] = (
    *OPERATIONS[:6],
    b"LS+ a.b\r\n",
    b"LS+ a.* q 2\r\n",
    b"LS- a.b\r\n",
    b"LS- a.* q\r\n",
    b"LMSG a.b 5\r\nhello\r\n",
    b"lmsg\ta.c reply.1  0 \n\r\n",
    b"LMSG a.b | q 5\r\nhello\r\n",
    b"LMSG a.b + r q p 5\r\nhello\r\n",
    b"LMSG d $JS.ACK.S.C.1.7.7.17.0@a.b 5\r\nhello\r\n",
    b"HMSG a.b r 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"HMSG a.b | q 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HMSG a.b + r q 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"LMSG a.b | q 38\r\n" + b"LMSG a.b 5\r\nhello\r\n" * 2 + b"\r\n",
)

LEAF_SEEDS: tuple[bytes, ...] = (
    *LEAF_OPERATIONS,
    b"".join(LEAF_OPERATIONS),
    b"LMSG a.b 1\r\nx\r\n" * 20 + b"LMSG a.b | q 1\r\nx\r\n" * 3 + b"LMSG a.b 1\r\nx\r\n",
    b"LS+ a.b\r\nLS+ a.* q 3\r\n" * 10 + b"LS- a.b\r\n",
    b"",
)

LEAF_WORDS: tuple[bytes, ...] = (
    *(b"LMSG ", b"HMSG ", b"LS+ ", b"LS- ", b"PING", b"PONG", b"CONNECT ", b"INFO ", b"+OK", b"-ERR ", b"'"),
    *(b"\r\n", b"\r", b"\n", b" ", b"\t", b"\r\n\r\n", b"NATS/1.0\r\n", b"a.b", b"q", b" + r ", b" | "),
    *(b"+", b"|", b"@", b"0", b"5", b"12", b"17", b"100", b"101", b"x" * 64, b"x" * 101),
    *(b"lmsg ", b"Hmsg\t", b"PUB ", b"\xff\xfe", b"\x00", *LEAF_OPERATIONS),
)
