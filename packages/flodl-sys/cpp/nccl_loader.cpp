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
    resolve(handle, "ncclGetVersion", get_version_);
    resolve(handle, "ncclGetUniqueId", get_unique_id_);
    resolve(handle, "ncclGetErrorString", get_error_string_);
    Dl_info where{};
    void* address = nullptr;
    std::memcpy(&address, &get_version_, sizeof address);
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
    check("ncclGetVersion", get_version_(&version));
    return version;
}

std::array<char, nccl_unique_id_bytes> NcclLibrary::unique_id() const {
    UniqueId id{};
    check("ncclGetUniqueId", get_unique_id_(&id));
    std::array<char, nccl_unique_id_bytes> bytes{};
    std::memcpy(bytes.data(), id.bytes, bytes.size());
    return bytes;
}

void NcclLibrary::check(const char* call, int result) const {
    if (result != 0) throw NcclFailure(call, result, get_error_string_(result));
}

}  // namespace flodl
