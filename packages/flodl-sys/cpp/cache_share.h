// How much of the last cache one processor can count on.
#pragma once

#include <cstddef>

namespace flodl {

// The size of the third-level cache over the number of processors that share it, as Linux tells
// them; 16 MiB elsewhere.
std::size_t cache_share_bytes();

}  // namespace flodl
