// NCCL found at run time: dlopen and a table of the symbols in use. No NCCL or CUDA header.
#pragma once

#include <array>
#include <cstddef>
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

struct NcclUniqueId {
    char bytes[nccl_unique_id_bytes];
};

// The functions in use, with NCCL's handles, enumerations and streams as plain words.
struct NcclFunctions {
    int (*get_version)(int*) = nullptr;
    int (*get_unique_id)(NcclUniqueId*) = nullptr;
    const char* (*get_error_string)(int) = nullptr;
    int (*comm_init_all)(void**, int, const int*) = nullptr;
    int (*comm_init_rank)(void**, int, NcclUniqueId, int) = nullptr;
    int (*comm_destroy)(void*) = nullptr;
    int (*comm_abort)(void*) = nullptr;
    int (*comm_get_async_error)(void*, int*) = nullptr;
    int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
    int (*broadcast)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
    int (*group_start)() = nullptr;
    int (*group_end)() = nullptr;
};

class NcclLibrary {
   public:
    // A path, or a bare file name that the system's loader searches for.
    static NcclLibrary open(const std::string& path);
    // The library that something else in this process (torch) already brought in.
    static std::optional<NcclLibrary> already_loaded();

    int version() const;
    std::array<char, nccl_unique_id_bytes> unique_id() const;
    void group_start() const;
    void group_end() const;
    const std::string& path() const { return path_; }
    const NcclFunctions& functions() const { return functions_; }
    void check(const char* call, int result) const;

   private:
    explicit NcclLibrary(void* handle);

    NcclFunctions functions_;
    std::string path_;
};

}  // namespace flodl
