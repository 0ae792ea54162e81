// bfloat16: the upper half of a float32.
#pragma once

#include <cstdint>
#include <cstring>

namespace flodl::FLODL_ISA {

inline float widen(std::uint16_t bits) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

// Adding just under half of the last kept bit, plus that bit, rounds to nearest with ties to even;
// the carry runs into the exponent as it should, up to infinity. On a NaN it could run into the
// sign or end as infinity, so NaNs are cut off and made quiet instead.
inline std::uint16_t narrow(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x0040u;
    return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

}  // namespace flodl::FLODL_ISA
