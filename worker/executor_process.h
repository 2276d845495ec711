// ExecutorProcess: the process of an executor, seen from its supervisor: started, spoken to, ended,
// and asked how it ended.
//
// It may be started ahead of the mesh that it is for: nothing is heard from it before Serve().
//
// Thread rule: Start on a thread that lives as long as the process is to (the kernel kills the
// process with that thread); Send, Kill and Running from any thread; the rest one after another.
// Ownership: destroying it ends the process, and waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/subprocess.h"
#include "worker/executor_messages.h"
#include "worker/mesh_record.h"
#include "worker/message_socket.h"
#include "worker/output_tail.h"

namespace meshwright::worker {

// How an executor ended.
struct ExecutorEnd {
  std::optional<ExitStatus> exit;     // none: it does not end, though it was killed
  bool killed = false;                // by the supervisor
  std::optional<bool> out_of_memory;  // killed for want of memory; none: not known
  MeshPlace last;                     // what it did last
  std::string output;                 // its last lines

  // "was killed by signal 11 (Segmentation fault) in step 7 of ...", without its name.
  std::string ToString() const;
  // What to do about it, in a sentence.
  std::string Advice() const;
  // All that is to be said of it. who: "the executor of job 3".
  proto::RuntimeError ToError(const std::string& who, const std::string& worker) const;
};

class ExecutorProcess {
 public:
  // silent: told, on a thread of its own, when the process has closed its output: it has ended, or
  // is about to. Errors: Subprocess::Start's; those of the sockets.
  static Result<std::unique_ptr<ExecutorProcess>> Start(const std::vector<std::string>& command,
                                                        const ExecutorSettings& settings,
                                                        std::function<void()> silent);
  ~ExecutorProcess();

  pid_t pid() const { return child_->pid(); }
  // Once, and before Send.
  void Serve(MessageHandlers handlers);
  bool Send(const ToExecutor& message);
  // Where the connections of its fabric go; once.
  UniqueFd TakeConnections() { return std::move(connections_); }
  // The memory of its snapshots; once.
  UniqueFd TakeSnapshots() { return std::move(snapshots_); }
  bool Running();
  // Where its devices are, as its record says; it need not answer.
  proto::MeshMarks Marks() const { return record_.Read(pid(), SystemClock().NowNs()); }
  // SIGKILL; the end counts as the supervisor's own doing.
  void Kill();
  // No handler runs after it. Gives the process grace_ms to end by itself, then kills it.
  ExecutorEnd End(int64_t grace_ms);

 private:
  ExecutorProcess() = default;

  Mutex mutex_;
  std::unique_ptr<Subprocess> child_;  // signals and waits under mutex_
  bool killed_ MW_GUARDED_BY(mutex_) = false;
  std::optional<int64_t> kills_before_;  // for want of memory, in the control group
  MeshRecord record_;
  UniqueFd fd_;  // until Serve
  UniqueFd connections_;
  UniqueFd snapshots_;
  std::unique_ptr<OutputTail> tail_;
  std::unique_ptr<MessageSocket> socket_;
};

}  // namespace meshwright::worker
