// The processors that a thread may run on, where the system lets one ask.
#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

namespace flodl {

// A thread that works for another keeps to the other's processors, also when those changed since
// it was started.
class Affinity {
   public:
    static Affinity of_this_thread() {
        Affinity affinity;
#if defined(__linux__)
        affinity.known_ = sched_getaffinity(0, sizeof affinity.set_, &affinity.set_) == 0;
#endif
        return affinity;
    }

    // Moves the calling thread, whose affinity this is, to the processors of `other`.
    void become(const Affinity& other) {
#if defined(__linux__)
        if (!known_ || !other.known_ || CPU_EQUAL(&set_, &other.set_)) return;
        if (sched_setaffinity(0, sizeof other.set_, &other.set_) == 0) set_ = other.set_;
#else
        (void)other;
#endif
    }

   private:
    Affinity() = default;

#if defined(__linux__)
    cpu_set_t set_;
    bool known_ = false;
#endif
};

}  // namespace flodl
