// DeviceActor: one local device, its thread, its memory and its programs.
//
// Its thread waits at a mailbox of a few orders. The control thread posts one order per launch and
// waits for all actors; each order is answered exactly once, and a full mailbox refuses. What flows
// within a launch are channels and groups: no message of a step passes the mailbox.
//
// Thread rule: AddProgram, Post*, Wait and the persistent accessors on the control thread, the
// accessors with nothing posted that Wait has not seen; stats() and device_status() from any
// thread. Ownership: owns device, memory and programs; links and cause outlive it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actor/owner_loop.h"
#include "actor/reply.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/result.h"
#include "device/device.h"
#include "device/staging.h"
#include "worker/device_memory.h"
#include "worker/first_cause.h"
#include "worker/links.h"
#include "worker/loaded_program.h"
#include "worker/marked_feed.h"
#include "worker/runtime.h"

namespace meshwright::worker {

struct ActorOptions {
  int rank = 0;
  ops::Target target;
  ops::FeedSource* feed = nullptr;
  uint64_t seed = 0;
  ops::NodeObserver* observer = nullptr;
  DeviceMark* mark = nullptr;  // takes where the device is; null: none
  device::Scratch scratch;
  // Of GPUs: worker/queued_step.h.
  bool record = true;
  int64_t stall_timeout_ms = 0;
};

struct LocalDevice {
  std::unique_ptr<device::Device> device;
  std::unique_ptr<device::Queue> collectives;  // of a GPU; else null
  std::unique_ptr<device::Queue> tier_copies;  // of a GPU; else null
  std::unique_ptr<device::Queue> host_runs;    // of a GPU; else null
  int host_threads = 1;                        // of a GPU: of what the host runs for it
};

// What a launch fills in. Its memory is taken by who asks, so that the device's thread takes none.
struct LaunchRecord {
  std::vector<double> seconds;     // per step
  std::vector<int64_t> waited_ns;  // of these, for others
  std::vector<double> values;      // per step, per report
  size_t report_count = 0;
  std::vector<ir::StepRecord> recorded;  // its marks have their room

  // Seconds, per step, but for what it waited.
  std::vector<double> BusySeconds() const;
};

class DeviceActor {
 public:
  // Orders that may wait, beside the one that runs.
  static constexpr size_t kMailbox = 4;

  DeviceActor(ActorOptions options, LocalDevice device, Links& links, FirstCause& cause);
  ~DeviceActor();  // waits for the orders that were taken
  // Ends the thread, after what was taken. No Post* any more.
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
  // Errors, of both: kResourceExhausted when the mailbox is full; nothing was posted.
  Status PostAllocate();
  // REQUIRES a program of this name. Steps first_step ... first_step + count - 1. most_marks: that
  // are written down of a step that is to be recorded.
  Status PostSteps(const LaunchRequest& request, size_t most_marks = 0);
  // Those of its rank. What fails is the answer of Wait, and no cause of the mesh.
  void PostCopies(const std::vector<PersistentCopy>& copies);
  // Blocks until all that was posted is done; the first failure since the last Wait. Every order
  // ends: kernels are finite and transfers have deadlines.
  Status Wait();

  // Of the last launch that is done, behind Wait: wall seconds and report values of its step number
  // `index` (0-based).
  double seconds(int64_t index) const { return last_.seconds[static_cast<size_t>(index)]; }
  std::span<const double> values(int64_t index) const;
  // The same of its steps, but for what it waited for others. Empty: it is not known, on a GPU.
  std::vector<double> busy_seconds() const {
    return device_.kind() == device::Kind::kCuda ? std::vector<double>() : last_.BusySeconds();
  }

  // Of the last launch, behind Wait, appends the steps that were to be recorded. Again: nothing.
  void TakeRecorded(std::vector<ir::StepRecord>& all) {
    for (ir::StepRecord& record : std::exchange(last_.recorded, {})) {
      all.push_back(std::move(record));
    }
  }

  // Appends this device's blocks of what the program gave out in its last step. Errors: kNotFound
  // without the program; the device's.
  Status ReadOutputs(const std::string& program, std::vector<OutputBlock>& blocks) const;
  // Errors: kNotFound naming rank and slot; kInvalidArgument on a size mismatch; the device's.
  Result<ops::HostTensor> ReadPersistent(const std::string& slot) const;
  Status CopyPersistent(const std::string& slot, std::span<std::byte> into) const;
  // `fill` writes the block: in place where it is memory of this host, else into a copy.
  Status FillPersistent(const std::string& slot, const FillBlock& fill);

  // Lets processes of this host work on the device's memory in place. REQUIRES that PostAllocate
  // succeeded.
  Status ShareMemory(collective::Fabric& fabric) const;

  DeviceStats stats() const;
  Status device_status() const { return device_.status(); }

 private:
  struct Allocation {};
  using Copies = std::vector<PersistentCopy>;
  struct Steps {
    LoadedProgram* program = nullptr;
    int64_t first_step = 0;
    LaunchRecord record;
  };
  using Work = std::variant<Allocation, Steps, Copies>;
  struct Order {
    Work what;
    actor::ReplySlot<LaunchRecord> reply;
  };

  Status Post(Work what);
  void OnOrder(Order order);
  void OnDone(Result<LaunchRecord> record);
  Result<LaunchRecord> Run(Order& order);
  Status Allocate();
  Status RunSteps(Steps& steps);
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
  MarkedFeed feed_;

  Mutex mutex_;
  CondVar done_;
  LaunchRecord last_;  // written under mutex_, read behind Wait
  Status outcome_ MW_GUARDED_BY(mutex_);
  size_t pending_ MW_GUARDED_BY(mutex_) = 0;  // orders that are not done
  std::unique_ptr<Executor> beside_;  // runs collectives; null: no program of a CPU device has any
  // Last: the thread ends before what its orders use.
  Executor thread_;
  actor::ExecutorScheduler scheduler_;
  actor::OwnerLoop<Order> loop_;
};

}  // namespace meshwright::worker
