// DeviceActor: one local device, its thread, its memory and its programs.
//
// The thread is started with the actor and parked between tasks. A task is posted by the control
// thread, which then waits for all actors; each task completes exactly once, with a Status.
//
// Thread rule: AddProgram, Post*, Wait and the persistent accessors on the control thread, with no
// task running except between Post* and Wait; stats() and device_status() from any thread.
// Ownership: owns device, memory and programs; links and cause outlive it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/result.h"
#include "device/device.h"
#include "device/staging.h"
#include "worker/device_memory.h"
#include "worker/first_cause.h"
#include "worker/links.h"
#include "worker/loaded_program.h"
#include "worker/runtime.h"

namespace meshwright::worker {

struct ActorOptions {
  int rank = 0;
  ops::Target target;
  ops::FeedSource* feed = nullptr;
  uint64_t seed = 0;
  ops::NodeObserver* observer = nullptr;
  // Of GPUs: worker/queued_step.h.
  bool record = true;
  int64_t stall_timeout_ms = 0;
};

struct LocalDevice {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Queue> collectives;  // of a GPU; else null
};

class DeviceActor {
 public:
  DeviceActor(ActorOptions options, LocalDevice device, Links& links, FirstCause& cause);
  ~DeviceActor();  // waits for the running task
  // Ends the thread, after the running task. No Post* any more.
  void Stop() { thread_.Stop(); }
  // After Stop(): waits until nothing is in the device's queues. Errors: the device's; that of one
  // that is not there in time, kDeadlineExceeded, is its end: it must not be destroyed.
  Status Drain(const Deadline& deadline);
  DeviceActor(const DeviceActor&) = delete;
  DeviceActor& operator=(const DeviceActor&) = delete;

  int rank() const { return options_.rank; }

  // Errors: as LoadedProgram::Load; kAlreadyExists on a second program of the same name.
  Status AddProgram(ir::Program program);
  // Null when there is none of this name.
  const ir::Program* FindProgram(const std::string& name) const;

  // Pins the thread, allocates the memory, resolves all programs and records what a GPU replays.
  void PostAllocate();
  // REQUIRES a program of this name. Steps first_step ... first_step + count - 1.
  void PostSteps(const LaunchRequest& request);
  // Blocks until the posted task is done and returns its outcome. Every task ends: kernels are
  // finite and transfers have deadlines.
  Status Wait();

  // Of the last PostSteps: wall seconds and report values of its step number `index` (0-based).
  double seconds(int64_t index) const { return seconds_[static_cast<size_t>(index)]; }
  std::span<const double> values(int64_t index) const;

  // Appends this device's blocks of what the program gave out in its last step. Errors: kNotFound
  // without the program; the device's.
  Status ReadOutputs(const std::string& program, std::vector<OutputBlock>& blocks) const;
  // Errors: kNotFound naming rank and slot; kInvalidArgument on a size mismatch; the device's.
  Result<ops::HostTensor> ReadPersistent(const std::string& slot) const;
  Status WritePersistent(const std::string& slot, const std::vector<std::byte>& data);

  // Lets processes of this host work on the device's memory in place. REQUIRES that PostAllocate
  // succeeded.
  Status ShareMemory(collective::Fabric& fabric) const;

  DeviceStats stats() const;
  Status device_status() const { return device_.status(); }

 private:
  void Post(std::function<Status()> task);
  Status RunTask(const std::function<Status()>& task);
  Status Allocate();
  Status RunSteps(LoadedProgram& program, int64_t first_step);
  Result<const DeviceMemory::Persistent*> FindPersistent(const std::string& slot) const;

  const ActorOptions options_;
  const LocalDevice local_;
  device::Device& device_;
  Links& links_;
  FirstCause& cause_;
  DeviceMemory memory_;
  std::unique_ptr<device::Staging> staging_;  // between the host and persistent slots
  std::map<std::string, std::unique_ptr<LoadedProgram>> programs_;
  InstructionCounter counter_;
  std::vector<double> seconds_;  // per step of the last launch
  std::vector<double> values_;   // per step, per report
  size_t report_count_ = 0;

  std::mutex mutex_;  // guards outcome_, busy_
  std::condition_variable done_;
  Status outcome_;
  bool busy_ = false;
  Executor thread_;  // last: its task ends before what the task uses
};

}  // namespace meshwright::worker
