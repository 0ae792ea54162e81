// A communicator of an opened NCCL: owned, abortable from any thread, closed once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nccl_loader.h"

namespace flodl {

class NcclComm {
   public:
    static std::vector<std::unique_ptr<NcclComm>> init_all(const NcclLibrary& library,
                                                           const std::vector<int>& devices);
    static std::unique_ptr<NcclComm> init_rank(const NcclLibrary& library, int size,
                                               const std::string& unique_id, int rank);
    ~NcclComm();
    NcclComm(const NcclComm&) = delete;
    NcclComm& operator=(const NcclComm&) = delete;

    void all_reduce(std::uintptr_t data, std::size_t count, int dtype, int op,
                    std::uintptr_t stream) const;
    void broadcast(std::uintptr_t data, std::size_t count, int dtype, int root,
                   std::uintptr_t stream) const;
    // The code of an error that happened after a call had returned; 0 for none.
    int async_error() const;
    // Ends what is in flight; a later abort or close does nothing.
    void abort();
    // Waits for what is in flight.
    void close();
    bool is_open() const { return handle_.load() != nullptr; }

   private:
    NcclComm(const NcclLibrary& library, void* handle);
    void* open_handle(const char* call) const;

    NcclLibrary library_;
    std::atomic<void*> handle_;
};

}  // namespace flodl
