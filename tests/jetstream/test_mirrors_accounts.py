"""Origins in other accounts and domains: who may read them, and who answers for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.origin_pair import Document, OriginServer, create, publish

pytestmark = pytest.mark.real

ACCOUNTS = """
jetstream { store_dir: "${directory}/js", domain: HUB }
accounts {
  A {
    jetstream: enabled
    users: [{user: a, password: a}]
    exports: [{service: "$JS.API.CONSUMER.>"}, {stream: "DELIVER.>"}, {service: "$JS.FC.>"}]
  }
  B {
    jetstream: enabled
    users: [{user: b, password: b}]
    imports: [
      {service: {account: A, subject: "$JS.API.CONSUMER.>"}, to: "A.API.CONSUMER.>"}
      {stream: {account: A, subject: "DELIVER.>"}}
      {service: {account: A, subject: "$JS.FC.>"}}
    ]
  }
}
"""


def login(name: str) -> dict[str, str]:
    """What a client of an account says."""
    return {"user": name, "pass": name}


EXTERNAL = {"api": "A.API", "deliver": "DELIVER"}


@pytest.fixture(scope="module", params=["nats-server", "edged"])
def servers(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[OriginServer, OriginServer]]:
    """One server, seen from two accounts; the first one lets streams of it be read by the second."""
    directory = tmp_path_factory.mktemp(request.param)
    origin = OriginServer(request.param, directory, ACCOUNTS, **login("a"))
    yield origin, origin.seen_by(**login("b"))
    origin.stop()


@pytest.fixture
def accounts(servers: tuple[OriginServer, OriginServer]) -> Iterator[tuple[OriginServer, OriginServer]]:
    """The two accounts, without streams."""
    yield servers
    for server in servers:
        server.forget()


def test_a_stream_of_another_account_is_an_origin_where_it_is_exported(
    accounts: tuple[OriginServer, OriginServer],
) -> None:
    origin, reader = accounts
    create(origin, "O", subjects=["o.>"])
    publish(origin, "o.1", 3)
    create(reader, "M", mirror={"name": "O", "external": EXTERNAL})
    create(reader, "S", sources=[{"name": "O", "filter_subject": "o.*", "external": EXTERNAL}])
    info = reader.wait_last("M", 3)
    assert info["mirror"]["external"] == EXTERNAL
    reader.wait_last("S", 3)
    identity = origin.identity("O").encode()
    expected = b"NATS/1.0\r\nNats-Stream-Source: O:4trl36Z3 1 o.* > o.1 %b\r\n\r\n" % identity
    assert reader.messages("S")[0] == (1, "o.1", expected, b"0")


@pytest.mark.parametrize("servers", ["edged"], indirect=True)
def test_a_stream_that_is_not_exported_or_not_delivered_is_no_origin(
    accounts: tuple[OriginServer, OriginServer],
) -> None:
    origin, reader = accounts
    create(origin, "O", subjects=["o.>"])
    publish(origin, "o.1", 3)
    externals: list[Document] = [
        {"api": "B.API", "deliver": "DELIVER"},
        {"api": "A.API", "deliver": "ELSEWHERE"},
        {"api": "$JS.ELSEWHERE.API", "deliver": ""},
    ]
    for number, external in enumerate(externals):
        create(reader, f"M{number}", mirror={"name": "O", "external": external})
        info = reader.wait(f"M{number}", lambda info: "error" in info["mirror"])
        assert info["mirror"]["error"]["err_code"] == 10029
        assert info["state"]["messages"] == 0


@pytest.mark.parametrize("servers", ["edged"], indirect=True)
def test_the_api_of_the_own_domain_is_that_of_the_own_account(
    accounts: tuple[OriginServer, OriginServer],
) -> None:
    origin, reader = accounts
    create(origin, "O", subjects=["o.>"])
    create(reader, "O", subjects=["mine.>"])
    publish(reader, "mine.1", 2)
    create(reader, "M", mirror={"name": "O", "external": {"api": "$JS.HUB.API", "deliver": ""}})
    reader.wait_last("M", 2)


@pytest.mark.parametrize("servers", ["edged"], indirect=True)
def test_a_mirror_answers_direct_gets_for_an_origin_elsewhere(
    accounts: tuple[OriginServer, OriginServer],
) -> None:
    origin, reader = accounts
    create(origin, "O", subjects=["o.>"], allow_direct=True)
    publish(origin, "o.1", 2)
    create(reader, "M", mirror={"name": "O", "external": EXTERNAL}, mirror_direct=True)
    reader.wait_last("M", 2)
    assert reader.client.ask("$JS.API.DIRECT.GET.O.o.1").payload == b"1"
