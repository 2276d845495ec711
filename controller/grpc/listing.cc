#include "controller/grpc/listing.h"

#include <algorithm>

#include "proto/convert.h"

namespace meshwright::controller {
namespace {

constexpr int32_t kPageEntries = 1000;

// Adds infos to `page` while they fit. True when all did.
template <typename Infos, typename Page, typename Skip>
bool Fill(const Infos& infos, int32_t limit, Page& page, Skip skip) {
  size_t bytes = 0;
  for (const auto& info : infos) {
    if (skip(info)) continue;
    auto entry = proto::Encode(info);
    bytes += entry.ByteSizeLong();
    // The first entry always goes in, or the caller would ask for it for ever.
    if (page.size() == limit || (bytes > kPageBytes && !page.empty())) return false;
    *page.Add() = std::move(entry);
  }
  return true;
}

}  // namespace

void FillJobs(const std::vector<proto::JobInfo>& jobs, const v1::ListJobsRequest& request,
              v1::ListJobsReply& reply) {
  const int64_t before = request.before_id();
  const int32_t limit =
      request.limit() > 0 ? std::min(request.limit(), kPageEntries) : kPageEntries;
  reply.set_total(static_cast<int64_t>(jobs.size()));
  const auto skip = [before](const proto::JobInfo& info) {
    return before > 0 && info.id >= before;
  };
  reply.set_truncated(!Fill(jobs, limit, *reply.mutable_jobs(), skip));
}

void FillWorkers(const std::vector<proto::WorkerInfo>& workers, const v1::WorkersRequest& request,
                 v1::WorkersReply& reply) {
  const std::string& after = request.after_name();
  const auto skip = [&after](const proto::WorkerInfo& info) {
    return !after.empty() && info.name <= after;
  };
  reply.set_truncated(!Fill(workers, kPageEntries, *reply.mutable_workers(), skip));
}

}  // namespace meshwright::controller
