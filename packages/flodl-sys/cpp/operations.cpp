#include "operations.h"

#include "cache_share.h"
#include "parallel.h"

namespace flodl {
namespace {

// Results that do not fit into the caches of the cores at work go around them.
Stores stores_for(const Plan& plan, std::size_t bytes_touched) {
    return bytes_touched > cache_share_bytes() * plan.threads ? Stores::streaming : Stores::cached;
}

}  // namespace

void weighted_average(const Plan& plan, const std::vector<const f32*>& x,
                      const std::vector<double>& weights, f32* out, std::size_t length) {
    const Stores stores = stores_for(plan, length * sizeof(f32) * (x.size() + 1));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->average_f32(x.data(), weights.data(), x.size(), out, begin, end, stores);
    });
}

void weighted_average(const Plan& plan, const std::vector<const bf16*>& x,
                      const std::vector<double>& weights, f32* out, std::size_t length) {
    const Stores stores = stores_for(plan, length * (sizeof(bf16) * x.size() + sizeof(f32)));
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
    const Stores stores = stores_for(plan, length * (sizeof(f32) + sizeof(bf16)));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->pack_bf16(x, out, begin, end, stores);
    });
}

void unpack_bf16(const Plan& plan, const bf16* x, f32* out, std::size_t length) {
    const Stores stores = stores_for(plan, length * (sizeof(f32) + sizeof(bf16)));
    in_blocks(length, plan.threads, [&](std::size_t begin, std::size_t end) {
        plan.kernels->unpack_bf16(x, out, begin, end, stores);
    });
}

}  // namespace flodl
