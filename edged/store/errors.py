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


class OutcomeUnknown(StoreError):  # noqa: N818 - says what happened
    """The disk failed while a command was being written: it may or may not be there after a restart."""


class Damaged(StoreError):  # noqa: N818 - says what happened
    """Bytes that were written are not what is read. What they held is lost unless somebody else has it."""
