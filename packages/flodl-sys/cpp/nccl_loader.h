// NCCL found at run time: dlopen and a table of the symbols in use. No NCCL or CUDA header.
#pragma once

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

namespace flodl {

constexpr const char* nccl_soname = "libnccl.so.2";
constexpr std::size_t nccl_unique_id_bytes = 128;

// The library cannot be loaded, or lacks a symbol (`symbol` is then its name, otherwise empty).
class NcclLoadFailure : public std::runtime_error {
   public:
    NcclLoadFailure(const std::string& reason, std::string missing_symbol)
        : std::runtime_error(reason), symbol(std::move(missing_symbol)) {}
    std::string symbol;
};

// A call into the library returned something else than ncclSuccess.
class NcclFailure : public std::runtime_error {
   public:
    NcclFailure(const std::string& failed_call, int result, const std::string& text)
        : std::runtime_error(failed_call + " failed with code " + std::to_string(result) + ": " +
                             text),
          call(failed_call),
          code(result) {}
    std::string call;
    int code;
};

class NcclLibrary {
   public:
    // A path, or a bare file name that the system's loader searches for.
    static NcclLibrary open(const std::string& path);
    // The library that something else in this process (torch) already brought in.
    static std::optional<NcclLibrary> already_loaded();

    int version() const;
    std::array<char, nccl_unique_id_bytes> unique_id() const;
    const std::string& path() const { return path_; }

   private:
    explicit NcclLibrary(void* handle);
    void check(const char* call, int result) const;

    struct UniqueId {
        char bytes[nccl_unique_id_bytes];
    };
    int (*get_version_)(int*) = nullptr;
    int (*get_unique_id_)(UniqueId*) = nullptr;
    const char* (*get_error_string_)(int) = nullptr;
    std::string path_;
};

}  // namespace flodl
