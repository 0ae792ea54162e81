#include "cache_share.h"

#include <cctype>
#include <fstream>
#include <string>

namespace flodl {
namespace {

// Not sysconf(): that counts the caches of the whole package, most of which may serve other cores.
const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index3/";

std::size_t size_kib() {
    std::size_t kib = 0;
    std::ifstream(folder + "size") >> kib;  // "32768K"
    return kib;
}

std::size_t sharing_processors() {
    std::string mask;  // hexadecimal words: "00000000,0000ffff"
    std::ifstream(folder + "shared_cpu_map") >> mask;
    std::size_t count = 0;
    for (const char digit : mask)
        if (std::isxdigit(static_cast<unsigned char>(digit)))
            count += static_cast<std::size_t>(
                __builtin_popcountl(std::stoul(std::string(1, digit), nullptr, 16)));
    return count;
}

}  // namespace

std::size_t cache_share_bytes() {
    static const std::size_t share = [] {
        const std::size_t kib = size_kib();
        const std::size_t processors = sharing_processors();
        return kib > 0 && processors > 0 ? (kib << 10) / processors : std::size_t{16} << 20;
    }();
    return share;
}

}  // namespace flodl
