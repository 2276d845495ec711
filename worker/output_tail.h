// OutputTail: what a child process prints: every line goes to this process's log, marked as the
// child's, and the last ones are kept for who has to say how the child ended.
//
// Thread rule: thread-safe; reads on a thread of its own. Ownership: owns the pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "base/mutex.h"
#include "base/unique_fd.h"

namespace meshwright::worker {

class OutputTail {
 public:
  static constexpr size_t kMostLines = 20;
  static constexpr size_t kMostBytes = 3072;  // of the lines that are kept

  // ended: on the reading thread, once, when nobody can write to the pipe any more. Not called
  // within the constructor's or after the destructor's time.
  OutputTail(UniqueFd pipe, std::string process, std::function<void()> ended);
  // Stops reading.
  ~OutputTail();
  OutputTail(const OutputTail&) = delete;
  OutputTail& operator=(const OutputTail&) = delete;

  // The child works for the job from now on.
  void WorksFor(int64_t job);
  // The last lines, after the end of the pipe or after timeout_ms: a grandchild may hold it open.
  std::string Take(int64_t timeout_ms);

 private:
  void ReadLoop();
  void Add(std::string_view line);

  const UniqueFd pipe_;
  const UniqueFd stop_;  // an event that ends the reading
  const std::string process_;
  const std::function<void()> on_end_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> lines_ MW_GUARDED_BY(mutex_);
  int64_t job_ MW_GUARDED_BY(mutex_) = 0;
  size_t bytes_ MW_GUARDED_BY(mutex_) = 0;
  bool ended_ MW_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

}  // namespace meshwright::worker
