// QueuedStep: the list of a step (worker/step_list.h) as work for the queues of a GPU.
//
// The host walks the list once per step and waits at its end; what it needs (reports, a kernel's
// complaint about an id, how far the device got) comes back in memory that both see.
//
// Record(), before any step, keeps the pieces of several items as recordings, which steps replay.
// It also makes CUDA load every kernel: later that may have to wait for the device, which may be
// waiting in a collective for another device whose kernels are not loaded. What cannot be recorded
// then runs as it is in the first step and is recorded in the second.
//
// A driver takes about a thousand launches; the next one waits inside it, where nothing can end
// the wait. So no more than a part of that is given before some of it is done.
//
// Failure: an error that the device shows later is one of the instruction behind the last that was
// marked as done. A device that marks nothing for stall_timeout_ms is taken for stuck; one that
// waits for a peer has twice as long, so that the one that is to blame speaks first.
//
// Thread rule: the device's own thread. Ownership: refers to the program's instructions, to device
// and queues; owns events, recordings and its two small pieces of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "ops/kernel.h"
#include "worker/first_cause.h"
#include "worker/host_runs.h"
#include "worker/mesh_record.h"
#include "worker/step_list.h"
#include "worker/step_progress.h"

namespace meshwright::worker {

// A GPU as the walker of a program sees it.
struct Lanes {
  device::Device* device = nullptr;
  device::Queue* collectives = nullptr;
  bool record = true;
  int64_t stall_timeout_ms = 60'000;
  DeviceMark* mark = nullptr;            // takes what is given to the device; null: none
  device::Queue* tier_copies = nullptr;  // null: no program has any
  device::Queue* host_runs = nullptr;    // the same
  int host_threads = 1;                  // of one of these
};

class QueuedStep {
 public:
  // overlap: collectives run beside what computes. host: what the host runs; null: nothing; it
  // outlives the step. REQUIRES resolved instructions. Errors: of the device.
  static Result<std::unique_ptr<QueuedStep>> Make(const Lanes& lanes,
                                                  std::span<const StepInstruction> instructions,
                                                  std::span<const ReportPlace> reports,
                                                  bool overlap = true, HostRuns* host = nullptr);
  ~QueuedStep();

  // REQUIRES that no device of the process is in a step. What cannot be recorded is logged. Errors:
  // those after which the device cannot be used.
  Status Record();

  // The whole step. What it returns is not yet located. context: without the fields of GPUs.
  Status Run(const ops::RunContext& context, const FirstCause& cause);

  // After a failure: the instruction that the device was at; -1: not known, or it is the host's.
  int64_t reached() const { return reached_; }
  // Bytes of the reports, in order, kReportBytes for each. After Run().
  const std::byte* reports() const;

 private:
  struct Mailbox;

  explicit QueuedStep(const Lanes& lanes);
  Status Allocate(size_t reports);
  Mailbox& mailbox() const;
  device::Queue& QueueOf(int queue) const;
  void Fill(ops::RunContext& context) const;

  Status Begin(ops::RunContext& context, const FirstCause& cause);
  Status Enqueue(const StepItem& item, ops::RunContext& context);
  Status EnqueuePieces(ops::RunContext& context, const FirstCause& cause);
  Status EnqueuePiece(size_t piece, ops::RunContext& context, const FirstCause& cause);
  // cause null: into a recording.
  Status EnqueueItems(const StepPiece& piece, ops::RunContext& context, const FirstCause* cause);
  Status RecordPiece(size_t piece, ops::RunContext& context);
  Status RecordCopies();
  // Of what the host ran.
  Status HostStatus();
  static Status EnqueueCopies(const StepItem& item, device::Queue& queue);
  Status RunObserved(ops::RunContext& context, const FirstCause& cause);
  Status End(const FirstCause& cause);

  // Waits until so many launches more may be given.
  Status MakeRoom(int64_t launches, const FirstCause& cause);
  // Until the queue is empty, or `enough` says that the host may go on.
  Status Await(int queue, const FirstCause& cause, FunctionRef<bool()> enough);
  Status Stalled(bool by_peer);
  Status Explain(const Status& failure, const FirstCause& cause);
  // Of what the queue was given, the first that it is not through; null: none.
  const StepItem* Front(int queue) const;
  // What the device waits for, when that is another device; else null.
  const StepItem* AwaitedPeer() const;
  int64_t InstructionBehindMark() const;

  const Lanes lanes_;
  HostRuns* host_ = nullptr;
  StepList list_;
  StepProgress progress_;
  std::vector<std::unique_ptr<device::Event>> events_;
  std::vector<std::unique_ptr<device::Recording>> recordings_;  // per piece; null: none
  std::unique_ptr<device::Memory> memory_;                      // StepState, Fault
  std::unique_ptr<device::HostMemory> mailbox_;                 // Mailbox, then the reports
  int64_t steps_ = 0;
  int64_t reached_ = -1;
};

}  // namespace meshwright::worker
