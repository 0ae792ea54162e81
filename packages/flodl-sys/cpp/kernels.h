// The numeric kernels: plain functions over pointers, lengths and a half-open range [begin, end).
//
// kernels.cpp is compiled once for each instruction set; every compilation offers the same table of
// functions, and dispatch.cpp picks the table when the process runs. All tables give the same bits:
// each multiply and each add is rounded separately to float32, in the order of the buffers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flodl {

// Elements in memory. Packed: callers may pass addresses of any alignment.
struct __attribute__((packed)) f32 {
    float value;
};
struct __attribute__((packed)) bf16 {
    std::uint16_t bits;
};

enum class Stores {
    cached,     // the result is probably read again soon
    streaming,  // what is touched is larger than the caches: write around them
};

struct Kernels {
    // Weights come in double precision and are rounded in here, under the kernel's rounding mode.
    //
    // out[i] = w[0]*x[0][i] + w[1]*x[1][i] + ..., summed from the left; count >= 1.
    void (*average_f32)(const f32* const* x, const double* w, std::size_t count, f32* out,
                        std::size_t begin, std::size_t end, Stores stores);
    void (*average_bf16)(const bf16* const* x, const double* w, std::size_t count, f32* out,
                         std::size_t begin, std::size_t end, Stores stores);
    // p[i] = (1-alpha)*p[i] + alpha*c[i]; a factor that rounds to zero takes its operand out of the
    // sum: alpha = 1 copies c, alpha = 0 leaves p as it is.
    void (*blend)(f32* p, const f32* c, double alpha, std::size_t begin, std::size_t end);
    // Round to nearest, ties to even; a NaN keeps its sign and upper payload and becomes quiet.
    void (*pack_bf16)(const f32* x, bf16* out, std::size_t begin, std::size_t end,
                      Stores stores);
    void (*unpack_bf16)(const bf16* x, f32* out, std::size_t begin, std::size_t end,
                        Stores stores);
};

}  // namespace flodl
