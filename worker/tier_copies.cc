#include "worker/tier_copies.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace meshwright::worker {
namespace {

constexpr int kComputes = 0;
constexpr int kCopies = 1;

}  // namespace

TierCopies::TierCopies(const std::vector<TierItem>& items, int64_t bytes_per_s)
    : bytes_per_s_(bytes_per_s), awaited_(items.size(), -1) {
  std::vector<QueueItem> queued;
  for (const TierItem& item : items) {
    queued.push_back({item.copies ? kCopies : kComputes, item.accesses});
  }
  const QueueOrder order = OrderQueues(queued, 2);
  std::vector<int64_t> recorded(static_cast<size_t>(order.events), -1);  // behind which item
  for (size_t i = 0; i < items.size(); ++i) {
    const QueueOrder::Item& ordered = order.items[i];
    if (ordered.event >= 0) recorded[static_cast<size_t>(ordered.event)] = static_cast<int64_t>(i);
    int64_t last = -1;
    for (const int event : ordered.waits) {
      last = std::max(last, recorded[static_cast<size_t>(event)]);
    }
    awaited_[i] = last;
    if (!items[i].copies) continue;
    copies_.push_back({static_cast<int64_t>(i), last, items[i].from, items[i].to, items[i].bytes});
    bytes_per_step_ += items[i].bytes;
  }
  thread_ = std::thread([this] { Run(); });
}

TierCopies::~TierCopies() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void TierCopies::Begin() {
  const MutexLock lock(mutex_);
  MW_CHECK(idle_) << "a step begins before the copies of the last one are made";
  ++step_;
  passed_ = -1;
  copied_ = -1;
  idle_ = false;
  stopped_ = false;
  changed_.NotifyAll();
}

void TierCopies::Await(size_t instruction) {
  const int64_t awaited = awaited_[instruction];
  if (awaited < 0) return;
  const MutexLock lock(mutex_);
  while (copied_ < awaited && !stopped_) changed_.Wait(mutex_);
}

void TierCopies::Passed(size_t instruction) {
  const MutexLock lock(mutex_);
  passed_ = static_cast<int64_t>(instruction);
  changed_.NotifyAll();
}

void TierCopies::End() {
  const MutexLock lock(mutex_);
  while (!idle_) changed_.Wait(mutex_);
}

void TierCopies::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
  while (!idle_) changed_.Wait(mutex_);
}

void TierCopies::Run() {
  for (int64_t step = 1; RunStep(step); ++step) continue;
}

bool TierCopies::RunStep(int64_t step) {
  {
    const MutexLock lock(mutex_);
    while (step_ < step && !ends_) changed_.Wait(mutex_);
    if (ends_) return false;
  }
  for (const Copy& copy : copies_) {
    {
      const MutexLock lock(mutex_);
      while (passed_ < copy.awaited && !stopped_) changed_.Wait(mutex_);
      if (stopped_) break;
    }
    Make(copy);
    const MutexLock lock(mutex_);
    copied_ = copy.instruction;
    changed_.NotifyAll();
  }
  const MutexLock lock(mutex_);
  idle_ = true;
  changed_.NotifyAll();
  return !ends_;
}

void TierCopies::Make(const Copy& copy) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  if (bytes_per_s_ <= 0) return;
  const std::chrono::duration<double> takes(static_cast<double>(copy.bytes) /
                                            static_cast<double>(bytes_per_s_));
  const Clock::time_point due = begin + std::chrono::duration_cast<Clock::duration>(takes);
  const MutexLock lock(mutex_);
  while (!stopped_ && Clock::now() < due) (void)changed_.WaitUntil(mutex_, due);
}

}  // namespace meshwright::worker
