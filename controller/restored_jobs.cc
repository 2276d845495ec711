#include "controller/restored_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "proto/job_codec.h"

namespace meshwright::controller {
namespace {

void RestoreOpen(RestoredJob& job, const ToldSteps& told_steps) {
  auto decoded = proto::DecodeJob(job.record.spec);
  if (decoded.has_value()) {
    job.request = std::make_shared<const ir::JobRequest>(std::move(*decoded));
  } else {
    job.request = tl::unexpected(decoded.error());
  }
  job.record.told_steps = told_steps(job.record);
  job.record.steps_done = std::max(job.record.steps_done, job.record.told_steps);
  const std::string text = std::exchange(job.record.run, {});
  if (text.empty()) return;
  auto run = ParseRunRecord(text);
  if (run.has_value()) {
    job.run = std::move(*run);
  } else {
    LogError(fmt::format("job {}: {}", job.record.id, run.error().message()));
  }
}

}  // namespace

std::vector<RestoredJob> RestoreJobs(const StoredState& stored, const ToldSteps& told_steps) {
  std::vector<RestoredJob> jobs;
  for (const JobRecord& record : stored.jobs) {
    RestoredJob& job = jobs.emplace_back(RestoredJob{record, nullptr});
    if (!proto::IsTerminal(record.state)) RestoreOpen(job, told_steps);
  }
  return jobs;
}

}  // namespace meshwright::controller
