#include "worker/step_progress.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace meshwright::worker {

StepProgress::StepProgress(std::span<int32_t> marks, size_t items)
    : marks_(marks), queues_(marks.size()), launches_(items, 0) {}

void StepProgress::Start() {
  for (int32_t& mark : marks_) std::atomic_ref<int32_t>(mark).store(0);
  std::fill(queues_.begin(), queues_.end(), Given());
}

void StepProgress::Give(int queue, size_t begin, size_t end, int64_t launches) {
  MW_CHECK(begin <= end && end <= launches_.size())
      << "items " << begin << " to " << end << " of " << launches_.size();
  Given& given = queues_[static_cast<size_t>(queue)];
  given.launches += launches;
  given.items = end;
  std::fill(launches_.begin() + static_cast<ptrdiff_t>(begin),
            launches_.begin() + static_cast<ptrdiff_t>(end), given.launches);
}

void StepProgress::Empty(int queue) {
  Given& given = queues_[static_cast<size_t>(queue)];
  given.known_done = given.launches;
}

int64_t StepProgress::outstanding() const {
  int64_t launches = 0;
  for (size_t queue = 0; queue < queues_.size(); ++queue) {
    const size_t through = done(static_cast<int>(queue));
    MW_CHECK(through <= launches_.size()) << "item " << through << " of " << launches_.size();
    const int64_t marked = through == 0 ? 0 : launches_[through - 1];
    launches += queues_[queue].launches - std::max(marked, queues_[queue].known_done);
  }
  return launches;
}

size_t StepProgress::done(int queue) const {
  int32_t& mark = marks_[static_cast<size_t>(queue)];
  return static_cast<size_t>(std::atomic_ref<int32_t>(mark).load());
}

int64_t StepProgress::Sum() const {
  int64_t sum = 0;
  for (int32_t& mark : marks_) sum += std::atomic_ref<int32_t>(mark).load();
  return sum;
}

}  // namespace meshwright::worker
