// Stores that go around the caches, where the machine has them.
//
// A normal store to memory that is not cached first reads the line it is going to overwrite: for a
// result larger than the caches that is a third of the traffic of a copy, for nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace flodl::FLODL_ISA {

constexpr std::size_t cache_line = 64;

// Elements to handle before `out` stands at the start of a cache line; `limit` when it never does.
template <typename T>
std::size_t elements_to_line(const T* out, std::size_t limit) {
    constexpr std::size_t size = sizeof(T);
    const auto past = reinterpret_cast<std::uintptr_t>(out) % cache_line;
    if (past % size != 0) return limit;
    const std::size_t need = past == 0 ? 0 : (cache_line - past) / size;
    return need < limit ? need : limit;
}

// Copies `bytes` from a tile in the first-level cache to `to`.
inline void put(void* to, const void* from, std::size_t bytes, bool around_caches) {
#if defined(__SSE2__)
    if (around_caches && reinterpret_cast<std::uintptr_t>(to) % cache_line == 0) {
        auto* target = static_cast<char*>(to);
        const auto* source = static_cast<const char*>(from);
        const std::size_t lines = bytes / cache_line;
        for (std::size_t line = 0; line < lines; ++line, target += cache_line, source += cache_line)
            for (std::size_t part = 0; part < cache_line; part += sizeof(__m128i))
                _mm_stream_si128(
                    reinterpret_cast<__m128i*>(target + part),
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + part)));
        std::memcpy(target, source, bytes - lines * cache_line);
        return;
    }
#else
    (void)around_caches;
#endif
    std::memcpy(to, from, bytes);
}

// Streaming stores are weakly ordered: makes them visible before whoever waits for us goes on.
inline void finish_streaming() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

}  // namespace flodl::FLODL_ISA
