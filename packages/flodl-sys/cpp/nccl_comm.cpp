#include "nccl_comm.h"

#include <algorithm>

namespace flodl {
namespace {

constexpr int invalid_usage = 5;

void* as_pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

NcclComm::NcclComm(const NcclLibrary& library, void* handle)
    : library_(library), handle_(handle) {}

NcclComm::~NcclComm() { abort(); }

std::vector<std::unique_ptr<NcclComm>> NcclComm::init_all(const NcclLibrary& library,
                                                          const std::vector<int>& devices) {
    std::vector<void*> handles(devices.size(), nullptr);
    library.check("ncclCommInitAll",
                  library.functions().comm_init_all(handles.data(),
                                                    static_cast<int>(devices.size()),
                                                    devices.data()));
    std::vector<std::unique_ptr<NcclComm>> comms;
    for (void* handle : handles) {
        comms.push_back(std::unique_ptr<NcclComm>(new NcclComm(library, handle)));
    }
    return comms;
}

std::unique_ptr<NcclComm> NcclComm::init_rank(const NcclLibrary& library, int size,
                                              const std::string& unique_id, int rank) {
    NcclUniqueId id{};
    std::copy_n(unique_id.begin(), std::min(unique_id.size(), sizeof id.bytes), id.bytes);
    void* handle = nullptr;
    library.check("ncclCommInitRank",
                  library.functions().comm_init_rank(&handle, size, id, rank));
    return std::unique_ptr<NcclComm>(new NcclComm(library, handle));
}

void NcclComm::all_reduce(std::uintptr_t data, std::size_t count, int dtype, int op,
                          std::uintptr_t stream) const {
    void* handle = open_handle("ncclAllReduce");
    library_.check("ncclAllReduce",
                   library_.functions().all_reduce(as_pointer(data), as_pointer(data), count,
                                                   dtype, op, handle, as_pointer(stream)));
}

void NcclComm::broadcast(std::uintptr_t data, std::size_t count, int dtype, int root,
                         std::uintptr_t stream) const {
    void* handle = open_handle("ncclBroadcast");
    library_.check("ncclBroadcast",
                   library_.functions().broadcast(as_pointer(data), as_pointer(data), count,
                                                  dtype, root, handle, as_pointer(stream)));
}

int NcclComm::async_error() const {
    int code = 0;
    void* handle = open_handle("ncclCommGetAsyncError");
    library_.check("ncclCommGetAsyncError",
                   library_.functions().comm_get_async_error(handle, &code));
    return code;
}

void NcclComm::abort() {
    void* handle = handle_.exchange(nullptr);
    // its result says nothing that anyone could act on
    if (handle != nullptr) static_cast<void>(library_.functions().comm_abort(handle));
}

void NcclComm::close() {
    void* handle = handle_.exchange(nullptr);
    if (handle == nullptr) return;
    library_.check("ncclCommDestroy", library_.functions().comm_destroy(handle));
}

void* NcclComm::open_handle(const char* call) const {
    void* handle = handle_.load();
    if (handle == nullptr) throw NcclFailure(call, invalid_usage, "the communicator is closed");
    return handle;
}

}  // namespace flodl
