#include "operations.h"

#include <fstream>

#include "parallel.h"

namespace flodl {
namespace {

// What Linux tells of the third-level cache that one processor sees; the figure of sysconf() counts
// the caches of the whole package, of which most may serve other cores.
std::size_t last_cache_bytes() {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
    std::size_t kib = 0;
    return file >> kib && kib > 0 ? kib << 10 : std::size_t{32} << 20;
}

// A call that touches more than the caches hold leaves little of its result in them anyway.
Stores stores_for(std::size_t bytes_touched) {
    static const std::size_t cached = last_cache_bytes();
    return bytes_touched > cached ? Stores::streaming : Stores::cached;
}

}  // namespace

void weighted_average(const Plan& plan, const std::vector<const f32*>& x,
                      const std::vector<double>& weights, f32* out, std::size_t length) {
    const Stores stores = stores_for(length * sizeof(f32) * (x.size() + 1));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->average_f32(x.data(), weights.data(), x.size(), out, begin, end, stores);
    });
}

void weighted_average(const Plan& plan, const std::vector<const bf16*>& x,
                      const std::vector<double>& weights, f32* out, std::size_t length) {
    const Stores stores = stores_for(length * (sizeof(bf16) * x.size() + sizeof(f32)));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->average_bf16(x.data(), weights.data(), x.size(), out, begin, end, stores);
    });
}

void blend(const Plan& plan, f32* p, const f32* c, double alpha, std::size_t length) {
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->blend(p, c, alpha, begin, end);
    });
}

void pack_bf16(const Plan& plan, const f32* x, bf16* out, std::size_t length) {
    const Stores stores = stores_for(length * (sizeof(f32) + sizeof(bf16)));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->pack_bf16(x, out, begin, end, stores);
    });
}

void unpack_bf16(const Plan& plan, const bf16* x, f32* out, std::size_t length) {
    const Stores stores = stores_for(length * (sizeof(f32) + sizeof(bf16)));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->unpack_bf16(x, out, begin, end, stores);
    });
}

}  // namespace flodl
