#include "web/watcher.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "web/api_json.h"

namespace meshwright::web {
namespace {

constexpr int64_t kMostEventsTold = 100;  // that are looked at again; more at once are a resync
constexpr size_t kMostSteps = 500;        // of a job at once; older ones are left out
constexpr size_t kMostSampledJobs = 32;

// What is in `now` behind the last event of `before`; none: it is not there any more.
std::optional<std::vector<controller::EventRecord>> NewEvents(
    const std::vector<controller::EventRecord>& before,
    const std::vector<controller::EventRecord>& now) {
  if (before.empty()) return now;
  const auto last = std::find(now.rbegin(), now.rend(), before.back());
  if (last == now.rend()) return std::nullopt;
  return std::vector<controller::EventRecord>(last.base(), now.end());
}

}  // namespace

void Watcher::Start() {
  thread_.Post([this] { TickOnThread(); });
}

void Watcher::TickOnThread() {
  Look();
  thread_.PostAfter(kLookMs, [this] { TickOnThread(); });
}

void Watcher::Look() {
  const bool watched = feed_.viewers() > 0;
  const int64_t now_ms = clock_.NowMs();
  const bool samples = sampled_ms_ < 0 || now_ms - sampled_ms_ >= kSampleMs;
  if (!watched) tells_ = false;
  if (!watched && !samples) return;
  const auto state = cluster_.Tiles();
  // It stops, or is busy: who looks sees that by himself.
  if (!state) return;
  if (watched) {
    TellChanges(*state);
    TellEvents();
    TellSteps();
    tells_ = true;
  }
  if (samples) TakeSample(*state);
}

bool Watcher::Tile::operator==(const proto::WorkerInfo& worker) const {
  return busy_devices == worker.busy_devices && devices == worker.devices &&
         state == worker.state && note == worker.note && host == worker.host;
}

Watcher::Tile Watcher::TileOf(const proto::WorkerInfo& worker) {
  return {worker.state, worker.host, worker.note, worker.devices, worker.busy_devices};
}

std::string Watcher::TakeTiles(const std::vector<const proto::WorkerInfo*>& changed) {
  // Behind the one that was told last, and then from the first one: each has its turn.
  const auto behind =
      std::find_if(changed.begin(), changed.end(),
                   [this](const proto::WorkerInfo* worker) { return worker->name > last_tile_; });
  const auto first = static_cast<size_t>(behind - changed.begin());
  std::string tiles;
  for (size_t i = 0; i < std::min(changed.size(), kMostTilesTold); ++i) {
    const proto::WorkerInfo& worker = *changed[(first + i) % changed.size()];
    tiles += (tiles.empty() ? "[" : ",") + WorkerTileJson(worker);
    workers_[worker.name] = TileOf(worker);
    last_tile_ = worker.name;
  }
  return tiles.empty() ? "" : tiles + "]";
}

void Watcher::TellChanges(const ClusterState& state) {
  std::vector<proto::JobInfo> changed;
  std::map<int64_t, proto::JobInfo> jobs;
  for (const proto::JobInfo& job : state.jobs) {
    const auto known = jobs_.find(job.id);
    if (known == jobs_.end() || !(known->second == job)) changed.push_back(job);
    jobs.emplace(job.id, job);
  }
  std::vector<const proto::WorkerInfo*> other;
  const size_t known_workers = workers_.size();
  size_t kept_workers = 0;
  for (const proto::WorkerInfo& worker : state.workers) {
    // A new one is like no other until it is told: should it go before, it is missed.
    const auto [known, is_new] = workers_.try_emplace(worker.name);
    kept_workers += is_new ? 0 : 1;
    if (!(known->second == worker)) other.push_back(&worker);
  }
  const bool lost_some = kept_workers < known_workers ||
                         std::any_of(jobs_.begin(), jobs_.end(), [&jobs](const auto& entry) {
                           return !jobs.contains(entry.first);
                         });
  jobs_ = std::move(jobs);
  std::string totals = TotalsJson(state);
  const bool totals_changed = totals != std::exchange(totals_, totals);
  // The first viewers have asked for all of it, and may have done so before this look.
  if (lost_some || !tells_) {
    workers_.clear();
    for (const proto::WorkerInfo& worker : state.workers) workers_[worker.name] = TileOf(worker);
    return feed_.Resync();
  }
  if (!changed.empty()) feed_.Publish("jobs", JobsJson(changed));
  if (const std::string tiles = TakeTiles(other); !tiles.empty()) feed_.Publish("workers", tiles);
  if (totals_changed) feed_.Publish("totals", totals);
}

void Watcher::TellEvents() {
  auto now = cluster_.Events(0, kMostEventsTold);
  if (!now) return;
  const auto news = NewEvents(events_, *now);
  events_ = *std::move(now);
  if (!tells_) return;
  if (!news) return feed_.Resync();
  if (!news->empty()) feed_.Publish("events", EventsJson(*news));
}

void Watcher::TellSteps() {
  for (const int64_t job : feed_.jobs()) {
    const auto news = curves_.News(job, kMostSteps);
    if (news && !news->empty()) feed_.Publish("steps", StepsJson(job, *news), job);
  }
}

double Watcher::TokensPerS(const ClusterState& state, int64_t now_ms) {
  const double seconds = sampled_ms_ < 0 ? 0 : static_cast<double>(now_ms - sampled_ms_) / 1000.0;
  std::map<int64_t, double> tokens;
  double sum = 0;
  for (const proto::JobInfo& job : state.jobs) {
    if (job.state != proto::JobState::kRunning || tokens.size() >= kMostSampledJobs) continue;
    const auto view = curves_.Of(job.id, Curve::kMostPoints);
    if (!view) continue;
    double& all = tokens[job.id];
    for (const CurvePoint& point : view->points) all += point.tokens;
    // A job that was not seen before may have been at work for long.
    if (const auto before = tokens_.find(job.id); before != tokens_.end()) {
      sum += all - before->second;
    }
  }
  tokens_ = std::move(tokens);
  return seconds > 0 ? sum / seconds : 0;
}

void Watcher::TakeSample(const ClusterState& state) {
  const int64_t now_ms = clock_.NowMs();
  Sample sample;
  sample.unix_ms = clock_.UnixMs();
  for (const proto::WorkerInfo& worker : state.workers) {
    if (worker.state == "LOST" || worker.state == "LEFT") continue;
    sample[Gauge::kDevices] += worker.devices;
    sample[Gauge::kBusy] += worker.busy_devices;
    sample[Gauge::kWorkers] += worker.state == "READY" ? 1 : 0;
  }
  for (const proto::JobInfo& job : state.jobs) {
    sample[Gauge::kRunning] += job.state == proto::JobState::kRunning ? 1 : 0;
    sample[Gauge::kQueued] += job.state == proto::JobState::kQueued ? 1 : 0;
  }
  sample[Gauge::kTokensPerS] = TokensPerS(state, now_ms);
  sampled_ms_ = now_ms;
  const MutexLock lock(mutex_);
  history_.Add(sample);
}

std::vector<Sample> Watcher::HistorySince(int64_t unix_ms, size_t most) const {
  const MutexLock lock(mutex_);
  return history_.Since(unix_ms, most);
}

}  // namespace meshwright::web
