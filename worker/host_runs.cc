#include "worker/host_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <utility>

#include "base/check.h"
#include "device/device.h"
#include "worker/loaded_executable.h"

namespace meshwright::worker {

void HostRuns::AddScratch(const ScratchNeed& need) {
  const auto bytes = static_cast<size_t>(need.bytes + device::kAlignmentBytes);
  scratch_.resize(std::max(scratch_.size(), bytes));
}

std::byte* HostRuns::scratch() {
  MW_CHECK(!scratch_.empty()) << "no RUN of the host has been added";
  const auto begin = reinterpret_cast<uintptr_t>(scratch_.data());
  return scratch_.data() +
         (device::AlignUp(static_cast<int64_t>(begin)) - static_cast<int64_t>(begin));
}

void HostRuns::SetThreads(int threads) {
  MW_CHECK(threads >= 1) << "RUNs of the host on " << threads << " threads";
  if (threads > 1) team_ = std::make_unique<ThreadTeam>(threads);
}

void HostRuns::Begin(const ops::RunContext& context, const FirstCause& cause) {
  context_ = ops::RunContext();
  context_.seed = context.seed;
  context_.step = context.step;
  context_.team = team_.get();
  cause_ = &cause;
  const MutexLock lock(mutex_);
  failure_ = {};
}

Status HostRuns::Run(const StepInstruction& run, int64_t step) {
  MW_CHECK(cause_ != nullptr) << "a RUN of the host before a step";
  ops::RunContext context = context_;
  context.step = step;
  return run.executable->Run(run.call, context, *cause_, counter_);
}

// The driver's thread, which calls this, knows no exceptions.
Status HostRuns::TryRun(const StepInstruction& run, int64_t step) {
  try {
    return Run(run, step);
  } catch (const std::exception& error) {
    return Internal(fmt::format("exception in a RUN of the host: {}", error.what()));
  }
}

void HostRuns::RunQueued(const StepInstruction& run) {
  if (failure().run != nullptr) return;
  Status status = TryRun(run, context_.step);
  if (status.ok()) return;
  const MutexLock lock(mutex_);
  failure_ = {std::move(status), &run};
}

HostRuns::Failure HostRuns::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

}  // namespace meshwright::worker
