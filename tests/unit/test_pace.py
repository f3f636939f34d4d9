"""The projection takes no more of a processor than its share, and lets short pieces of work in between."""

from kvledger.api.projection.pace import BURST_SECONDS, Pace


class Machine:
    """A clock and a processor that move only as a test says; sleeping moves the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.used = 0.0

    def pace(self, share: float | None) -> Pace:
        return Pace(share, clock=lambda: self.now, processor=lambda: self.used, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds


def test_work_beyond_the_share_waits_until_it_is_paid_for() -> None:
    machine = Machine()
    pace = machine.pace(0.1)
    for _ in range(500):
        with pace.spell():
            machine.work(0.004)
    assert machine.used <= 0.1 * machine.now + BURST_SECONDS + 0.004


def test_a_debt_is_paid_by_whoever_comes_next() -> None:
    machine = Machine()
    pace = machine.pace(0.25)
    with pace.spell():
        machine.work(1.0)
    before = machine.now
    with pace.spell():
        pass
    assert machine.now - before >= (1.0 - BURST_SECONDS) / 0.25 - 1.0


def test_rest_is_not_saved_up_beyond_a_burst() -> None:
    machine = Machine()
    pace = machine.pace(0.1)
    machine.sleep(1_000)
    for _ in range(50):
        with pace.spell():
            machine.work(0.01)
    assert machine.now - 1_000 >= (50 * 0.01 - BURST_SECONDS - 0.01) / 0.1


def test_without_a_share_nothing_waits() -> None:
    machine = Machine()
    pace = machine.pace(None)
    for _ in range(100):
        with pace.spell():
            machine.work(1.0)
    assert machine.now == 100.0


def test_work_that_fails_is_paid_for_too() -> None:
    machine = Machine()
    pace = machine.pace(0.5)
    for _ in range(3):
        try:
            with pace.spell():
                machine.work(1.0)
                raise ZeroDivisionError
        except ZeroDivisionError:
            continue
    assert machine.now >= 2 * 2.0
