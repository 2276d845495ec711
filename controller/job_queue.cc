#include "controller/job_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/elastic.h"

namespace meshwright::controller {

using proto::ErrorKind;
using proto::MakeError;

namespace {

// Workers may still be joining.
bool IsStable(const JobEntry& job, const ClusterView& cluster, const Context& context) {
  const int64_t grace_ms = context.options.infeasible_grace_ms;
  return context.now.ms - cluster.members.changed_ms() >= grace_ms &&
         context.now.unix_ms - job.record.submitted_unix_ms >= grace_ms;
}

// One that gave its devices away asks for as many as ever.
bool GoesOnWithFewer(const JobEntry& job) { return job.recovery && !job.recovery->gives_way; }

ir::JobRequest RequestToPlace(const JobEntry& job) {
  if (!GoesOnWithFewer(job)) return *job.request;
  return ToPlaceOnFewer(*job.request, job.recovery->kind, job.recovery->plan.degrees);
}

}  // namespace

void JobQueue::Add(JobId job, int64_t priority) {
  const auto goes_first = [&](JobId one, JobId other) {
    const int64_t above = priorities_.at(one) - priorities_.at(other);
    return above != 0 ? above > 0 : one < other;
  };
  MW_CHECK(priorities_.emplace(job, priority).second) << "job " << job << " is queued twice";
  jobs_.insert(std::lower_bound(jobs_.begin(), jobs_.end(), job, goes_first), job);
}

void JobQueue::Leave(JobId job) {
  std::erase(jobs_, job);
  priorities_.erase(job);
  sights_.erase(job);
}

void JobQueue::Forget(JobId job) {
  Leave(job);
  trying_.erase(job);
}

const HeadWait* JobQueue::head_wait() const {
  return wait_ && !jobs_.empty() && jobs_.front() == wait_->job ? &*wait_ : nullptr;
}

std::optional<JobQueue::Departure> JobQueue::Next(JobBook& book, const ClusterView& cluster,
                                                  Context& context) {
  const std::deque<JobId> looked_at(
      jobs_.begin(),
      jobs_.begin() + static_cast<std::ptrdiff_t>(std::min(jobs_.size(), kMostBehind + 1)));
  for (const JobId id : looked_at) {
    JobEntry& job = book.At(id);
    const HeadWait* const wait = IsHead(job) ? nullptr : head_wait();
    if (!IsHead(job) && wait == nullptr) break;
    const ClusterView view = wait == nullptr ? cluster : BehindHead(*wait, cluster);
    if (!IsTrying(id)) {
      if (BeginTry(job, view, context)) break;
      continue;
    }
    if (auto departure = Place(job, view, context)) {
      Leave(id);
      return departure;
    }
    DropTry(job, context);
  }
  TellThoseBehind(book, context);
  return std::nullopt;
}

bool JobQueue::BeginTry(JobEntry& job, const ClusterView& cluster, Context& context) {
  std::string sight = IsHead(job) ? "" : "behind: ";
  sight += SightOf(cluster, IsStable(job, cluster, context));
  if (sights_[job.id()] == sight) return false;
  sights_[job.id()] = std::move(sight);
  trying_.insert(job.id());
  ++job.record.tries;
  PersistTries(job, context);
  context.Do(PlaceNext{});
  return true;
}

void JobQueue::EndTry(JobEntry& job) {
  trying_.erase(job.id());
  job.record.tries = 0;
}

void JobQueue::DropTry(JobEntry& job, Context& context) {
  if (trying_.erase(job.id()) == 0) return;
  --job.record.tries;
  PersistTries(job, context);
}

// Those behind the head wait behind it, whatever else they wait for.
void JobQueue::Wait(JobEntry& job, const char* reason, Placement placement, bool stable,
                    Context& context) {
  if (!IsHead(job)) return;
  wait_ = HeadWait{job.id(), placement.kind, placement.least, placement.outcome, stable};
  SetWaiting(job, reason, std::move(placement.message), context);
}

std::optional<JobQueue::Departure> JobQueue::Place(JobEntry& job, const ClusterView& cluster,
                                                   Context& context) {
  const bool stable = IsStable(job, cluster, context);
  Placement placement = PlaceOnKind(cluster, RequestToPlace(job), stable);
  const auto wait = [&](const char* reason) {
    Wait(job, reason, std::move(placement), stable, context);
    return std::nullopt;
  };
  switch (placement.outcome) {
    case PlacementOutcome::kNoWorkers:
      return wait("NoWorkers");
    case PlacementOutcome::kNoCapacity:
      return wait("NoCapacity");
    case PlacementOutcome::kInfeasible:
      // Who had devices before has something to lose.
      if (!stable || job.recovery || job.record.started_unix_ms > 0) return wait("Infeasible");
      return Departure{job,
                       {},
                       MakeError(ErrorKind::kInfeasible,
                                 FailedPrecondition(placement.message).WithBlame(Blame::kUser))};
    case PlacementOutcome::kPlaced:
      break;
  }
  const int64_t least = job.request->fault_tolerance.min_devices;
  if (GoesOnWithFewer(job) && static_cast<int64_t>(placement.devices.size()) < least) {
    placement.message = fmt::format("{} devices are there, fault_tolerance.min_devices is {}",
                                    placement.devices.size(), least);
    placement.outcome = PlacementOutcome::kNoCapacity;
    placement.least = std::max(placement.least, least);
    return wait("NoCapacity");
  }
  return Departure{job, std::move(placement.devices), {}};
}

void JobQueue::TellThoseBehind(JobBook& book, Context& context) {
  for (size_t i = 1; i < jobs_.size(); ++i) {
    if (i > kMostBehind) sights_.erase(jobs_[i]);
    SetWaiting(book.At(jobs_[i]), "QueuedBehind",
               fmt::format("waits behind job {} ({} ahead)", jobs_[0].value(), i), context);
  }
}

}  // namespace meshwright::controller
