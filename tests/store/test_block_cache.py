"""The cache of decoded blocks: what is kept, what goes, and what is counted."""

from __future__ import annotations

import random
import threading

from edged.store.block_cache import BlockCache, CacheFigures


def test_what_was_used_longest_ago_goes_first() -> None:
    cache = BlockCache(30)
    for number in range(3):
        cache.put((1, number), f"block {number}", 10)
    assert cache.get((1, 0)) == "block 0"
    cache.put((1, 3), "block 3", 10)
    assert cache.get((1, 1)) is None
    assert [cache.get((1, number)) for number in (0, 2, 3)] == ["block 0", "block 2", "block 3"]


def test_hits_misses_and_bytes_are_counted() -> None:
    cache = BlockCache(100)
    cache.put((1, "a"), b"a", 40)
    cache.get((1, "a"))
    cache.get((1, "a"))
    cache.get((2, "a"))
    assert cache.figures() == CacheFigures(hits=2, misses=1, entries=1, bytes=40, bytes_max=100)


def test_thing_larger_than_the_cache_is_not_kept_and_drives_nothing_out() -> None:
    cache = BlockCache(100)
    cache.put((1, 1), "small", 100)
    cache.put((1, 2), "large", 101)
    assert cache.get((1, 2)) is None
    assert cache.get((1, 1)) == "small"


def test_second_put_takes_the_place_of_the_first() -> None:
    cache = BlockCache(100)
    cache.put((1, 1), "old", 60)
    cache.put((1, 1), "new", 70)
    assert cache.get((1, 1)) == "new"
    assert cache.figures().bytes == 70


def test_drop_forgets_one_owner_only() -> None:
    cache = BlockCache(100)
    mine, other = cache.new_owner(), BlockCache(1).new_owner()
    assert mine != other
    for part in range(3):
        cache.put((mine, part), part, 10)
        cache.put((other, part), part, 10)
    cache.drop(mine)
    assert [cache.get((mine, part)) for part in range(3)] == [None, None, None]
    assert [cache.get((other, part)) for part in range(3)] == [0, 1, 2]
    assert cache.figures().bytes == 30


def test_threads_never_push_it_over_its_bound_nor_get_another_key_s_value() -> None:
    cache = BlockCache(1000)
    wrong: list[object] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3000):
            key = chance.randrange(3), chance.randrange(40)
            value = cache.get(key)
            if value not in (None, key) or cache.figures().bytes > 1000:
                wrong.append((key, value))
            cache.put(key, key, chance.randrange(1, 200))
            if chance.random() < 0.01:
                cache.drop(key[0])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for owner in range(3):
        cache.drop(owner)
    assert cache.figures().bytes == 0
