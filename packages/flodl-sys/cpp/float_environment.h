// Default floating-point rules for the length of a scope.
#pragma once

#include <cfenv>

namespace flodl {

// A caller may have asked its thread to flush denormals or to round upward, and new threads inherit
// that. Kernels always round to nearest and keep denormals, so that all ranks get the same bits.
class DefaultFloatEnvironment {
   public:
    DefaultFloatEnvironment() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
    DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
    DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

   private:
    std::fenv_t saved_;
};

}  // namespace flodl
