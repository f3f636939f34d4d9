"""What goes between the service and its own process: frames, answers in any order, and silence."""

import asyncio
from itertools import count
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from kvledger.api.apart import link
from kvledger.api.apart.child import Answering
from kvledger.api.apart.link import Link, ProcessGone
from kvledger.api.apart.wire import (
    BODY_BYTES,
    HEAD_BYTES,
    NUMBERS,
    OPENING,
    PREFIX,
    THERE,
    BrokenFrame,
    Frame,
    Frames,
    frame,
)

SENT = [frame(1, {"a": "é"}, b"\x00body"), frame(2, {}), frame(3, [], b"x" * 300)]


@pytest.mark.parametrize("size", [1, 2, 7, 11, 12, 13, 100, 1_000])
def test_frames_are_whole_again_however_they_were_cut(size: int) -> None:
    data = b"".join(one.encoded() for one in SENT)
    frames = Frames()
    pieces = [data[place : place + size] for place in range(0, len(data), size)]
    assert [one for piece in pieces for one in frames.fed(piece)] == SENT
    assert SENT[0].told() == {"a": "é"}


@pytest.mark.parametrize("claims", [(HEAD_BYTES + 1, 0), (0, BODY_BYTES + 1)])
def test_a_frame_that_claims_more_than_there_may_be_is_refused(claims: tuple[int, int]) -> None:
    with pytest.raises(BrokenFrame):
        list(Frames().fed(PREFIX.pack(1, *claims)))


def test_a_head_that_is_no_json_is_refused() -> None:
    with pytest.raises(BrokenFrame):
        Frame(1, b"{").told()


class Sent(asyncio.Transport):
    """The other side of a link: takes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: Any) -> None:
        self.data += data

    def abort(self) -> None:
        self.data = b"aborted"


def test_each_question_gets_its_own_answer_in_whatever_order_they_come() -> None:
    async def asked() -> list[bytes]:
        link, sent = Link(), Sent()
        link.connection_made(sent)
        questions = [asyncio.ensure_future(link.ask({"n": n}, b"")) for n in range(3)]
        await asyncio.sleep(0)
        for one in reversed(list(Frames().fed(sent.data))):
            told = {"status": 200, "headers": []}
            link.data_received(frame(one.number, told, str(one.told()["n"]).encode()).encoded())
        return [answer.body for answer in await asyncio.gather(*questions)]

    assert asyncio.run(asked()) == [b"0", b"1", b"2"]


def test_whoever_waits_when_the_process_ends_is_told_so_and_whoever_comes_later_too() -> None:
    async def asked() -> None:
        link = Link()
        link.connection_made(Sent())
        question = asyncio.ensure_future(link.ask({}, b""))
        await asyncio.sleep(0)
        link.connection_lost(None)
        for lost in (question, link.ask({}, b"")):
            with pytest.raises(ProcessGone):
                await lost
        assert link.ended.is_set()

    asyncio.run(asked())


def test_an_answer_that_is_no_frame_ends_the_connection() -> None:
    async def asked() -> None:
        link, sent = Link(), Sent()
        link.connection_made(sent)
        question = asyncio.ensure_future(link.ask({}, b""))
        await asyncio.sleep(0)
        (one,) = Frames().fed(sent.data)
        link.data_received(Frame(one.number, b"no json").encoded())
        with pytest.raises(ProcessGone):
            await question
        assert sent.data == b"aborted"

    asyncio.run(asked())


def test_numbers_of_questions_begin_anew_before_they_outgrow_a_frame_and_none_is_the_openings() -> None:
    async def asked() -> list[int]:
        opened, sent = Link(), Sent()
        opened.connection_made(sent)
        opened._numbers = count(NUMBERS - 2)
        for _ in range(4):
            question = asyncio.ensure_future(opened.ask({}, b""))
            await asyncio.sleep(0)
            (one,) = Frames().fed(sent.data)
            sent.data = b""
            opened.data_received(frame(one.number, {"status": 200, "headers": []}).encoded())
            assert (await question).status == 200
            numbers.append(one.number)
        return numbers

    numbers: list[int] = []
    assert asyncio.run(asked()) == [NUMBERS - 1, NUMBERS, 1, 2]
    assert OPENING not in numbers


@pytest.mark.parametrize("is_there", [True, False], ids=["it says that it is there", "it is silent"])
def test_a_process_that_says_nothing_is_given_up_and_one_that_takes_long_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(link, "LOOK_SECONDS", 0.0)
    asked_whether_there = 0

    class Process(Sent):
        """Answers a question only after it was asked ten times whether it is there."""

        def write(self, data: Any) -> None:
            nonlocal asked_whether_there
            for one in Frames().fed(data):
                if one.number != THERE:
                    self.question = one.number
                    continue
                asked_whether_there += 1
                if is_there:
                    opened.data_received(frame(THERE, {}).encoded())
                if asked_whether_there == 10:
                    opened.data_received(frame(self.question, {"status": 200, "headers": []}).encoded())

        def abort(self) -> None:
            opened.connection_lost(None)

    async def asked() -> None:
        opened.connection_made(Process())
        if is_there:
            assert (await opened.ask({}, b"")).status == 200
            return
        with pytest.raises(ProcessGone):
            await opened.ask({}, b"")
        assert opened.ended.is_set()

    opened = Link()
    asyncio.run(asked())
    assert asked_whether_there == (10 if is_there else 1)


def test_the_process_says_that_it_is_there_while_a_question_is_under_way() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def asked() -> list[int]:
        answering, sent = Answering(app, Frames()), Sent()
        answering.connection_made(sent)
        question = frame(1, {"method": "GET", "path": "/", "raw_path": "/", "query": "", "headers": []})
        answering.data_received(question.encoded() + frame(THERE, {}).encoded())
        await asyncio.sleep(0)
        return [one.number for one in Frames().fed(sent.data)]

    assert asyncio.run(asked()) == [THERE]


@pytest.mark.parametrize("head", [{"no": "question"}, {"method": "GET"}])
def test_a_question_that_gets_no_answer_ends_the_process_and_keeps_nobody_waiting(
    head: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Answers nothing."""

    async def asked() -> bool:
        answering = Answering(app, Frames())
        answering.connection_made(Sent())
        answering.data_received(frame(1, head).encoded())
        await asyncio.wait_for(answering.ended.wait(), 30)
        return answering.ended.is_set()

    assert asyncio.run(asked())
    assert "failed at a question" in caplog.text
