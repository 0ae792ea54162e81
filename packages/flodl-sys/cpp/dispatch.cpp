#include "dispatch.h"

namespace flodl {

namespace baseline {
extern const Kernels table;
}
#if defined(FLODL_X86)
namespace avx2 {
extern const Kernels table;
}
namespace avx512 {
extern const Kernels table;
}
#endif

namespace {

struct Choice {
    std::string name;
    const Kernels* kernels;
};

const std::vector<Choice>& choices() {
    static const std::vector<Choice> found = [] {
        std::vector<Choice> list{{"baseline", &baseline::table}};
#if defined(FLODL_X86)
        // The builtin also asks whether the operating system saves the wide registers.
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx2")) list.push_back({"avx2", &avx2::table});
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
            list.push_back({"avx512", &avx512::table});
#endif
        return list;
    }();
    return found;
}

}  // namespace

const std::vector<std::string>& supported_isas() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (const Choice& choice : choices()) list.push_back(choice.name);
        return list;
    }();
    return names;
}

const Kernels* kernels_for(const std::string& isa) {
    for (const Choice& choice : choices())
        if (choice.name == isa) return choice.kernels;
    return nullptr;
}

}  // namespace flodl
