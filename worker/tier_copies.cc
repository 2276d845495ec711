#include "worker/tier_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace meshwright::worker {
namespace {

constexpr std::array<int64_t, kTierLanes> kNothing = {-1, -1, -1, -1};

}  // namespace

TierCopies::TierCopies(const std::vector<TierItem>& items, TierRates rates)
    : bytes_per_s_{0, rates.host_bytes_per_s, rates.disk_bytes_per_s, 0},
      awaited_(items.size(), kNothing) {
  std::vector<QueueItem> queued;
  for (const TierItem& item : items) {
    queued.push_back({static_cast<int>(item.lane), item.accesses});
  }
  const QueueOrder order = OrderQueues(queued, static_cast<int>(kTierLanes));
  std::vector<int64_t> recorded(static_cast<size_t>(order.events), -1);  // behind which item
  for (size_t i = 0; i < items.size(); ++i) {
    const QueueOrder::Item& ordered = order.items[i];
    if (ordered.event >= 0) recorded[static_cast<size_t>(ordered.event)] = static_cast<int64_t>(i);
    for (const int event : ordered.waits) {
      const int64_t behind = recorded[static_cast<size_t>(event)];
      int64_t& last = awaited_[i][static_cast<size_t>(items[static_cast<size_t>(behind)].lane)];
      last = std::max(last, behind);
    }
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
  {
    const MutexLock lock(mutex_);
    done_ = kNothing;
  }
  for (size_t lane = 1; lane < kTierLanes; ++lane) {
    if (!copies_[lane].empty()) threads_.emplace_back([this, lane] { Run(lane); });
  }
}

TierCopies::~TierCopies() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    stopped_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool TierCopies::IsDone(const Awaited& awaited) const {
  for (size_t lane = 0; lane < kTierLanes; ++lane) {
    if (done_[lane] < awaited[lane]) return false;
  }
  return true;
}

bool TierCopies::IsIdle() const {
  return std::none_of(busy_.begin(), busy_.end(), [](bool busy) { return busy; });
}

void TierCopies::Begin() {
  const MutexLock lock(mutex_);
  MW_CHECK(IsIdle()) << "a step begins before the copies of the last one are made";
  ++step_;
  done_ = kNothing;
  for (size_t lane = 1; lane < kTierLanes; ++lane) busy_[lane] = !copies_[lane].empty();
  stopped_ = false;
  failure_ = OkStatus();
  changed_.NotifyAll();
}

Status TierCopies::Await(size_t instruction) {
  const Awaited& awaited = awaited_[instruction];
  if (awaited == kNothing) return OkStatus();
  const MutexLock lock(mutex_);
  while (!IsDone(awaited) && !stopped_) changed_.Wait(mutex_);
  return failure_;
}

void TierCopies::Passed(size_t instruction) {
  const MutexLock lock(mutex_);
  done_[0] = static_cast<int64_t>(instruction);
  changed_.NotifyAll();
}

Status TierCopies::End() {
  const MutexLock lock(mutex_);
  while (!IsIdle()) changed_.Wait(mutex_);
  return failure_;
}

void TierCopies::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
  while (!IsIdle()) changed_.Wait(mutex_);
}

void TierCopies::Run(size_t lane) {
  for (int64_t step = 1; RunStep(lane, step); ++step) continue;
}

bool TierCopies::RunStep(size_t lane, int64_t step) {
  {
    const MutexLock lock(mutex_);
    while (step_ < step && !ends_) changed_.Wait(mutex_);
    if (ends_) return false;
  }
  for (const Copy& copy : copies_[lane]) {
    {
      const MutexLock lock(mutex_);
      while (!IsDone(copy.awaited) && !stopped_) changed_.Wait(mutex_);
      if (stopped_) break;
    }
    Status made = Make(lane, copy);
    const MutexLock lock(mutex_);
    if (!made.ok()) {
      failure_ = std::move(made);
      stopped_ = true;
      changed_.NotifyAll();
      break;
    }
    done_[lane] = copy.instruction;
    changed_.NotifyAll();
  }
  const MutexLock lock(mutex_);
  busy_[lane] = false;
  changed_.NotifyAll();
  return !ends_;
}

Status TierCopies::Make(size_t lane, const Copy& copy) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const TierItem& item = copy.item;
  if (item.run) return item.run();
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
