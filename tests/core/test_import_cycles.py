"""Imports that lead a message back to where it came from are left out, and only those."""

from edged.config.options import AccountOptions, ServiceImport, StreamImport
from edged.core.import_cycles import without_cycles


def service(importer: str, local: str, exporter: str, subject: str) -> AccountOptions:
    return AccountOptions(importer, service_imports=(ServiceImport(exporter, subject, local),))


def stream(
    importer: str, exporter: str, subject: str, *, prefix: str | None = None, to: str | None = None
) -> AccountOptions:
    return AccountOptions(importer, stream_imports=(StreamImport(exporter, subject, prefix, to),))


def dropped(*accounts: AccountOptions) -> int:
    kept, problems = without_cycles(accounts)
    before = sum(len(account.service_imports) + len(account.stream_imports) for account in accounts)
    after = sum(len(account.service_imports) + len(account.stream_imports) for account in kept)
    assert [account.name for account in kept] == [account.name for account in accounts]
    assert before - after == len(problems)
    return len(problems)


def test_self_import_is_left_out() -> None:
    assert dropped(service("A", "a", "A", "b")) == 1
    assert dropped(stream("A", "A", "a", prefix="p")) == 1


def test_self_import_cycle_of_two_services_loses_the_one_that_closes_it() -> None:
    assert dropped(service("A", "help", "B", "help"), service("B", "help", "A", "help")) == 1


def test_cycle_over_three_accounts_is_found() -> None:
    assert (
        dropped(service("A", "x.*", "B", "y.*"), service("B", "y.>", "C", "z"), service("C", "z", "A", "x.1"))
        == 1
    )


def test_services_on_other_subjects_are_no_cycle() -> None:
    assert dropped(service("A", "x", "B", "y"), service("B", "z", "A", "x")) == 0
    assert dropped(service("A", "x", "B", "y"), service("B", "y", "C", "z")) == 0


def test_streams_that_come_back_are_a_cycle_unless_renamed() -> None:
    assert dropped(stream("B", "A", "news.>"), stream("A", "B", "news.>")) == 1
    assert dropped(stream("B", "A", "news.>", prefix="from_a"), stream("A", "B", "news.>")) == 0
    assert dropped(stream("B", "A", "news.*", to="there.$1"), stream("A", "B", "there.x", to="news.y")) == 1


def test_wildcard_references_count_as_wildcards() -> None:
    assert dropped(service("A", "a.$1", "B", "b.*"), service("B", "b.{{wildcard(1)}}", "A", "a.*")) == 1


def test_many_imports_between_two_accounts_are_checked_quickly() -> None:
    imports = tuple(ServiceImport("B", f"s.{number}", f"s.{number}") for number in range(300))
    assert dropped(AccountOptions("A", service_imports=imports), service("B", "s.7", "A", "s.7")) == 1
