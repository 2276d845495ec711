#include "web/curves.h"

#include <algorithm>
#include <utility>

namespace meshwright::web {
namespace {

// That wait to be told; who asks later gets the newest.
constexpr size_t kMostNews = 2000;

}  // namespace

std::shared_ptr<Curves::Entry> Curves::EntryOf(int64_t job) {
  const MutexLock lock(mutex_);
  Slot& slot = slots_[job];
  slot.looked = ++looks_;
  if (!slot.entry) slot.entry = std::make_shared<Entry>();
  std::shared_ptr<Entry> entry = slot.entry;
  if (slots_.size() > kMostJobs) {
    slots_.erase(std::min_element(slots_.begin(), slots_.end(), [](const auto& a, const auto& b) {
      return a.second.looked < b.second.looked;
    }));
  }
  return entry;
}

Status Curves::Advance(int64_t job, Entry& entry) {
  bool caught_up = false;
  while (!caught_up) {
    auto news = cluster_.Steps(job, entry.next);
    if (!news) return news.error();
    for (const proto::StepMetrics& step : news->steps) {
      entry.curve.Add(step);
      entry.news.push_back(step);
    }
    if (entry.news.size() > kMostNews) {
      entry.news.erase(entry.news.begin(), entry.news.end() - kMostNews);
    }
    entry.next = news->next;
    caught_up = news->caught_up;
  }
  return OkStatus();
}

Result<Curves::View> Curves::Of(int64_t job, size_t most_points) {
  const std::shared_ptr<Entry> entry = EntryOf(job);
  const MutexLock lock(entry->mutex);
  MW_TRY(Advance(job, *entry));
  View view;
  view.points = entry->curve.Coarse(most_points);
  if (!view.points.empty()) view.last_step = view.points.back().step;
  return view;
}

Result<std::vector<proto::StepMetrics>> Curves::News(int64_t job, size_t most) {
  const std::shared_ptr<Entry> entry = EntryOf(job);
  const MutexLock lock(entry->mutex);
  MW_TRY(Advance(job, *entry));
  std::vector<proto::StepMetrics> news = std::exchange(entry->news, {});
  if (news.size() > most) news.erase(news.begin(), news.end() - static_cast<std::ptrdiff_t>(most));
  return news;
}

}  // namespace meshwright::web
