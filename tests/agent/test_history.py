"""Laws of a conversation's history, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.agent.history import (
    MessageHistory,
    decode_journal_message,
    encode_message_for_journal,
    find_turn_start_indexes,
    repair_calls_and_results,
)
from habitus.events import ToolCall
from habitus.llm.model import (
    AssistantMessage,
    ChatMessage,
    Image,
    PersonMessage,
    TextContent,
    ToolResultMessage,
    estimate_message_tokens,
)

ids = st.sampled_from(["a", "b", "c"])
tool_calls = st.builds(ToolCall, id=ids, name=st.just("tool"), arguments=st.text(max_size=20))
messages: st.SearchStrategy[ChatMessage] = st.one_of(
    st.builds(PersonMessage, parts=st.tuples(st.builds(TextContent, text=st.text(max_size=50)))),
    st.builds(
        AssistantMessage,
        text=st.text(max_size=50),
        calls=st.lists(tool_calls, max_size=3, unique_by=lambda call: call.id).map(tuple),
    ),
    st.builds(ToolResultMessage, call=ids, tool=st.just("tool"), content=st.text(max_size=200)),
)
histories = st.lists(messages, max_size=20)


def is_valid(found: list[ChatMessage]) -> bool:
    waiting: list[str] = []
    for message in found:
        if isinstance(message, ToolResultMessage):
            if message.call not in waiting:
                return False
            waiting.remove(message.call)
        elif waiting:
            return False
        else:
            waiting = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
    return not waiting


@pytest.mark.full
@given(histories)
def test_a_repaired_history_is_valid_and_stays_as_it_is(found: list[ChatMessage]) -> None:
    repaired, count = repair_calls_and_results(found)
    assert is_valid(repaired)
    assert repair_calls_and_results(repaired) == (repaired, 0)
    assert (count == 0) == (repaired == found)


@given(histories, st.integers(0, 200))
def test_shortening_drops_whole_turns_and_keeps_the_last(found: list[ChatMessage], budget: int) -> None:
    history = MessageHistory(repair_calls_and_results(found)[0])
    before = list(history.messages)
    history.drop_oldest_turns_to_fit(budget)
    kept = history.messages
    assert before[len(before) - len(kept) :] == kept
    assert is_valid(kept)
    starts = find_turn_start_indexes(before)
    if starts and kept != before:
        assert len(before) - len(kept) in starts
    if starts:
        assert sum(map(estimate_message_tokens, kept)) <= budget or len(find_turn_start_indexes(kept)) <= 1


@given(histories)
def test_any_turn_can_be_ended_and_followed(found: list[ChatMessage]) -> None:
    history = MessageHistory(found)
    history.make_valid_after_turn("stopped")
    assert is_valid(history.messages)
    if history.messages:
        last = history.messages[-1]
        assert isinstance(last, AssistantMessage)
        assert not last.calls


@given(messages)
def test_what_the_journal_keeps_is_what_was_said(message: ChatMessage) -> None:
    assert decode_journal_message(encode_message_for_journal(message)) == message


def test_a_small_image_is_kept_and_a_large_one_is_named() -> None:
    small = PersonMessage(parts=(Image(data=b"abc", media_type="image/png"),))
    assert decode_journal_message(encode_message_for_journal(small)) == small
    large = PersonMessage(parts=(Image(data=b"x" * 300_000, media_type="image/png"),))
    assert decode_journal_message(encode_message_for_journal(large)) == PersonMessage(
        parts=(TextContent(text="[an image of 300,000 bytes, image/png]"),)
    )
