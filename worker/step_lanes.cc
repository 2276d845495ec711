#include "worker/step_lanes.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"

namespace meshwright::worker {
namespace {

using Kind = StepItem::Kind;
using SteadyClock = std::chrono::steady_clock;

}  // namespace

std::unique_ptr<StepLanes> StepLanes::Make(std::span<const StepInstruction> instructions,
                                           Executor& beside) {
  std::unique_ptr<StepLanes> lanes(new StepLanes(instructions, beside));
  return lanes->pieces_of_[kCollectives].empty() ? nullptr : std::move(lanes);
}

StepLanes::StepLanes(std::span<const StepInstruction> instructions, Executor& beside)
    : list_(MakeStepList(instructions, {}, nullptr, Collectives::kBesideKernels)),
      beside_(beside),
      pieces_of_(kQueues),
      passed_(static_cast<size_t>(list_.events), false) {
  for (const StepPiece& piece : list_.pieces) {
    MW_CHECK(piece.queue < kTierCopies) << "a copy between memories is for nobody here";
    pieces_of_[static_cast<size_t>(piece.queue)].push_back(&piece);
  }
}

Status StepLanes::Run(const ops::RunContext& context, const FirstCause& cause,
                      InstructionCounter& counter, OnFailure failed) {
  const Step step{context, cause, counter, failed};
  {
    const MutexLock lock(mutex_);
    passed_.assign(passed_.size(), false);
    stopped_ = false;
    beside_ends_ = false;
  }
  const bool posted = beside_.Post([this, &step] {
    RunLane(kCollectives, step);
    const MutexLock lock(mutex_);
    beside_ends_ = true;
    changed_.NotifyAll();
  });
  MW_CHECK(posted) << "the thread of collectives ends before the device's own";
  RunLane(kComputing, step);
  counter.Meet(nullptr);
  bool stopped = false;
  {
    const MutexLock lock(mutex_);
    while (!beside_ends_) changed_.Wait(mutex_);
    stopped = stopped_;
  }
  counter.Part(nullptr);
  return stopped ? cause.status() : OkStatus();
}

void StepLanes::RunLane(int lane, const Step& step) {
  ops::RunContext context = step.context;
  // The device's helpers work for one thread at a time.
  if (lane == kCollectives) context.team = nullptr;
  int64_t at = -1;
  for (const StepPiece* const piece : pieces_of_[static_cast<size_t>(lane)]) {
    if (!Await(lane, *piece, step.counter)) return;
    for (size_t i = piece->begin; i < piece->end; ++i) {
      const StepItem& item = list_.items[i];
      if (lane == kComputing && item.instruction != at) {
        if (at >= 0) step.counter.Passed(ir::StepMark::kWhole);
        at = item.instruction;
        step.counter.At(static_cast<size_t>(at));
      }
      const Status status = TryItem(lane, item, context, step);
      if (status.ok()) {
        // What runs beside has no row of its own in a record.
        if (lane == kComputing && item.node != nullptr) {
          step.counter.Passed(item.node->ids[0].value());
        }
        continue;
      }
      step.failed(item.instruction, status);
      Stop();
      return;
    }
    Pass(*piece);
  }
  if (at >= 0) step.counter.Passed(ir::StepMark::kWhole);
}

// The other thread refers to this step, so nothing may leave it in another way than by its end.
Status StepLanes::TryItem(int lane, const StepItem& item, ops::RunContext& context,
                          const Step& step) {
  if (step.cause.stopped()) return step.cause.status();
  try {
    return RunItem(lane, item, context, step);
  } catch (const std::exception& error) {
    return Internal(fmt::format("exception in the device's thread: {}", error.what()));
  }
}

Status StepLanes::RunItem(int lane, const StepItem& item, ops::RunContext& context,
                          const Step& step) {
  context.microbatch = item.microbatch;
  if (item.kind == Kind::kCopy) {
    std::memcpy(item.to, item.from, static_cast<size_t>(item.bytes));
    return OkStatus();
  }
  if (item.transfer != nullptr) return RunMessage(*item.transfer, context, step.counter);
  MW_CHECK(item.node != nullptr) << "an item of instruction " << item.instruction
                                 << " does nothing";
  const SteadyClock::time_point start =
      context.observer ? SteadyClock::now() : SteadyClock::time_point();
  const Status status = item.kind == Kind::kCollective
                            ? RunCollective(lane, item, context, step.counter)
                            : item.node->kernel->Run(context, item.operands, item.results);
  if (!status.ok()) return status.WithContext(item.executable->NodeName(*item.node));
  if (context.observer != nullptr) {
    const std::chrono::duration<double> taken = SteadyClock::now() - start;
    context.observer->OnNode(item.executable->graph(), item.node->ids[0], taken.count());
  }
  return OkStatus();
}

Status StepLanes::RunCollective(int lane, const StepItem& item, const ops::RunContext& context,
                                InstructionCounter& counter) {
  const LoadedExecutable::Node& node = *item.node;
  const auto run = [&] {
    return node.collective->Run(item.operands, item.results, item.scratch, context.team);
  };
  if (node.group == nullptr) return run();
  // The counter's waits are the device's own thread's.
  if (lane == kCollectives) {
    if (node.mark != nullptr) node.mark->Enter();
    MW_TRY(run());
    if (node.mark != nullptr) node.mark->Leave();
    return OkStatus();
  }
  counter.Meet(node.mark);
  MW_TRY(run());
  counter.Part(node.mark);
  return OkStatus();
}

bool StepLanes::Await(int lane, const StepPiece& piece, InstructionCounter& counter) {
  if (piece.waits.empty()) return true;
  const MutexLock lock(mutex_);
  if (stopped_) return false;
  if (IsFree(piece)) return true;
  if (lane == kComputing) counter.Meet(nullptr);
  while (!stopped_ && !IsFree(piece)) changed_.Wait(mutex_);
  if (lane == kComputing) counter.Part(nullptr);
  return !stopped_;
}

bool StepLanes::IsFree(const StepPiece& piece) const {
  for (const int event : piece.waits) {
    if (!passed_[static_cast<size_t>(event)]) return false;
  }
  return true;
}

void StepLanes::Pass(const StepPiece& piece) {
  if (piece.event < 0) return;
  const MutexLock lock(mutex_);
  passed_[static_cast<size_t>(piece.event)] = true;
  changed_.NotifyAll();
}

void StepLanes::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace meshwright::worker
