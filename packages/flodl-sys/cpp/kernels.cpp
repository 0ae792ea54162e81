// Plain loops for the compiler to vectorize: compiled once per instruction set, with FLODL_ISA
// naming the namespace, so that no inline function of one compilation can serve another.
//
// Work goes through a tile that stays in the first-level cache. Each buffer is then read in long
// runs, and the result leaves the tile in one piece, which is what streaming stores need.

#include "kernels.h"

#include <algorithm>
#include <cstring>

#include "bf16.h"
#include "streaming.h"

namespace flodl::FLODL_ISA {
namespace {

constexpr std::size_t tile_length = 1024;

inline float as_float(f32 element) { return element.value; }
inline float as_float(bf16 element) { return widen(element.bits); }

// Calls fill(tile, at, length) for consecutive pieces of [begin, end) and stores each tile to
// out + at. Pieces after the first start at a cache line of `out` if its address allows.
template <typename Element, typename Out, typename Fill>
void by_tiles(Out* out, std::size_t begin, std::size_t end, Stores stores, Fill fill) {
    alignas(cache_line) Element tile[tile_length];
    const bool streaming = stores == Stores::streaming;
    std::size_t at = begin;
    std::size_t length = std::min(end - at, elements_to_line(out + begin, tile_length));
    if (length == 0) length = std::min(end - at, tile_length);
    while (at < end) {
        fill(tile, at, length);
        put(out + at, tile, length * sizeof(Element), streaming);
        at += length;
        length = std::min(end - at, tile_length);
    }
    if (streaming) finish_streaming();
}

// tile[i] = (start ? 0 : tile[i]) + w[0]*x[0][i] + ... over Group buffers, from the left. Several
// buffers in one pass keep their reads in flight together and the sum in a register.
template <std::size_t Group, bool start, typename In>
void fold(float* __restrict tile, const In* const* x, const double* w, std::size_t at,
          std::size_t length) {
    const In* from[Group];
    float weight[Group];
    for (std::size_t k = 0; k < Group; ++k) from[k] = x[k] + at, weight[k] = static_cast<float>(w[k]);
    for (std::size_t i = 0; i < length; ++i) {
        float sum = weight[0] * as_float(from[0][i]);
        if constexpr (!start) sum = tile[i] + sum;
        for (std::size_t k = 1; k < Group; ++k) sum += weight[k] * as_float(from[k][i]);
        tile[i] = sum;
    }
}

template <bool start, typename In>
void fold_up_to_four(std::size_t group, float* tile, const In* const* x, const double* w,
                     std::size_t at, std::size_t length) {
    switch (group) {
        case 1: return fold<1, start>(tile, x, w, at, length);
        case 2: return fold<2, start>(tile, x, w, at, length);
        case 3: return fold<3, start>(tile, x, w, at, length);
        default: return fold<4, start>(tile, x, w, at, length);
    }
}

template <typename In>
void average(const In* const* x, const double* w, std::size_t count, f32* out, std::size_t begin,
             std::size_t end, Stores stores) {
    by_tiles<float>(out, begin, end, stores, [=](float* tile, std::size_t at, std::size_t length) {
        fold_up_to_four<true>(count, tile, x, w, at, length);
        for (std::size_t k = 4; k < count; k += 4)
            fold_up_to_four<false>(count - k, tile, x + k, w + k, at, length);
    });
}

void blend(f32* p, const f32* c, double alpha, std::size_t begin, std::size_t end) {
    const auto keep = static_cast<float>(1.0 - alpha);
    const auto take = static_cast<float>(alpha);
    if (take == 0) return;
    if (keep == 0) {
        std::memmove(p + begin, c + begin, (end - begin) * sizeof(f32));
        return;
    }
    for (std::size_t i = begin; i < end; ++i) p[i].value = keep * p[i].value + take * c[i].value;
}

void pack_bf16(const f32* x, bf16* out, std::size_t begin, std::size_t end, Stores stores) {
    by_tiles<std::uint16_t>(out, begin, end, stores,
                            [=](std::uint16_t* tile, std::size_t at, std::size_t length) {
                                const f32* from = x + at;
                                for (std::size_t i = 0; i < length; ++i) tile[i] = narrow(from[i].value);
                            });
}

void unpack_bf16(const bf16* x, f32* out, std::size_t begin, std::size_t end, Stores stores) {
    by_tiles<float>(out, begin, end, stores, [=](float* tile, std::size_t at, std::size_t length) {
        const bf16* from = x + at;
        for (std::size_t i = 0; i < length; ++i) tile[i] = widen(from[i].bits);
    });
}

}  // namespace

extern const Kernels table;
const Kernels table = {average<f32>, average<bf16>, blend, pack_bf16, unpack_bf16};

}  // namespace flodl::FLODL_ISA
