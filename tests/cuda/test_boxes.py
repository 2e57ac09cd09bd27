"""The boxes of sums on a GPU: the elements that they cover, and their layout in shared memory."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layoutkit.kernels.cuda.accumulate import choose
from layoutkit.kernels.cuda.policy import LINE, THREADS

# For each kind of sum: items of a word, bytes of an item in shared memory, and items of a box.
KINDS = [(4, 4, 4096), (8, 2, 8192), (8, 2, 4096), (2, 2, 4096), (8, 4, 8192), (2, 4, 4096),
         (2, 8, 2048), (4, 8, 4096), (8, 8, 4096), (16, 8, 4096), (16, 1, 4096), (4, 1, 4096),
         (1, 16, 1024)]  # fmt: skip


# The kinds whose boxes for three layouts have rows of less than 64 bytes.
SHORT = [(8, 2, 4096), (4, 1, 4096)]


@st.composite
def chosen(draw):
    """Draw the boxes of any sum."""
    counts = draw(st.lists(st.integers(1, 300), min_size=1, max_size=4))
    axes = draw(st.lists(st.integers(0, len(counts) - 1), max_size=3))
    words, size, most = draw(st.sampled_from(KINDS))
    near = [(axis, draw(st.sampled_from([1, 2, 4, 8]))) for axis in [*axes, len(counts) - 1]]
    return choose(counts, near, words, size, most), {axis for axis, _ in near}, most


@pytest.mark.budget(0)
@given(chosen())
def test_words_along_any_axis_cover_a_box_once(found):
    boxes, near, most = found
    assert prod(boxes.places) == most
    everywhere = set(product(*map(range, boxes.places)))
    for axis in near:
        if boxes.places[axis] == 1:
            continue
        covered = []
        for word in range(prod(boxes.places) // boxes.words):
            place = boxes.find(axis, word)
            for item in range(boxes.words):
                covered.append(tuple(at + item * (of == axis) for of, at in enumerate(place)))
        assert set(covered) == everywhere
        assert len(covered) == len(everywhere)


@pytest.mark.parametrize(("words", "size", "most"), KINDS)
@pytest.mark.parametrize("counts", [(64, 64, 3), (64, 64, 16)])
def test_every_place_of_a_narrow_box_has_its_own_slot(counts, words, size, most):
    check_slots(choose(counts, [(0, 4), (1, 4), (2, 4)], words, size, most))


@pytest.mark.budget(0)
@given(chosen())
def test_every_place_has_its_own_slot_and_words_are_whole(found):
    check_slots(found[0])


def check_slots(boxes):
    slots = {}
    for place in product(*map(range, boxes.places)):
        slots[boxes.slot(place)] = place
    assert sorted(slots) == list(range(0, boxes.size * prod(boxes.places), boxes.size))
    # Each piece of 16 bytes of an owner's word is contiguous.
    together = max(1, min(16 // boxes.size, boxes.words))
    for slot, place in slots.items():
        if place[-1] % together == 0:
            for item in range(together):
                assert slots[slot + item * boxes.size] == (*place[:-1], place[-1] + item)


@pytest.mark.budget(0)
@given(chosen())
def test_slots_are_a_sum_of_bits(found):
    """Test that positions add and slots XOR bit by bit, as the iterations of a kernel assume."""
    boxes, near, _ = found
    words = prod(boxes.places) // boxes.words
    for axis in near:
        if boxes.places[axis] == 1:
            continue
        for word in range(0, words, max(1, words // 64)):
            for bit in range(word.bit_length()):
                low, high = word & ((1 << bit) - 1), word >> bit << bit
                parts = [boxes.find(axis, number) for number in (low, high)]
                assert [sum(pair) for pair in zip(*parts, strict=True)] == boxes.find(axis, word)
                assert boxes.slot(parts[0]) ^ boxes.slot(parts[1]) == boxes.slot(
                    boxes.find(axis, word)
                )


@given(chosen())
def test_words_of_a_thread_are_adjacent_along_the_last_axis(found):
    """Test that a thread can write its words to shared memory in pieces of up to 16 bytes."""
    boxes, near, _ = found
    assert boxes.run * boxes.size in (16, boxes.turns * boxes.size)
    for axis in near - {len(boxes.places) - 1}:
        if boxes.places[axis] == 1:
            continue
        for word in range(0, prod(boxes.places) // boxes.words, 7):
            place = boxes.find(axis, word)
            turn = word // THREADS % boxes.run
            first = boxes.find(axis, word - turn * THREADS)
            assert place == [*first[:-1], first[-1] + turn]
            assert boxes.slot(place) == boxes.slot(first) + turn * boxes.size


def test_rows_of_three_layouts_are_whole_sectors():
    """Test that no part is read in rows below 32 bytes: half a sector would be unused."""
    for parts in (2, 4, 8):
        for item in (1, 2, 4):
            near = [((1, 0, 2)[part % 3], item) for part in range(parts)] + [(2, item)]
            boxes = choose((1024, 3136, 64), near, 16 // item, item, 16384 // item)
            assert min(boxes.places) * item >= (32 if item > 1 else 16), boxes


@pytest.mark.parametrize("counts", [(1, 40, 3), (5, 3, 2), (7,), (1000, 32, 64), (3, 1, 9, 1)])
def test_boxes_are_full_unless_the_array_is_smaller(counts):
    last = len(counts) - 1
    for near in ((0, last), (max(0, last - 1), last)):
        boxes = choose(counts, [(axis, 2) for axis in near], 8, 2, 8192)
        covered = [min(pair) for pair in zip(counts, boxes.places, strict=True)]
        assert prod(covered) > 8192 // 2 or covered == list(counts)


@pytest.mark.parametrize(("words", "size", "most"), [kind for kind in KINDS if kind[0] < 16])
@pytest.mark.parametrize("others", [(0,), (1,), (0, 1)])
def test_no_two_threads_meet_a_bank(words, size, most, others):
    """Test shared-memory banks for boxes of long axes, written along any axis or by word owners.

    Two threads share a bank if the rows of a box are short: in three layouts for the kinds in
    `SHORT`, and for words of 16 items, which are not tested.
    """
    near = [(axis, 4) for axis in (*others, 2)]
    boxes = choose((1 << 10, 1 << 10, 1 << 10), near, words, size, most)
    run = size * boxes.run
    for axis in others:
        for item in range(words):
            starts = [boxes.find(axis, lane) for lane in range(LINE // max(4, run))]
            for start in starts:
                start[axis] += item
            shared = 2 if axis == 1 and 0 in others and (words, size, most) in SHORT else 1
            assert _banks(boxes, starts, run) * shared == LINE // 4
    pieces = max(1, words * size // 16)
    piece = words * size // pieces
    for number in range(pieces):
        starts = [boxes.find(2, lane) for lane in range(LINE // piece)]
        for start in starts:
            start[2] += number * piece // size
        assert _banks(boxes, starts, piece) == LINE // 4


def _banks(boxes, places, size):
    """Return the number of banks accessed if `size` bytes are moved at each place."""
    return len(
        {
            (boxes.slot(place) + byte) // 4 % (LINE // 4)
            for place in places
            for byte in range(0, size, 4)
        }
    )


def test_boxes_that_share_lines_are_drawn_one_after_the_other():
    near = [(0, 2), (1, 2), (2, 2)]
    boxes = choose((128, 3136, 64), near, 8, 4, 4096)
    assert boxes.places == (16, 16, 16)
    assert boxes.groups == (2, 2, 2)
    assert [boxes.along(axis) for axis in range(3)] == [8, 196, 4]
    assert choose((512, 3136, 64), [(1, 4), (2, 4)], 4, 4, 4096).groups == (0, 0, 0)
