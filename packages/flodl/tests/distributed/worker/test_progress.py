import threading
import time

from flodl.distributed.worker.progress import PAGE_BYTES, ProgressPage, new_page


def two_views():
    import os

    fd = new_page()
    return ProgressPage(os.dup(fd)), ProgressPage(fd)


def test_the_host_reads_what_the_rank_wrote():
    rank, host = two_views()
    before = time.monotonic_ns()
    rank.write("reducing", step=7, window_steps=3, batch_ms=1.25)
    seen = host.read()
    assert (seen.step, seen.window_steps, seen.batch_us, seen.phase) == (7, 3, 1250, "reducing")
    assert before <= seen.moved_ns <= time.monotonic_ns()
    assert seen.beat_ns == 0
    rank.close()
    host.close()


def test_a_beat_is_a_sign_of_life_but_no_move():
    rank, host = two_views()
    rank.write("run", step=1)
    moved = host.read().moved_ns
    rank.beat()
    seen = host.read()
    assert seen.moved_ns == moved
    assert seen.seen_ns == seen.beat_ns >= moved
    assert seen.step == 1
    rank.close()
    host.close()


def test_a_page_nobody_wrote_to_says_so():
    rank, host = two_views()
    assert host.read().seen_ns == 0
    assert host.read().phase == ""
    assert PAGE_BYTES == 4096
    rank.close()
    host.close()


def test_a_reader_never_sees_half_of_a_write():
    rank, host = two_views()
    over = threading.Event()

    def write():
        step = 0
        while not over.is_set():
            step += 1
            rank.write(str(step), step=step, window_steps=step)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3000):
            seen = host.read()
            assert seen.step == seen.window_steps
            assert seen.phase in {"", str(seen.step)}
    finally:
        over.set()
        writer.join()
    rank.close()
    host.close()
