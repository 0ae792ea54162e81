#include "nccl_loader.h"

#include <dlfcn.h>

#include <cstring>
#include <memory>

namespace flodl {
namespace {

struct CloseLibrary {
    void operator()(void* handle) const { dlclose(handle); }
};
using Handle = std::unique_ptr<void, CloseLibrary>;

std::string loader_message() {
    const char* text = dlerror();
    return text == nullptr ? "the loader gave no reason" : text;
}

template <typename Function>
void resolve(void* handle, const char* symbol, Function*& function) {
    void* address = dlsym(handle, symbol);
    if (address == nullptr) throw NcclLoadFailure(loader_message(), symbol);
    std::memcpy(&function, &address, sizeof address);
}

}  // namespace

NcclLibrary::NcclLibrary(void* handle) {
    resolve(handle, "ncclGetVersion", functions_.get_version);
    resolve(handle, "ncclGetUniqueId", functions_.get_unique_id);
    resolve(handle, "ncclGetErrorString", functions_.get_error_string);
    resolve(handle, "ncclCommInitAll", functions_.comm_init_all);
    resolve(handle, "ncclCommInitRank", functions_.comm_init_rank);
    resolve(handle, "ncclCommDestroy", functions_.comm_destroy);
    resolve(handle, "ncclCommAbort", functions_.comm_abort);
    resolve(handle, "ncclCommGetAsyncError", functions_.comm_get_async_error);
    resolve(handle, "ncclAllReduce", functions_.all_reduce);
    resolve(handle, "ncclBroadcast", functions_.broadcast);
    resolve(handle, "ncclGroupStart", functions_.group_start);
    resolve(handle, "ncclGroupEnd", functions_.group_end);
    Dl_info where{};
    void* address = nullptr;
    std::memcpy(&address, &functions_.get_version, sizeof address);
    if (dladdr(address, &where) != 0 && where.dli_fname != nullptr) path_ = where.dli_fname;
}

NcclLibrary NcclLibrary::open(const std::string& path) {
    Handle handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
    if (!handle) throw NcclLoadFailure(loader_message(), "");
    NcclLibrary library(handle.get());
    // NCCL starts threads of its own: from here on it must stay until the process ends.
    static_cast<void>(handle.release());
    return library;
}

std::optional<NcclLibrary> NcclLibrary::already_loaded() {
    Handle handle(dlopen(nccl_soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
    if (!handle) return std::nullopt;
    NcclLibrary library(handle.get());
    static_cast<void>(handle.release());
    return library;
}

int NcclLibrary::version() const {
    int version = 0;
    check("ncclGetVersion", functions_.get_version(&version));
    return version;
}

std::array<char, nccl_unique_id_bytes> NcclLibrary::unique_id() const {
    NcclUniqueId id{};
    check("ncclGetUniqueId", functions_.get_unique_id(&id));
    std::array<char, nccl_unique_id_bytes> bytes{};
    std::memcpy(bytes.data(), id.bytes, bytes.size());
    return bytes;
}

void NcclLibrary::group_start() const { check("ncclGroupStart", functions_.group_start()); }

void NcclLibrary::group_end() const { check("ncclGroupEnd", functions_.group_end()); }

void NcclLibrary::check(const char* call, int result) const {
    if (result != 0) throw NcclFailure(call, result, functions_.get_error_string(result));
}

}  // namespace flodl
