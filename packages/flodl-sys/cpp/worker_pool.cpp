#include "worker_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>

#include "affinity.h"

namespace flodl {
namespace {

// Never deleted: its threads use it until the process ends.
std::atomic<WorkerPool*> current_pool{nullptr};

void forget_pool() { current_pool.store(nullptr); }
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, forget_pool);

// Threads started in this scope take no signals: those belong to threads that Python knows.
class SignalsBlocked {
   public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

   private:
    sigset_t before_;
};

}  // namespace

struct WorkerPool::Job {
    const std::function<void()>& work;
    const Affinity affinity = Affinity::of_this_thread();
    std::size_t open = 0;     // helpers that may still begin
    std::size_t running = 0;  // helpers that have begun and not ended
    std::condition_variable idle{};
};

WorkerPool& WorkerPool::of_this_process() {
    WorkerPool* pool = current_pool.load();
    if (pool == nullptr) {
        auto fresh = std::make_unique<WorkerPool>();
        if (current_pool.compare_exchange_strong(pool, fresh.get())) pool = fresh.release();
    }
    return *pool;
}

void WorkerPool::run(std::size_t helpers, const std::function<void()>& work) {
    Job job{work};
    {
        const std::lock_guard lock(mutex_);
        start_threads(helpers);
        job.open = std::min(helpers, threads_);
        if (job.open > 0) waiting_.push_back(&job);
    }
    wake_.notify_all();
    work();
    std::unique_lock lock(mutex_);
    if (job.open > 0) waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &job));
    job.idle.wait(lock, [&job] { return job.running == 0; });
}

void WorkerPool::start_threads(std::size_t wanted) {
    const SignalsBlocked quiet;
    try {
        for (; threads_ < wanted; ++threads_) std::thread(&WorkerPool::serve, this).detach();
    } catch (const std::exception&) {
        // A process limit grants no more threads or memory: those that run do all the work.
    }
}

void WorkerPool::serve() {
    Affinity affinity = Affinity::of_this_thread();
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return !waiting_.empty(); });
        Job& job = *waiting_.front();
        if (--job.open == 0) waiting_.pop_front();
        ++job.running;
        lock.unlock();
        affinity.become(job.affinity);
        job.work();
        lock.lock();
        if (--job.running == 0) job.idle.notify_one();
    }
}

}  // namespace flodl
