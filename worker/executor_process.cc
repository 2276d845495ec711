#include "worker/executor_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/os_error.h"
#include "base/utf8.h"
#include "checkpoint/snapshot.h"
#include "collective/relay.h"
#include "worker/executor_main.h"
#include "worker/out_of_memory.h"

namespace meshwright::worker {
namespace {

// For a killed process to be gone: the kernel frees its memory, and a driver what it has on GPUs.
constexpr int64_t kKilledMs = 30'000;
// For the last lines; who else holds the pipe may go on holding it.
constexpr int64_t kTailMs = 500;

Status SendSettings(int fd, const ExecutorSettings& settings) {
  // The socket is empty and takes far more than this.
  return SendMessage(fd, Encode(ToExecutor(settings)));
}

}  // namespace

Result<std::unique_ptr<ExecutorProcess>> ExecutorProcess::Start(
    const std::vector<std::string>& command, const ExecutorSettings& settings,
    std::function<void()> silent) {
  MW_CHECK(!command.empty()) << "no command starts an executor";
  std::unique_ptr<ExecutorProcess> process(new ExecutorProcess());
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Fail(OsError(errno, "make a socket for an executor"));
  }
  process->fd_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  MW_ASSIGN_OR_RETURN(auto relay, collective::MakeRelaySocket());
  process->connections_ = std::move(relay.first);
  MW_ASSIGN_OR_RETURN(process->record_, MeshRecord::Create());
  MW_ASSIGN_OR_RETURN(process->snapshots_, checkpoint::MakeSnapshotMemory());
  SubprocessOptions options;
  const ExecutorDescriptors fds{theirs.get(), relay.second.get(), process->record_.descriptor(),
                                process->snapshots_.get()};
  options.args = ExecutorCommand(command, fds);
  options.keep_fds = {fds.socket, fds.connections, fds.record, fds.snapshots};
  options.death_signal = SIGKILL;
  options.stderr_to = OutputTo::Pipe();
  process->kills_before_ = OutOfMemoryKills();
  MW_ASSIGN_OR_RETURN(process->child_, Subprocess::Start(options));
  process->tail_ = std::make_unique<OutputTail>(process->child_->TakeStderr(),
                                                fmt::format("executor {}", process->child_->pid()),
                                                std::move(silent));
  MW_TRY(SendSettings(process->fd_.get(), settings));
  return process;
}

ExecutorProcess::~ExecutorProcess() { (void)End(0); }

void ExecutorProcess::Serve(MessageHandlers handlers) {
  MW_CHECK(fd_.valid()) << "executor " << pid() << " is served twice";
  socket_ = std::make_unique<MessageSocket>(std::move(fd_), kMaxExecutorMessageBytes,
                                            std::move(handlers));
}

bool ExecutorProcess::Send(const ToExecutor& message) {
  if (const auto* body = std::get_if<proto::DownBody>(&message)) {
    const auto* load = std::get_if<proto::LoadMesh>(body);
    if (load != nullptr) {
      tail_->WorksFor(load->job.value());
      // Whoever asks for the lines of the job finds the process by it (base/log_lines.h).
      LogInfo(fmt::format("mesh {} runs in executor {}: the executor of job {}",
                          load->mesh_gen.value(), pid(), load->job.value()));
    }
  }
  return socket_->Send(Encode(message));
}

bool ExecutorProcess::Running() {
  const MutexLock lock(mutex_);
  return child_->Running();
}

void ExecutorProcess::Kill() {
  const MutexLock lock(mutex_);
  if (!child_->Running()) return;
  killed_ = true;
  (void)child_->Signal(SIGKILL);
}

ExecutorEnd ExecutorProcess::End(int64_t grace_ms) {
  MW_FAILPOINT("worker.executor-ended");
  ExecutorEnd end;
  if (child_ == nullptr) return end;  // it was never started
  fd_.Reset();
  if (socket_) socket_->Close();
  const Deadline grace = Deadline::After(grace_ms);
  const auto wait = [&](int64_t timeout_ms) {
    const MutexLock lock(mutex_);
    const Result<ExitStatus> exit = child_->Wait(timeout_ms);
    if (exit.has_value()) end.exit = *exit;
    return exit.has_value();
  };
  if (!wait(grace.remaining_ms())) {
    Kill();
    (void)wait(kKilledMs);
  }
  {
    const MutexLock lock(mutex_);
    end.killed = killed_;
  }
  if (tail_) end.output = tail_->Take(kTailMs);
  const std::optional<int64_t> kills = OutOfMemoryKills();
  if (kills && kills_before_) end.out_of_memory = *kills > *kills_before_;
  end.last = record_.Last();
  return end;
}

std::string ExecutorEnd::ToString() const {
  if (!exit) return fmt::format("was killed and does not end, {}", last.ToString());
  std::string text =
      fmt::format("{}{} {}", exit->signal != 0 ? "was " : "", exit->ToString(), last.ToString());
  const bool kill = exit->signal == SIGKILL && !killed;
  if (kill && out_of_memory.value_or(false)) text += "; the kernel killed it for want of memory";
  if (kill && !out_of_memory) text += "; perhaps the kernel killed it for want of memory";
  return text;
}

proto::RuntimeError ExecutorEnd::ToError(const std::string& who, const std::string& worker) const {
  std::string text = fmt::format("worker '{}': {} {}; {}", worker, who, ToString(), Advice());
  if (!output.empty()) text += "; its last lines:\n" + output;
  const bool by_kill = exit && exit->signal == SIGKILL;
  const bool memory = by_kill && out_of_memory.value_or(false);
  const Status status = Status(memory ? StatusCode::kResourceExhausted : StatusCode::kInternal,
                               AsUtf8(text, proto::kMaxErrorText))
                            .WithBlame(!by_kill ? Blame::kInternal
                                       : memory ? Blame::kOverload
                                                : Blame::kInfra);
  proto::RuntimeError error = MakeError(proto::ErrorKind::kExecutorLost, status, worker);
  if (!last.devices.empty()) {
    const DevicePlace& place = last.devices.front();
    error.device = place.rank;
    error.step = place.step;
    error.instruction = static_cast<int32_t>(place.instruction);
  }
  return error;
}

std::string ExecutorEnd::Advice() const {
  const int signal = exit ? exit->signal : 0;
  if (signal == SIGKILL && out_of_memory.value_or(true)) {
    return "give the host more memory, or let the job use less of it: a smaller microbatch, more "
           "devices, or workers with a smaller --memory-mib; `dmesg` says what the kernel killed";
  }
  if (signal == SIGKILL) return "somebody sent it that signal; submit the job again";
  return "this is a defect of meshwright, of a library or of the machine; report it with these "
         "lines, and submit the job again";
}

}  // namespace meshwright::worker
