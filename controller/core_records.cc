#include "controller/core_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "controller/no_such_job.h"
#include "ir/training_flops.h"

namespace meshwright::controller {
namespace {

// Of a run, from 0: so many steps from the first one on, and from each that is so many later: what
// a job does after hours is not what it did at its start.
constexpr int64_t kFirstRecorded = 1;
constexpr int64_t kRecordedAtOnce = 3;
constexpr int64_t kRecordedEvery = 1'000;

}  // namespace

void On(const RecordSteps& event, CoreState& core, Context& context) {
  const auto reply = [&](Status status) {
    context.Do(Reply{event.call, event.job, std::move(status)});
  };
  JobEntry* const job = core.book.Find(event.job);
  if (job == nullptr) return reply(NoSuchJob(event.job));
  if (job->ended()) {
    return reply(FailedPrecondition(fmt::format("job {} has already ended: {}", job->record.id,
                                                proto::JobStateName(job->record.state))));
  }
  if (event.steps.first < 0 || event.steps.count < 1 || event.steps.count > kMostRecordedSteps) {
    return reply(
        InvalidArgument(fmt::format("{} steps from {} on; 1 to {} can be recorded at once",
                                    event.steps.count, event.steps.first, kMostRecordedSteps)));
  }
  MW_CHECK(job->request != nullptr) << "job " << job->record.id << " goes on without a request";
  if (job->request->driver.kind != ir::DriverKind::kTrain) {
    return reply(FailedPrecondition(
        fmt::format("job {} does not train; steps of training are recorded", job->record.id)));
  }
  job->record_wish = event.steps;
  reply(OkStatus());
}

ir::StepRange RecordedIn(const PlannedLaunch& launch, const JobEntry& job) {
  if (launch.kind != LaunchKind::kProgram || launch.program != ir::kStepProgram) return {};
  MW_CHECK(job.run.has_value()) << "a launch of job " << job.record.id << ", which does not run";
  const ir::StepRange steps{launch.first_step, launch.count};
  const ir::StepRange asked = steps.And(job.record_wish);
  if (asked.count > 0) return asked;
  const int64_t begin = job.run->start().point.step + kFirstRecorded;
  const int64_t passed = std::max<int64_t>(0, (steps.first - begin) / kRecordedEvery);
  const ir::StepRange now = steps.And({begin + passed * kRecordedEvery, kRecordedAtOnce});
  return now.count > 0 ? now : steps.And({begin + (passed + 1) * kRecordedEvery, kRecordedAtOnce});
}

RunBegins BeginsBy(const PlannedJob& plan, const JobEntry& job) {
  return {job.id(), plan.layout, ir::TrainingFlops(*job.request), plan.peak_flops_per_s};
}

void TellRecorded(LaunchResult& result, const MeshState& mesh, const JobEntry& job, CoreState& core,
                  Context& context) {
  StepsRecorded told{job.id(), mesh.order.plan.layout, result.launch, {}};
  bool any = result.launch.kind == LaunchKind::kSave;
  for (MemberRecord& of : result.recorded) {
    MW_CHECK(of.member < mesh.members.size()) << "member " << of.member << " of the mesh";
    const std::string& name = mesh.members[of.member].worker;
    const Worker* const worker = core.members.Named(name);
    any = any || !of.steps.empty();
    told.members.push_back({name, worker == nullptr ? name : worker->info.host_id, of.round,
                            of.begin_ns, of.said_ns, std::move(of.steps)});
  }
  if (any) context.Do(std::move(told));
}

}  // namespace meshwright::controller
