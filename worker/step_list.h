// StepList: the instructions of a step as items for the queues of a GPU, or for the threads of a
// CPU device, and the pieces in which they are given.
//
// Kernels, copies and transfers between stages go to the device's computing queue, collectives to
// one beside it, so that gradients are reduced while others are computed, and what goes to and
// comes from the host's memory to a third; what the host runs on what is there has a fourth. Events
// order them where they touch the same bytes
// (worker/queue_order.h). A collective that is listed behind work that it does not need begins
// before that work is done: a queue goes on as far as the bytes let it. A piece needs nothing from
// the host or another queue in between, so that it can be recorded. Marks say how far a queue has
// got: behind each instruction and each collective, and often enough in between for the host to see
// that it may give more.
//
// The threads of a CPU device (worker/step_lanes.h) take turns at a price. So a collective is for
// the second one only where something can be computed beside it. Calls of one group keep their
// order, whoever makes them: a group counts as bytes that its calls write.
//
// Why no devices wait for each other for ever: each queue goes through its items in the order of
// the list, and waits for items that are listed before. Where a list ends that is walked one item
// at a time, which the verifier has shown, the first item that did not end here would have nothing
// left to wait for.
//
// Thread rule: a plain value. Ownership: refers to the program's instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/queue_order.h"
#include "worker/step_instruction.h"

namespace meshwright::worker {

inline constexpr int kComputing = 0;
inline constexpr int kCollectives = 1;
inline constexpr int kTierCopies = 2;
inline constexpr int kHostCalls = 3;
inline constexpr int kQueues = 4;

// Where a report's value is.
struct ReportPlace {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};
inline constexpr int64_t kReportBytes = 8;

struct StepItem {
  enum class Kind : uint8_t {
    kKernel,
    kCollective,
    kCopy,
    kReport,
    kSend,
    kReceive,
    kPrefetch,
    kOffload,
    kHostRun,
    kMark
  };
  Kind kind = Kind::kCopy;
  int64_t instruction = 0;
  QueueItem queued;
  // kKernel, kCollective.
  const LoadedExecutable* executable = nullptr;
  const LoadedExecutable::Node* node = nullptr;
  std::span<const ops::Tensor> operands;
  std::span<const ops::Tensor> results;
  std::byte* scratch = nullptr;
  int32_t microbatch = 0;
  // kCopy, kPrefetch, kOffload; kReport: out of the device.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t bytes = 0;
  // kSend, kReceive.
  const StepInstruction* transfer = nullptr;
  const StepInstruction* run = nullptr;  // kHostRun
  // kMark
  int32_t mark = 0;

  bool recordable() const {
    return queued.queue == kComputing && kind != Kind::kSend && kind != Kind::kReceive;
  }
  // Waits for another device.
  bool meets_peers() const {
    return kind == Kind::kSend || kind == Kind::kReceive || queued.queue == kCollectives;
  }
  // About how many launches it is.
  int64_t launches() const;
};

// Where collectives go.
enum class Collectives : uint8_t {
  kOwnQueue,      // of a GPU
  kInTurn,        // of a GPU, which does nothing else meanwhile
  kBesideKernels  // a thread of a CPU device, where a kernel can run meanwhile; there are no marks
};

// Items [begin, end) of one queue: it waits before the first, and records behind the last.
struct StepPiece {
  size_t begin = 0;
  size_t end = 0;
  int queue = kComputing;
  bool recordable = false;
  std::vector<int> waits;
  int event = -1;

  size_t items() const { return end - begin; }
};

struct StepList {
  std::vector<StepItem> items;
  std::vector<StepPiece> pieces;
  int events = 0;
  std::vector<const StepInstruction*> prepared;  // those with kernels that prepare
};

// reports: copied behind the last instruction, one after the other, to `report_bytes`.
StepList MakeStepList(std::span<const StepInstruction> instructions,
                      std::span<const ReportPlace> reports, std::byte* report_bytes,
                      Collectives collectives = Collectives::kOwnQueue);

}  // namespace meshwright::worker
