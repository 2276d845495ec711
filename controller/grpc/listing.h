// Pages of listings: no answer may reach the largest message, however long the texts in it are.
//
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "proto/meshwright.pb.h"
#include "proto/messages.h"

namespace meshwright::controller {

// Half of what a message may have; one entry is a few KiB at most.
inline constexpr size_t kPageBytes = 2 << 20;

// The page that `request` asks for. jobs: newest first.
void FillJobs(const std::vector<proto::JobInfo>& jobs, const v1::ListJobsRequest& request,
              v1::ListJobsReply& reply);
// workers: by name.
void FillWorkers(const std::vector<proto::WorkerInfo>& workers, const v1::WorkersRequest& request,
                 v1::WorkersReply& reply);

}  // namespace meshwright::controller
