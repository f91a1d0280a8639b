"""What can go wrong in the store, named by what the caller can do about it."""


class StoreError(Exception):
    """Something about the store's files."""

    def __init__(self, what: str, path: str = "", offset: int | None = None) -> None:
        place = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{what}: {place}" if place else what)
        self.what = what
        self.path = path
        self.offset = offset


class StoreFull(StoreError):  # noqa: N818 - says what happened
    """There is no room. Nothing was stored; writing may work again later."""


class StoreBroken(StoreError):  # noqa: N818 - says what happened
    """The disk or the store's own files do not do what they must. A person has to look."""


class NotLeader(StoreError):  # noqa: N818 - says what happened
    """Another node decides about this group, or nobody does yet. Nothing was stored here.

    `leader` is the node that leads, 0 while nobody is known to.
    """

    def __init__(self, leader: int = 0) -> None:
        super().__init__("this node does not lead the group")
        self.leader = leader


class LeadershipLost(StoreError):  # noqa: N818 - says what happened
    """This node took the command and does not lead any more: it may or may not become part of the log."""

    def __init__(self) -> None:
        super().__init__("the leader changed before the command was committed")


class OutcomeUnknown(StoreError):  # noqa: N818 - says what happened
    """The disk failed while a command was being written: it may or may not be there after a restart."""


class Damaged(StoreError):  # noqa: N818 - says what happened
    """Bytes that were written are not what is read. What they held is lost unless somebody else has it."""

    # The disk did not give all of them now: it may another time, so nothing is to be given up for it.
    may_pass = False


def is_damage(error: StoreError | OSError) -> bool:
    """Whether something was read and is bad, and not just refused: what is damaged stays so."""
    return isinstance(error, Damaged) and not error.may_pass
