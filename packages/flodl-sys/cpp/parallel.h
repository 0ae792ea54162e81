// Splits a range of elements over threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "float_environment.h"
#include "worker_pool.h"

namespace flodl {

// Small enough that a thread whose core is busy with something else leaves most of the work to the
// others; a multiple of the cache line.
constexpr std::size_t block_elements = std::size_t{1} << 16;

// Waking a thread takes about ten microseconds, in which it could have done this much.
constexpr std::size_t elements_per_thread = std::size_t{1} << 18;

// Calls body(begin, end) for blocks that cover [0, length), on the calling thread and at most
// `threads` - 1 others, under default floating-point rules; returns when all are done. `body` must
// not throw.
template <typename Body>
void in_blocks(std::size_t length, std::size_t threads, const Body& body) {
    std::atomic<std::size_t> next{0};
    const auto work = [&next, &body, length] {
        const DefaultFloatEnvironment rules;
        for (;;) {
            const std::size_t begin = next.fetch_add(block_elements, std::memory_order_relaxed);
            if (begin >= length) return;
            body(begin, std::min(begin + block_elements, length));
        }
    };
    const std::size_t useful = std::clamp<std::size_t>(length / elements_per_thread, 1, threads);
    if (useful == 1)
        work();
    else
        WorkerPool::of_this_process().run(useful - 1, work);
}

}  // namespace flodl
