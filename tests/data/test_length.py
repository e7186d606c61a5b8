from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runner.data.length import Fitted, TokenSpan, labels_of, truncate_answer

# Two turns: prompt 0-2, answer 3-6 (its end token is 6), prompt 7-9, answer 10-14 (end token 14), line break 15.
IDS = list(range(100, 116))
SPANS = (TokenSpan(3, 7, 1, True), TokenSpan(10, 15, 1, True))


def test_a_row_that_fits_is_untouched():
    assert truncate_answer(IDS, SPANS, 16) == Fitted(IDS, SPANS, False)


def test_only_the_line_break_goes():
    assert truncate_answer(IDS, SPANS, 15) == Fitted(IDS[:15], SPANS, False)


def test_the_last_answer_is_cut_and_ended():
    fitted = truncate_answer(IDS, SPANS, 13)
    assert fitted.ids == [*IDS[:12], 114]
    assert fitted.spans == (SPANS[0], TokenSpan(10, 13, 1, True))
    assert fitted.cut
    assert truncate_answer(IDS, SPANS, 12).ids == [*IDS[:11], 114]


def test_no_room_for_the_last_answer_falls_back_to_an_earlier_one():
    fitted = truncate_answer(IDS, SPANS, 11)
    assert (fitted.ids, fitted.spans, fitted.cut) == (IDS[:7], (SPANS[0],), True)
    fitted = truncate_answer(IDS, SPANS, 5)
    assert fitted.ids == [100, 101, 102, 103, 106]


def test_a_prompt_without_room_gives_nothing():
    assert truncate_answer(IDS, SPANS, 4) is None
    assert truncate_answer(IDS, (TokenSpan(3, 7, 1, False),), 10) is None


def test_a_character_of_several_tokens_is_not_parted():
    # Tokens 3, 4, 5 are the bytes of one character, as are 6, 7, 8; then comes the end token.
    offsets = [(0, 1), (1, 2), (2, 3), (3, 4), (3, 4), (3, 4), (4, 5), (4, 5), (4, 5), (5, 15)]
    ids, spans = list(range(10)), (TokenSpan(3, 10, 1, True),)
    assert truncate_answer(ids, spans, 9, offsets).ids == [0, 1, 2, 3, 4, 5, 9]
    assert truncate_answer(ids, spans, 7, offsets).ids == [0, 1, 2, 3, 4, 5, 9]
    # With room for half a character only, half a character is better than no answer at all.
    assert truncate_answer(ids, spans, 6, offsets).ids == [0, 1, 2, 3, 4, 9]


def test_labels():
    fitted = Fitted(IDS, SPANS, False)
    masked = [-100]
    assert labels_of(fitted, "all") == IDS
    assert labels_of(fitted, "answers") == masked * 3 + IDS[3:7] + masked * 3 + IDS[10:15] + masked
    assert labels_of(fitted, "last_answer") == masked * 10 + IDS[10:15] + masked
    context = Fitted(IDS, (SPANS[0], TokenSpan(10, 15, 1, False)), False)
    assert labels_of(context, "last_answer") == masked * 3 + IDS[3:7] + masked * 9


@st.composite
def layouts(draw):
    at, spans = 0, []
    for _ in range(draw(st.integers(1, 4))):
        at += draw(st.integers(1, 8))
        body, tail = draw(st.integers(1, 10)), draw(st.integers(0, 2))
        spans.append(TokenSpan(at, at + body + tail, tail, draw(st.booleans())))
        at += body + tail
    return list(range(at + draw(st.integers(0, 2)))), spans


@given(layouts(), st.integers(2, 60), st.sampled_from(["answers", "last_answer", "all"]))
def test_a_row_keeps_supervision_or_is_given_up(layout, limit, train_on):
    ids, spans = layout
    fitted = truncate_answer(ids, spans, limit)
    trained = [s for s in spans if s.trained]
    has_room = any(s.end <= limit or s.start + 1 + s.tail <= limit for s in trained)
    if fitted is None:
        assert len(ids) > limit and not has_room
        return
    assert len(fitted.ids) <= limit
    labels = labels_of(fitted, train_on)
    if trained:
        assert any(label != -100 for label in labels)
    if len(ids) > limit:
        last = fitted.spans[-1]
        original = spans[len(fitted.spans) - 1]
        assert last.end == len(fitted.ids)
        assert last.end - last.tail > last.start
        assert fitted.ids[: last.end - last.tail] == ids[: last.end - last.tail]
        assert fitted.ids[len(fitted.ids) - last.tail :] == ids[original.end - original.tail : original.end]
        assert labels[-1] == fitted.ids[-1]
