// Which instruction sets were compiled in, and which of them this processor runs.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace flodl {

// Best last; empty never: "baseline" is what every processor of the platform runs.
const std::vector<std::string>& supported_isas();

// The kernels of one supported instruction set; nullptr for a name that is not in supported_isas().
const Kernels* kernels_for(const std::string& isa);

}  // namespace flodl
