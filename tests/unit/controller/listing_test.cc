#include "controller/grpc/listing.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace meshwright::controller {
namespace {

std::vector<proto::JobInfo> Jobs(int64_t count, size_t message_bytes) {
  std::vector<proto::JobInfo> jobs;
  for (int64_t id = count; id >= 1; --id) {
    proto::JobInfo info;
    info.id = id;
    info.message = std::string(message_bytes, 'm');
    jobs.push_back(std::move(info));
  }
  return jobs;
}

TEST(Listing, PagesOfLongMessagesStayBelowTheLimitAndMissNothing) {
  const auto jobs = Jobs(3000, 4096);
  v1::ListJobsRequest request;
  std::set<int64_t> seen;
  for (bool more = true; more;) {
    v1::ListJobsReply reply;
    FillJobs(jobs, request, reply);
    ASSERT_GT(reply.jobs_size(), 0);
    EXPECT_LT(reply.ByteSizeLong(), static_cast<size_t>(proto::kMaxMessageBytes) * 3 / 4);
    EXPECT_EQ(reply.total(), 3000);
    for (const v1::JobInfo& info : reply.jobs()) EXPECT_TRUE(seen.insert(info.id()).second);
    more = reply.truncated();
    request.set_before_id(reply.jobs(reply.jobs_size() - 1).id());
  }
  EXPECT_EQ(seen.size(), 3000u);
}

TEST(Listing, KeepsToTheLimitThatWasAskedFor) {
  v1::ListJobsRequest request;
  request.set_limit(2);
  v1::ListJobsReply reply;
  FillJobs(Jobs(3, 1), request, reply);
  EXPECT_EQ(reply.jobs_size(), 2);
  EXPECT_TRUE(reply.truncated());
  reply.Clear();
  request.set_limit(3);
  FillJobs(Jobs(3, 1), request, reply);
  EXPECT_FALSE(reply.truncated());
}

TEST(Listing, WorkersComeInPagesToo) {
  std::vector<proto::WorkerInfo> workers;
  for (int i = 0; i < 9000; ++i) {
    proto::WorkerInfo info;
    info.name = std::to_string(100'000 + i);
    info.host = std::string(1000, 'h');
    workers.push_back(std::move(info));
  }
  v1::WorkersRequest request;
  size_t seen = 0;
  for (bool more = true; more;) {
    v1::WorkersReply reply;
    FillWorkers(workers, request, reply);
    ASSERT_GT(reply.workers_size(), 0);
    EXPECT_LT(reply.ByteSizeLong(), static_cast<size_t>(proto::kMaxMessageBytes) * 3 / 4);
    for (const v1::WorkerInfo& info : reply.workers()) EXPECT_EQ(info.name(), workers[seen++].name);
    more = reply.truncated();
    request.set_after_name(reply.workers(reply.workers_size() - 1).name());
  }
  EXPECT_EQ(seen, workers.size());
}

}  // namespace
}  // namespace meshwright::controller
