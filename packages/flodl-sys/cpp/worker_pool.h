// Threads that wait for work between calls.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace flodl {

// Starting a thread for each call costs tens of microseconds apiece, which on a machine with many
// cores is as long as a call takes. Threads are started when a call first asks for them, and live
// as long as the process.
class WorkerPool {
   public:
    // The pool of the calling process. A forked child gets a new one, because the threads of the
    // old one stayed behind in its parent.
    static WorkerPool& of_this_process();

    // Runs `work` on the calling thread and, at the same time, on at most `helpers` others; fewer
    // if the system grants no more threads, or if the caller was done before they woke up. Returns
    // when all who began have ended. `work` must not throw. Any number of threads may call this.
    void run(std::size_t helpers, const std::function<void()>& work);

   private:
    struct Job;

    void start_threads(std::size_t wanted);
    void serve();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Job*> waiting_;
    std::size_t threads_ = 0;
};

}  // namespace flodl
