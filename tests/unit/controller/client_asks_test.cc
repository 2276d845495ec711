// How much one call gives out: what comes whole, and what comes as the largest of its rows.
#include "controller/client_asks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/program.h"
#include "proto/frames.h"
#include "proto/tensors.h"

namespace meshwright::controller {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFloats = proto::kMaxTensorBytes / 4;  // that one message takes

// A job whose program "ask" gives out reals and whole numbers of these dims.
ir::JobRequest JobOf(const ir::Dims& reals, const ir::Dims& whole) {
  const auto body = [&](client::Builder& b, const client::Batch& in) {
    b.SetOutput("reals", b.BroadcastTo(in.at("x"), reals));
    b.SetOutput("whole", b.Cast(b.BroadcastTo(in.at("x"), whole), ir::DType::kI32));
    return OkStatus();
  };
  const client::InputSpec x = {
      .name = "x", .type = {ir::DType::kF32, {1}}, .from = ir::InputFrom::kClient, .batch = false};
  auto program = client::MakeProgram("ask", {x}, body);
  EXPECT_TRUE(program.has_value()) << program.error();
  ir::JobRequest job;
  job.driver.kind = ir::DriverKind::kClient;
  if (program.has_value()) job.programs = {*std::move(program)};
  return job;
}

// What is wrong with a call of it; "": nothing.
std::string Asked(const ir::JobRequest& job, proto::Fetch fetch) {
  proto::CallProgram call;
  call.program = "ask";
  call.inputs = {{"x", {ir::DType::kF32, {1}}, std::string(4, '\0')}};
  call.fetch = fetch;
  const Status status = CheckAsk(call, job, {});
  return status.ok() ? "" : status.message();
}

TEST(CallSize, TheLargestOfRowsAreFewerBytesThanTheRows) {
  const ir::JobRequest job = JobOf({2, kFloats}, {1});
  EXPECT_THAT(Asked(job, proto::Fetch::kAll),
              HasSubstr("what 'ask' gives out has 134217732 bytes"));
  EXPECT_EQ(Asked(job, proto::Fetch::kLargest), "");
  EXPECT_EQ(Asked(job, proto::Fetch::kNothing), "");
}

// A whole number has no largest: it comes as it is, and counts as it is.
TEST(CallSize, WholeNumbersCountBesideTheLargest) {
  const ir::JobRequest job = JobOf({1, 8}, {kFloats});
  EXPECT_THAT(Asked(job, proto::Fetch::kLargest),
              HasSubstr("what 'ask' gives out has 67108880 bytes"));
  EXPECT_EQ(Asked(job, proto::Fetch::kNothing), "");
  EXPECT_EQ(Asked(JobOf({1, 8}, {kFloats - 4}), proto::Fetch::kLargest), "")
      << "a largest is 16 bytes, which fit";
}

// Many short rows: the largest of each is more than the row.
TEST(CallSize, TheLargestOfEachRowCounts) {
  const int64_t rows = proto::kMaxTensorBytes / static_cast<int64_t>(sizeof(proto::Largest));
  EXPECT_THAT(Asked(JobOf({rows, 1}, {1}), proto::Fetch::kLargest), HasSubstr("67108868 bytes"));
  EXPECT_EQ(Asked(JobOf({rows - 1, 1}, {1}), proto::Fetch::kLargest), "");
  EXPECT_EQ(Asked(JobOf({rows - 1, 1}, {1}), proto::Fetch::kAll), "");
}

}  // namespace
}  // namespace meshwright::controller
