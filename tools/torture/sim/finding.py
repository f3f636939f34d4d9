"""What a simulation has found: which check failed, and what it says."""


class Finding(Exception):
    """A check failed. `check` names it; two findings of one check are one kind of fault."""

    def __init__(self, check: str, sentence: str) -> None:
        super().__init__(f"{check}: {sentence}")
        self.check = check
        self.sentence = sentence


def require(holds: bool, check: str, *found: object) -> None:
    """Raise a Finding of `check`, told by `found`, unless it holds."""
    if not holds:
        raise Finding(check, " ".join(map(str, found)))


def equal(found: object, wanted: object, check: str, what: str) -> None:
    """Raise a Finding of `check` unless both are the same."""
    if found != wanted:
        raise Finding(check, f"{what} is {found}, and should be {wanted}")
