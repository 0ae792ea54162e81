// Whole-buffer operations: the kernels run over threads, under default floating-point rules.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels.h"

namespace flodl {

struct Plan {
    const Kernels* kernels;
    std::size_t threads;  // upper bound; short buffers use fewer
};

// `out` may be exactly one of the inputs; any other overlap gives wrong results.
void weighted_average(const Plan& plan, const std::vector<const f32*>& x,
                      const std::vector<double>& weights, f32* out, std::size_t length);
// `out` must not overlap an input.
void weighted_average(const Plan& plan, const std::vector<const bf16*>& x,
                      const std::vector<double>& weights, f32* out, std::size_t length);
// p <- (1-alpha)*p + alpha*c, in place; c may be p itself, otherwise it must not overlap p.
void blend(const Plan& plan, f32* p, const f32* c, double alpha, std::size_t length);
// Input and result must not overlap.
void pack_bf16(const Plan& plan, const f32* x, bf16* out, std::size_t length);
void unpack_bf16(const Plan& plan, const bf16* x, f32* out, std::size_t length);

}  // namespace flodl
