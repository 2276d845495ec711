#include "controller/restored_jobs.h"

#include <utility>

#include "proto/job_codec.h"

namespace meshwright::controller {

std::vector<RestoredJob> RestoreJobs(const StoredState& stored) {
  std::vector<RestoredJob> jobs;
  for (const JobRecord& record : stored.jobs) {
    Result<std::shared_ptr<const ir::JobRequest>> request = nullptr;
    if (!proto::IsTerminal(record.state)) {
      auto decoded = proto::DecodeJob(record.spec);
      if (decoded.has_value()) {
        request = std::make_shared<const ir::JobRequest>(std::move(*decoded));
      } else {
        request = tl::unexpected(decoded.error());
      }
    }
    jobs.push_back(RestoredJob{record, std::move(request)});
  }
  return jobs;
}

}  // namespace meshwright::controller
