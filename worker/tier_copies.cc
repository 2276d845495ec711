#include "worker/tier_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.h"

namespace meshwright::worker {
namespace {

// Earlier than anything that Begin() lets a step come behind.
constexpr int64_t kLongAgo = std::numeric_limits<int64_t>::min() / 2;
constexpr std::array<int64_t, kTierLanes> kNothing = {kLongAgo, kLongAgo, kLongAgo, kLongAgo};

constexpr std::array<const char*, kTierLanes> kLaneNames = {"", "host", "disk", "runs"};

}  // namespace

TierThreads StartTierThreads(const std::vector<TierLane>& lanes, const std::string& name) {
  TierThreads threads;
  for (const TierLane lane : lanes) {
    const auto l = static_cast<size_t>(lane);
    if (lane == TierLane::kComputes || threads[l] != nullptr) continue;
    threads[l] = std::make_unique<Executor>(fmt::format("mw-{}-{}", kLaneNames[l], name));
  }
  return threads;
}

TierCopies::TierCopies(const std::vector<TierItem>& items, TierRates rates, TierThreads threads)
    : bytes_per_s_{0, rates.host_bytes_per_s, rates.disk_bytes_per_s, 0},
      awaited_(items.size(), kNothing),
      threads_(std::move(threads)) {
  const auto count = static_cast<int64_t>(items.size());
  // Two steps: what the second waits for is what every one does.
  std::vector<QueueItem> queued;
  for (int step = 0; step < 2; ++step) {
    for (const TierItem& item : items) {
      queued.push_back({static_cast<int>(item.lane), item.accesses});
    }
  }
  const QueueOrder order = OrderQueues(queued, static_cast<int>(kTierLanes));
  std::vector<int64_t> recorded(static_cast<size_t>(order.events), -1);  // behind which item
  for (size_t i = 0; i < queued.size(); ++i) {
    const QueueOrder::Item& ordered = order.items[i];
    if (ordered.event >= 0) recorded[static_cast<size_t>(ordered.event)] = static_cast<int64_t>(i);
    if (i < items.size()) continue;
    Awaited& awaited = awaited_[i - items.size()];
    for (const int event : ordered.waits) {
      const int64_t behind = recorded[static_cast<size_t>(event)];
      int64_t& last = awaited[static_cast<size_t>(queued[static_cast<size_t>(behind)].queue)];
      last = std::max(last, behind - count);
    }
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].lane == TierLane::kComputes) continue;
    MW_CHECK((items[i].lane == TierLane::kDisk) == (items[i].file != nullptr))
        << "copy " << i << " is of another lane than its memory";
    MW_CHECK((items[i].lane == TierLane::kHostRuns) == (items[i].run != nullptr))
        << "item " << i << " is of another lane than who runs it";
    Copy copy{static_cast<int64_t>(i), awaited_[i], items[i]};
    copy.item.accesses.clear();
    copies_[static_cast<size_t>(items[i].lane)].push_back(std::move(copy));
    bytes_per_step_ += items[i].bytes;
  }
  for (size_t lane = 1; lane < kTierLanes; ++lane) {
    if (copies_[lane].empty()) continue;
    const bool posted =
        threads_[lane] != nullptr && threads_[lane]->Post([this, lane] { Run(lane); });
    MW_CHECK(posted) << "no thread for the " << copies_[lane].size() << " items of lane " << lane;
  }
}

TierCopies::~TierCopies() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    stopped_ = true;
    changed_.NotifyAll();
  }
  for (const auto& thread : threads_) {
    if (thread != nullptr) thread->Stop();
  }
}

bool TierCopies::IsDone(const Awaited& awaited, int64_t turn) const {
  const int64_t first = turn * static_cast<int64_t>(awaited_.size());  // instruction of the turn
  for (size_t lane = 0; lane < kTierLanes; ++lane) {
    if (done_[lane] < first + awaited[lane]) return false;
  }
  return true;
}

bool TierCopies::AreBehind(int64_t turn) const {
  return std::all_of(behind_.begin() + 1, behind_.end(),
                     [&](int64_t behind) { return behind >= turn; });
}

