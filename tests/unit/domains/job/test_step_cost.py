"""What messages cost is found again in passes that were made of it, and predictions follow."""

from __future__ import annotations

import pytest

from preflight.domains.job.step_cost import (
    LATENCY,
    Price,
    TrainingStep,
    accumulated,
    efficiency,
    exposed,
    finish,
    halved,
    joined,
    on_ranks,
    price_of,
    sent_once,
)
from preflight.domains.job.step_parts import Backward, Sent

MB = 1_000_000
TEN_A_SECOND = Price(1 / (10 * MB))
SENT = (Sent(0.1, 2 * MB, True), Sent(0.2, MB, True))
"""The first message is on its way until 0.3, the second until 0.4."""


def passes(price: Price, sent: tuple[Sent, ...] = SENT, count: int = 8) -> tuple[Backward, ...]:
    return (Backward(finish(sent, price), sent),) * count


def step(price: Price = TEN_A_SECOND, sent: tuple[Sent, ...] = SENT) -> TrainingStep:
    made = passes(price, sent)
    return TrainingStep(made[0].seconds + 0.1, 0.02, 1.0, made)


def test_messages_go_one_after_the_other() -> None:
    assert finish(SENT, TEN_A_SECOND) == pytest.approx(0.4)
    assert finish((Sent(0.1, MB), Sent(0.9, MB)), TEN_A_SECOND) == pytest.approx(1.0)
    assert finish(SENT, Price(0.0, 0.3)) == pytest.approx(0.7)
    assert finish((), TEN_A_SECOND) == 0.0


def test_the_price_of_a_byte_is_found_again() -> None:
    found = price_of(passes(TEN_A_SECOND))
    assert found is not None
    assert found.byte == pytest.approx(TEN_A_SECOND.byte)
    assert (found.call, found.low, found.high) == (0.0, 1.0, 1.0)


def test_small_messages_have_a_price_each() -> None:
    small = tuple(Sent(0.01 * n, 400) for n in range(10))
    found = price_of(passes(Price(0.0, 0.02), small))
    assert found is not None
    assert (found.byte, found.call) == (0.0, pytest.approx(0.02))


def test_the_spread_of_the_passes_is_kept() -> None:
    slow = passes(TEN_A_SECOND.times(2.0, 2.0), count=3)
    found = price_of((*passes(TEN_A_SECOND), *slow))
    assert found is not None
    assert found.low == 1.0
    assert found.high > 1.5


def test_too_few_passes_have_no_price() -> None:
    assert price_of(passes(TEN_A_SECOND, count=5)) is None
    assert price_of((Backward(0.3),) * 20) is None
    assert price_of((Backward(0.0, (Sent(0.0, 8),)),) * 20) is None


def test_what_sticks_out_is_what_a_step_waits() -> None:
    (one, *_) = passes(TEN_A_SECOND)
    assert exposed(one) == pytest.approx(0.2)
    assert exposed(Backward(0.3)) == 0.0
    made = step()
    assert (made.whole, made.exposed, made.alone) == tuple(map(pytest.approx, (0.5, 0.2, 0.3)))
    assert made.bytes == 3 * MB


def test_half_as_many_bytes() -> None:
    made = step()
    # on its way until 0.2 and 0.25
    assert made.with_messages(TEN_A_SECOND, halved) == pytest.approx(0.35)
    assert halved([Sent(0.1, 8, False)]) == [Sent(0.1, 8, False)]


def test_fewer_messages() -> None:
    each = Price(0.0, 0.1)
    small = tuple(Sent(0.01 * n, 400) for n in range(4))
    made = step(each, small)
    assert made.with_messages(each) == pytest.approx(made.whole)
    assert made.with_messages(each, joined) == pytest.approx(made.alone + 0.1)


def test_no_sync_saves_all_but_one_wait_and_optimizer() -> None:
    assert accumulated(step(), 4) == pytest.approx(0.5 - 0.75 * (0.2 + 0.02))


def test_a_step_of_four_batches_has_one_optimizer_whatever_they_send() -> None:
    made = passes(TEN_A_SECOND)
    four = TrainingStep(4 * 0.48 + 0.02, 0.02, 4.0, made)
    assert sent_once(four) == pytest.approx(four.whole - 0.75 * 4 * 0.2)
    quiet = TrainingStep(four.whole, 0.02, 4.0, (*made, *(Backward(0.3),) * (3 * len(made))))
    assert sent_once(quiet) == pytest.approx(quiet.whole)
    assert sent_once(TrainingStep(0.5, 0.02, 4.0, ())) == 0.5


def test_passes_that_send_nothing_wait_for_nothing() -> None:
    made = passes(TEN_A_SECOND, count=4) + (Backward(0.3),) * 12
    accumulating = TrainingStep(2.0, 0.02, 4.0, made)
    assert accumulating.syncs == 1.0
    assert accumulating.exposed == pytest.approx(0.2)


def test_a_ring_sends_more_on_more_ranks() -> None:
    four = on_ranks(Price(1.0, 1.0), 2, 4)
    assert (four.byte, four.call) == (1.5, 3.0)
    assert on_ranks(four, 4, 2) == Price(1.0, 1.0)


def test_efficiency_falls_and_is_uncertain() -> None:
    price = Price(TEN_A_SECOND.byte, 0.0, 0.8, 1.25)
    two, four = (efficiency(step(), price, 2, n) for n in (2, 4))
    assert two[0] == pytest.approx(0.3 / 0.5)
    assert four[0] == pytest.approx(0.3 / 0.65)
    assert four[1] < four[0] < four[2]


def test_what_a_message_costs_by_itself_grows_faster_with_the_ranks_than_what_its_bytes_do() -> (
    None
):
    """Passes that are all alike don't tell the two apart, so that the band has both."""
    usual, least, most = efficiency(step(), TEN_A_SECOND, 2, 32)
    seen, fixed = step(), price_of(step().passes, LATENCY)
    assert fixed is not None
    assert least == pytest.approx(seen.alone / seen.with_messages(on_ranks(fixed, 2, 32)))
    assert least < 0.9 * usual
    assert most == usual
    # of messages that are small it is known what each costs
    each = Price(0.0, 0.02)
    small = step(each, tuple(Sent(0.01 * n, 400) for n in range(10)))
    assert len(set(efficiency(small, each, 2, 32))) == 1


def test_what_each_message_costs_by_itself_is_not_its_bytes() -> None:
    """Messages of one size don't tell the two apart: the price of a byte is the most that it can
    be, or what is left beside so much for each."""
    both = Price(1 / (10 * MB), 0.02)
    seen = passes(both)
    most, rest = price_of(seen), price_of(seen, 0.02)
    assert most is not None
    assert rest is not None
    assert most.byte > both.byte
    assert (rest.byte, rest.call) == (pytest.approx(both.byte), 0.02)
    # a message that takes less than that costs nothing for its bytes
    assert price_of(seen, 9.0) == Price(0.0, 9.0)
