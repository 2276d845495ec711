// Mutex, MutexLock, CondVar: the locks of this tree, annotated, so that clang proves for every
// field who holds what. The build with clang stops where a guarded field is touched without its
// mutex; for other compilers the annotations are nothing.
//
//   Mutex mutex_;
//   CondVar wake_;
//   std::deque<Task> ready_ MW_GUARDED_BY(mutex_);
//   Task Pop() MW_REQUIRES(mutex_);  // its callers hold mutex_
//
//   const MutexLock lock(mutex_);
//   while (ready_.empty() && wake_.WaitUntil(mutex_, due)) {
//   }
//
// The analysis reads one function at a time. It does not see a caller's lock inside of a lambda, so
// waits take no predicate: they are loops, and a lambda that runs under a lock says MW_REQUIRES.
// It passes over constructors and destructors, where nobody else knows the object.
//
// Cost: that of std::mutex and std::condition_variable, which these wrap and which stand nowhere
// else. Thread rule: thread-safe, but for MutexLock, which belongs to one thread. Ownership: a
// mutex outlives its locks and waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MW_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define MW_THREAD_ATTRIBUTE(x)
#endif

// Of a field: read and written only by who holds the mutex. _PT_: what a pointer points to.
#define MW_GUARDED_BY(mutex) MW_THREAD_ATTRIBUTE(guarded_by(mutex))
#define MW_PT_GUARDED_BY(mutex) MW_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// Of a mutex: its place in the order in which locks are taken. Read by people: clang 14 checks it
// only in a mode that is not finished.
#define MW_ACQUIRED_BEFORE(...) MW_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
#define MW_ACQUIRED_AFTER(...) MW_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
// Of a function: its callers hold the mutexes; they hold none of them.
#define MW_REQUIRES(...) MW_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define MW_EXCLUDES(...) MW_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// Of a function: returns with the mutex locked; unlocked; locked if it returns the value.
#define MW_ACQUIRE(...) MW_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define MW_RELEASE(...) MW_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define MW_TRY_ACQUIRE(...) MW_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
// Of a function: the mutex that it returns a reference to.
#define MW_RETURN_CAPABILITY(mutex) MW_THREAD_ATTRIBUTE(lock_returned(mutex))
// Of a function that the analysis cannot follow. A comment beside it says why it is right.
#define MW_NO_THREAD_SAFETY_ANALYSIS MW_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace meshwright {

class MW_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // MutexLock is the usual way; these are for what a scope does not fit.
  void Lock() MW_ACQUIRE() { native_.lock(); }
  void Unlock() MW_RELEASE() { native_.unlock(); }
  [[nodiscard]] bool TryLock() MW_TRY_ACQUIRE(true) { return native_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex native_;
};

// Says that the caller has locked the mutex and that the MutexLock is to unlock it.
struct AdoptLock {};

// Holds a mutex for a scope, or for parts of it.
class MW_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MW_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(Mutex& mutex, AdoptLock) MW_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() MW_RELEASE() {
    if (held_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // REQUIRES held.
  void Unlock() MW_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }
  // REQUIRES not held.
  void Lock() MW_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// A mutex that its holder may lock again, for a callback that may come on the holder's own thread.
// Rare: what else needs it has a function that should say MW_REQUIRES.
class MW_THREAD_ATTRIBUTE(capability("mutex")) RecursiveMutex {
 public:
  RecursiveMutex() = default;
  RecursiveMutex(const RecursiveMutex&) = delete;
  RecursiveMutex& operator=(const RecursiveMutex&) = delete;

  void Lock() MW_ACQUIRE() { native_.lock(); }
  void Unlock() MW_RELEASE() { native_.unlock(); }

 private:
  std::recursive_mutex native_;
};

class MW_THREAD_ATTRIBUTE(scoped_lockable) RecursiveMutexLock {
 public:
  explicit RecursiveMutexLock(RecursiveMutex& mutex) MW_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~RecursiveMutexLock() MW_RELEASE() { mutex_.Unlock(); }
  RecursiveMutexLock(const RecursiveMutexLock&) = delete;
  RecursiveMutexLock& operator=(const RecursiveMutexLock&) = delete;

 private:
  RecursiveMutex& mutex_;
};

// Each wait unlocks the mutex, sleeps, and has it again when it returns. It may return for no
// reason at all: callers look at what they wait for, in a loop.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void NotifyOne() { native_.notify_one(); }
  void NotifyAll() { native_.notify_all(); }

  // Only where somebody is sure to notify: it has no deadline.
  void Wait(Mutex& mutex) MW_REQUIRES(mutex) {
    const Held held(mutex);
    native_.wait(held.lock());
  }
  // False once `due` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point due) MW_REQUIRES(mutex) {
    const Held held(mutex);
    return native_.wait_until(held.lock(), due) == std::cv_status::no_timeout;
  }
  // False once `time` has passed, counted from this call: a loop takes WaitUntil.
  bool WaitFor(Mutex& mutex, std::chrono::nanoseconds time) MW_REQUIRES(mutex) {
    const Held held(mutex);
    return native_.wait_for(held.lock(), time) == std::cv_status::no_timeout;
  }

 private:
  // A locked mutex as std::condition_variable takes it; it stays locked at the end.
  class Held {
   public:
    explicit Held(Mutex& mutex) : lock_(mutex.native_, std::adopt_lock) {}
    ~Held() { lock_.release(); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    std::unique_lock<std::mutex>& lock() const { return lock_; }

   private:
    mutable std::unique_lock<std::mutex> lock_;
  };

  std::condition_variable native_;
};

}  // namespace meshwright