Status TierCopies::Begin(int64_t step) {
  const MutexLock lock(mutex_);
  while (!AreBehind(turn_ - 1) && failure_.ok()) changed_.Wait(mutex_);
  if (!failure_.ok()) return failure_;
  ++turn_;
  steps_[static_cast<size_t>(turn_ % 2)] = step;
  const int64_t before = turn_ * static_cast<int64_t>(awaited_.size()) - 1;
  for (size_t lane = 0; lane < kTierLanes; ++lane) {
    if (lane == 0 || is_idle_ || copies_[lane].empty()) done_[lane] = before;
    if (lane == 0 || copies_[lane].empty()) behind_[lane] = turn_;
  }
  is_idle_ = false;
  changed_.NotifyAll();
  return OkStatus();
}

Status TierCopies::Await(size_t instruction) {
  const Awaited& awaited = awaited_[instruction];
  if (awaited == kNothing) return OkStatus();
  const MutexLock lock(mutex_);
  while (!IsDone(awaited, turn_) && !stopped_) changed_.Wait(mutex_);
  return failure_;
}

void TierCopies::Passed(size_t instruction) {
  const MutexLock lock(mutex_);
  done_[0] = turn_ * static_cast<int64_t>(awaited_.size()) + static_cast<int64_t>(instruction);
  changed_.NotifyAll();
}

Status TierCopies::AwaitIdle() {
  while (!AreBehind(turn_)) changed_.Wait(mutex_);
  is_idle_ = true;
  stopped_ = false;
  return std::exchange(failure_, OkStatus());
}

Status TierCopies::End() {
  const MutexLock lock(mutex_);
  return AwaitIdle();
}

void TierCopies::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
  (void)AwaitIdle();
}

void TierCopies::Run(size_t lane) {
  for (int64_t turn = 1; RunTurn(lane, turn); ++turn) continue;
}

bool TierCopies::RunTurn(size_t lane, int64_t turn) {
  int64_t step = 0;
  {
    const MutexLock lock(mutex_);
    while (turn_ < turn && !ends_) changed_.Wait(mutex_);
    if (ends_) return false;
    step = steps_[static_cast<size_t>(turn % 2)];
  }
  for (const Copy& copy : copies_[lane]) {
    {
      const MutexLock lock(mutex_);
      while (!IsDone(copy.awaited, turn) && !stopped_) changed_.Wait(mutex_);
      if (stopped_) break;
    }
    Status made = TryMake(lane, copy, step);
    const MutexLock lock(mutex_);
    if (!made.ok()) {
      if (failure_.ok()) failure_ = std::move(made);
      stopped_ = true;
      changed_.NotifyAll();
      break;
    }
    done_[lane] = turn * static_cast<int64_t>(awaited_.size()) + copy.instruction;
    changed_.NotifyAll();
  }
  const MutexLock lock(mutex_);
  behind_[lane] = turn;
  changed_.NotifyAll();
  return !ends_;
}

Status TierCopies::TryMake(size_t lane, const Copy& copy, int64_t step) {
  try {
    return Make(lane, copy, step);
  } catch (const std::exception& error) {
    return Internal(fmt::format("instruction {}: exception in the thread \"{}\": {}",
                                copy.instruction, threads_[lane]->name(), error.what()));
  }
}

Status TierCopies::Make(size_t lane, const Copy& copy, int64_t step) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const TierItem& item = copy.item;
  if (item.run) return item.run(step);
  const auto bytes = static_cast<size_t>(item.bytes);
  if (item.from == nullptr) {
    MW_TRY(item.file->Read(item.file_offset, {item.to, bytes}));
  } else if (item.to == nullptr) {
    MW_TRY(item.file->Write(item.file_offset, {item.from, bytes}));
  } else {
    std::memcpy(item.to, item.from, bytes);
  }
  if (bytes_per_s_[lane] <= 0) return OkStatus();
  const std::chrono::duration<double> takes(static_cast<double>(item.bytes) /
                                            static_cast<double>(bytes_per_s_[lane]));
  const Clock::time_point due = begin + std::chrono::duration_cast<Clock::duration>(takes);
  const MutexLock lock(mutex_);
  while (!stopped_ && Clock::now() < due) (void)changed_.WaitUntil(mutex_, due);
  return OkStatus();
}

}  // namespace meshwright::worker
