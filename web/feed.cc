#include "web/feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace meshwright::web {

std::string FormatEvent(const std::string& event, const std::string& data) {
  return fmt::format("event: {}\ndata: {}\n\n", event, data);
}

std::optional<std::string> Viewer::Take(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (waiting_.empty() && !lags_ && !closed_ &&
         changed_.WaitUntil(mutex_, deadline.SteadyTimePoint())) {
  }
  if (closed_) return std::nullopt;
  std::string text;
  if (std::exchange(lags_, false)) text = FormatEvent("resync", "{}");
  for (const auto& message : std::exchange(waiting_, {})) text += *message;
  bytes_ = 0;
  return text;
}

void Viewer::Put(const std::shared_ptr<const std::string>& text) {
  const MutexLock lock(mutex_);
  // What it missed it will ask for, and what comes until then is in the answer.
  if (lags_) return;
  if (waiting_.size() >= limits_.messages || bytes_ + text->size() > limits_.bytes) {
    waiting_.clear();
    bytes_ = 0;
    lags_ = true;
  } else {
    waiting_.push_back(text);
    bytes_ += text->size();
  }
  changed_.NotifyAll();
}

void Viewer::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

std::shared_ptr<Viewer> Feed::Join(int64_t job) {
  const MutexLock lock(mutex_);
  if (closed_ || viewers_.size() >= limits_.viewers) return nullptr;
  viewers_.push_back(std::make_shared<Viewer>(limits_, job));
  return viewers_.back();
}

void Feed::Leave(const std::shared_ptr<Viewer>& viewer) {
  const MutexLock lock(mutex_);
  viewers_.erase(std::remove(viewers_.begin(), viewers_.end(), viewer), viewers_.end());
}

void Feed::Publish(const std::string& event, const std::string& data, int64_t job) {
  const auto text = std::make_shared<const std::string>(FormatEvent(event, data));
  const MutexLock lock(mutex_);
  for (const auto& viewer : viewers_) {
    if (job == 0 || viewer->job() == job) viewer->Put(text);
  }
}

size_t Feed::viewers() const {
  const MutexLock lock(mutex_);
  return viewers_.size();
}

std::set<int64_t> Feed::jobs() const {
  const MutexLock lock(mutex_);
  std::set<int64_t> jobs;
  for (const auto& viewer : viewers_) jobs.insert(viewer->job());
  jobs.erase(0);
  return jobs;
}

void Feed::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  for (const auto& viewer : viewers_) viewer->Close();
}

}  // namespace meshwright::web
