#include "controller/job_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

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

ir::JobRequest RequestToPlace(const JobEntry& job) {
  return job.recovery ? ForFewerDevices(*job.request, job.recovery->kind) : *job.request;
}

}  // namespace

void JobQueue::Add(JobId job) {
  const auto place = std::lower_bound(jobs_.begin(), jobs_.end(), job);
  MW_CHECK(place == jobs_.end() || *place != job) << "job " << job << " is queued twice";
  jobs_.insert(place, job);
}

void JobQueue::Forget(JobId job) {
  std::erase(jobs_, job);
  trying_.erase(job);
  sights_.erase(job);
}

std::optional<JobQueue::Departure> JobQueue::Next(JobBook& book, const ClusterView& cluster,
                                                  Context& context) {
  if (!jobs_.empty()) {
    JobEntry& head = book.At(jobs_.front());
    if (!IsTrying(head.id())) {
      BeginTry(head, cluster, context);
    } else if (auto departure = PlaceHead(head, cluster, context)) {
      jobs_.pop_front();
      sights_.erase(head.id());
      return departure;
    } else {
      DropTry(head, context);
    }
  }
  TellThoseBehind(book, context);
  return std::nullopt;
}

void JobQueue::BeginTry(JobEntry& job, const ClusterView& cluster, Context& context) {
  std::string sight = SightOf(cluster, IsStable(job, cluster, context));
  if (sights_[job.id()] == sight) return;
  sights_[job.id()] = std::move(sight);
  trying_.insert(job.id());
  ++job.record.tries;
  PersistTries(job, context);
  context.Do(PlaceNext{});
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

std::optional<JobQueue::Departure> JobQueue::PlaceHead(JobEntry& job, const ClusterView& cluster,
                                                       Context& context) {
  const bool stable = IsStable(job, cluster, context);
  Placement placement = PlaceOnKind(cluster, RequestToPlace(job), stable);
  const auto wait = [&](const char* reason) {
    SetWaiting(job, reason, std::move(placement.message), context);
    return std::nullopt;
  };
  switch (placement.outcome) {
    case PlacementOutcome::kNoWorkers:
      return wait("NoWorkers");
    case PlacementOutcome::kNoCapacity:
      return wait("NoCapacity");
    case PlacementOutcome::kInfeasible:
      if (!stable || job.recovery) return wait("Infeasible");
      return Departure{job,
                       {},
                       MakeError(ErrorKind::kInfeasible,
                                 FailedPrecondition(placement.message).WithBlame(Blame::kUser))};
    case PlacementOutcome::kPlaced:
      break;
  }
  const auto least = static_cast<size_t>(job.request->fault_tolerance.min_devices);
  if (job.recovery && placement.devices.size() < least) {
    placement.message = fmt::format("{} devices are there, fault_tolerance.min_devices is {}",
                                    placement.devices.size(), least);
    return wait("NoCapacity");
  }
  return Departure{job, std::move(placement.devices), {}};
}

void JobQueue::TellThoseBehind(JobBook& book, Context& context) {
  for (size_t i = 1; i < jobs_.size(); ++i) {
    sights_.erase(jobs_[i]);
    SetWaiting(book.At(jobs_[i]), "QueuedBehind",
               fmt::format("waits behind job {} ({} ahead)", jobs_[0].value(), i), context);
  }
}

}  // namespace meshwright::controller
