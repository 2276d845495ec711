// Jobs that clients drive: who is told what, in which order, and how such a job ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "client/program.h"
#include "controller/client_asks.h"
#include "ir/builder.h"
#include "proto/frames.h"
#include "proto/tensors.h"
#include "tests/unit/controller/sim_cluster.h"

namespace meshwright::controller {
namespace {

using proto::JobState;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A program "double" with an input x: f32[2,3] that gives out y.
ir::JobProgram Double() {
  ir::Builder builder("double");
  const ValueId x =
      builder.AddOne(ir::Op::kFeed, {}, {{"source", "x"}}, {{ir::DType::kF32, {2, 3}}});
  builder.SetOutput("y", builder.AddOne(ir::Op::kScale, {x}, {{"factor", 2.0}}));
  ir::JobProgram program;
  program.name = "double";
  program.graph = builder.Finish().value();
  program.inputs = {{"x", ir::InputFrom::kClient}};
  return program;
}

ir::JobRequest DrivenJob(int64_t grace_s = 5) {
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 0);
  job.programs = {Double()};
  job.driver = {ir::DriverKind::kClient, "", 0, grace_s};
  return job;
}

proto::CallProgram CallDouble() {
  return {"double",
          {{"x", {ir::DType::kF32, {2, 3}}, std::string(24, '\0')}},
          proto::Fetch::kAll,
          std::nullopt};
}

TEST(CoreClients, CallsAreAnsweredInOrderAndTheJobEndsWellWithItsClient) {
  SimCluster cluster;
  const int64_t job = cluster.Submit(DrivenJob());
  const uint64_t client = cluster.OpenClient(job);
  EXPECT_FALSE(cluster.opened(client)) << "nothing runs yet";
  cluster.AddWorkers(2);
  EXPECT_TRUE(cluster.opened(client));
  for (int i = 0; i < 10; ++i) cluster.Ask(client, CallDouble());
  cluster.Settle();
  ASSERT_THAT(cluster.answers(client), SizeIs(10));
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(cluster.answers(client)[i].step, i);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  cluster.EndClient(client, ClientEnd::kClosed);
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
}

TEST(CoreClients, BadAsksFailAndNameWhatIsWrong) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob());
  cluster.Settle();
  const uint64_t client = cluster.OpenClient(job);
  const auto message = [&](proto::ClientAsk ask) {
    cluster.Ask(client, std::move(ask));
    return cluster.failures(client).empty() ? "" : cluster.failures(client).back().message;
  };
  proto::CallProgram call = CallDouble();
  call.program = "triple";
  EXPECT_THAT(message(call), HasSubstr("no program 'triple' to call; it has double"));
  call = CallDouble();
  call.inputs[0].name = "z";
  EXPECT_THAT(message(call), HasSubstr("no input \"z\"; it takes \"x\""));
  call = CallDouble();
  call.inputs[0].type.dims = {3, 2};
  EXPECT_THAT(message(call), HasSubstr("\"x\" is f32[3,2]; it must be f32[2,3]"));
  call = CallDouble();
  call.inputs[0].type.dtype = ir::DType::kI32;
  EXPECT_THAT(message(call), HasSubstr("\"x\" is i32[2,3]; it must be f32[2,3]"));
  call = CallDouble();
  call.inputs[0].bytes = call.inputs[0].bytes.Part(0, 23);
  EXPECT_THAT(message(call), HasSubstr("\"x\" has 23 bytes"));
  call = CallDouble();
  call.inputs.clear();
  EXPECT_THAT(message(call), HasSubstr("brings input \"x\" 0 times"));
  EXPECT_THAT(message(proto::ReadState{{"w"}}), HasSubstr("no tensor \"w\""));
  cluster.Ask(client, CallDouble());
  cluster.Settle();
  EXPECT_THAT(cluster.answers(client), SizeIs(1)) << "the job goes on";
}

// A stray call must not end a job: what a device would refuse is refused before.
TEST(CoreClients, IdsOutsideOfTheirTableAreRefusedByName) {
  ir::Builder builder("look");
  const ValueId window =
      builder.AddOne(ir::Op::kFeed, {}, {{"source", "window"}}, {{ir::DType::kI32, {1, 4}}});
  const ValueId ids = builder.AddOne(
      ir::Op::kSlice, {window}, {{"dim", int64_t{1}}, {"start", int64_t{0}}, {"size", int64_t{3}}});
  const ValueId table = builder.AddOne(ir::Op::kParam, {}, {{"name", "t"}, {"init", "zeros"}},
                                       {{ir::DType::kF32, {10, 2}}});
  builder.SetOutput("rows", builder.AddOne(ir::Op::kEmbedding, {table, ids}));
  ir::JobRequest job = DrivenJob();
  job.programs = {{"look", builder.Finish().value(), {{"window", ir::InputFrom::kClient}}, false}};
  SimCluster cluster;
  cluster.AddWorkers(2);
  const uint64_t client = cluster.OpenClient(cluster.Submit(job));
  cluster.Settle();
  const auto ask = [&](std::vector<int32_t> values) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    cluster.Ask(
        client,
        proto::CallProgram{
            "look", {{"window", {ir::DType::kI32, {1, 4}}, bytes}}, proto::Fetch::kAll, {}});
    cluster.Settle();
  };
  ask({0, 9, 3, 5});
  EXPECT_THAT(cluster.answers(client), SizeIs(1));
  ask({0, 1, 10, 5});
  ASSERT_THAT(cluster.failures(client), SizeIs(1));
  EXPECT_THAT(cluster.failures(client)[0].message,
              HasSubstr("\"window\" has the id 10 at position 2; ids are in [0, 10)"));
}

// A program "step" that is trained on the job's data, with a weight "w".
ir::JobRequest TrainedByCalls() {
  ir::Builder builder("loss");
  builder.AddOne(ir::Op::kFeed, {}, {{"source", "tokens"}}, {{ir::DType::kI32, {8, 129}}});
  builder.SetOutput("w", builder.AddOne(ir::Op::kParam, {}, {{"name", "w"}, {"init", "zeros"}},
                                        {{ir::DType::kF32, {2}}}));
  ir::JobRequest job = SimCluster::MakeJob(2, 1, 1, 0);
  job.SetLoss(builder.Finish().value());
  job.driver = {ir::DriverKind::kClient, "", 0, 5};
  return job;
}

proto::CallProgram CallWithout(const char* program, std::optional<int64_t> step = std::nullopt) {
  return {program, {}, proto::Fetch::kAll, step};
}

// On a worker it would fail, and end the job.
TEST(CoreClients, ValidatingWithoutValidationDataIsRefused) {
  for (const double fraction : {0.05, 0.0}) {
    SimCluster cluster;
    cluster.AddWorkers(2);
    ir::JobRequest request = TrainedByCalls();
    request.data.validation_fraction = fraction;
    const int64_t job = cluster.Submit(request);
    const uint64_t client = cluster.OpenClient(job);
    cluster.Settle();
    cluster.Ask(client, CallWithout("eval"));
    cluster.Ask(client, CallWithout("step"));
    cluster.Settle();
    EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
    std::vector<std::string> offered;
    for (const auto& program : SignaturesOf(request)) offered.push_back(program.name);
    if (fraction > 0) {
      EXPECT_THAT(cluster.answers(client), SizeIs(2));
      EXPECT_THAT(offered, ::testing::ElementsAre("eval", "step"));
      continue;
    }
    EXPECT_THAT(offered, ::testing::ElementsAre("step"));
    EXPECT_THAT(cluster.answers(client), SizeIs(1)) << "the step";
    ASSERT_THAT(cluster.failures(client), SizeIs(1));
    EXPECT_THAT(cluster.failures(client)[0].message,
                HasSubstr("'eval' reads validation data, of which"));
    EXPECT_THAT(cluster.failures(client)[0].message, HasSubstr("raise validation_fraction"));
  }
}

TEST(CoreClients, StepsOfCallsHaveTheBoundOfTheStepsOfAJob) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const uint64_t client = cluster.OpenClient(cluster.Submit(DrivenJob()));
  cluster.Settle();
  const auto ask = [&](std::optional<int64_t> step) {
    proto::CallProgram call = CallDouble();
    call.step = step;
    cluster.Ask(client, call);
    cluster.Settle();
  };
  ask(ir::kMaxSteps + 1);
  ask(std::numeric_limits<int64_t>::max());
  ask(-1);
  ASSERT_THAT(cluster.failures(client), SizeIs(3));
  EXPECT_THAT(cluster.failures(client)[0].message,
              HasSubstr("step 1000000000001 of a call is not in [0, 1000000000000]"));
  ask(ir::kMaxSteps);
  ASSERT_THAT(cluster.answers(client), SizeIs(1));
  EXPECT_EQ(cluster.answers(client)[0].step, ir::kMaxSteps);
  ask(std::nullopt);
  ASSERT_THAT(cluster.failures(client), SizeIs(4)) << "counted on, it would be beyond";
  EXPECT_THAT(cluster.failures(client)[3].message, HasSubstr("which was made; say the step"));
  ask(7);
  ask(std::nullopt);
  ASSERT_THAT(cluster.answers(client), SizeIs(3));
  EXPECT_EQ(cluster.answers(client)[2].step, 8);
}

// SGD keeps one moment: what is not there is neither read nor written without a word.
TEST(CoreClients, StateThatThePlanDoesNotHaveIsRefusedByName) {
  SimCluster cluster;
  cluster.planned_state = {"w", "opt.m/w"};
  cluster.AddWorkers(2);
  const uint64_t client = cluster.OpenClient(cluster.Submit(TrainedByCalls()));
  cluster.Settle();
  const ir::TensorType type = {ir::DType::kF32, {2}};
  for (const char* name : {"w", "opt.m/w"}) {
    cluster.Ask(client, proto::ReadState{{name}});
    cluster.Ask(client, proto::WriteState{{{name, type, std::string(8, '\0')}}});
  }
  cluster.Settle();
  EXPECT_THAT(cluster.answers(client), SizeIs(4));
  cluster.Ask(client, proto::ReadState{{"w", "opt.v/w"}});
  cluster.Ask(client, proto::WriteState{{{"opt.v/w", type, std::string(8, '\0')}}});
  cluster.Settle();
  ASSERT_THAT(cluster.failures(client), SizeIs(2));
  for (const proto::RuntimeError& why : cluster.failures(client)) {
    EXPECT_THAT(why.message, HasSubstr("no tensor \"opt.v/w\"; it has opt.m/w, w"));
  }
}

TEST(CoreClients, ALostClientHasAGraceTimeAndAnotherMayGoOn) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob(5));
  const uint64_t first = cluster.OpenClient(job);
  cluster.Settle();
  cluster.EndClient(first, ClientEnd::kLost);
  cluster.SettleFor(4000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  const uint64_t second = cluster.OpenClient(job);
  cluster.SettleFor(10'000);
  cluster.Ask(second, CallDouble());
  cluster.Settle();
  EXPECT_THAT(cluster.answers(second), SizeIs(1));
  cluster.EndClient(second, ClientEnd::kLost);
  cluster.SettleFor(6000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
  EXPECT_THAT(cluster.lines(job), ::testing::Contains(HasSubstr("no client for 5 s")));
}

TEST(CoreClients, WhoClosesLeavesTheJobToTheOthers) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob());
  const uint64_t owner = cluster.OpenClient(job, "owner");
  cluster.Settle();
  const uint64_t guest = cluster.OpenClient(job, "guest");
  cluster.Ask(guest, CallDouble());
  cluster.Settle();
  EXPECT_THAT(cluster.answers(guest), SizeIs(1));
  cluster.EndClient(guest, ClientEnd::kClosed);
  cluster.SettleFor(20'000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  cluster.Ask(owner, CallDouble());
  cluster.Settle();
  EXPECT_THAT(cluster.answers(owner), SizeIs(1));
  cluster.EndClient(owner, ClientEnd::kClosed);
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
}

// With and without a name, to which a client may come back.
TEST(CoreClients, WhoClosesDoesNotCutShortTheGraceTimeOfALostClient) {
  for (const char* name : {"owner", ""}) {
    SCOPED_TRACE(name);
    SimCluster cluster;
    cluster.AddWorkers(2);
    const int64_t job = cluster.Submit(DrivenJob(5));
    const uint64_t owner = cluster.OpenClient(job, name);
    cluster.Settle();
    cluster.EndClient(owner, ClientEnd::kLost);
    for (int i = 0; i < 2; ++i) {
      cluster.SettleFor(2000);
      const uint64_t guest = cluster.OpenClient(job, "guest");
      cluster.EndClient(guest, ClientEnd::kClosed);
    }
    cluster.SettleFor(900);
    EXPECT_EQ(cluster.Info(job).state, JobState::kRunning) << "4.9 s after it was lost";
    cluster.SettleFor(200);
    EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded) << "guests do not prolong it";
    EXPECT_THAT(cluster.lines(job), ::testing::Contains(HasSubstr("no client for 5 s")));
  }
}

TEST(CoreClients, AClientMayEndTheJobForAllAndWhatTheyAskedIsDone) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob(600));
  const uint64_t lost = cluster.OpenClient(job, "lost");
  const uint64_t other = cluster.OpenClient(job, "other");
  const uint64_t successor = cluster.OpenClient(job, "successor");
  cluster.Settle();
  cluster.EndClient(lost, ClientEnd::kLost);
  for (int i = 0; i < 5; ++i) cluster.Ask(other, CallDouble());
  cluster.EndClient(successor, ClientEnd::kEndsJob);
  cluster.Settle();
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
  EXPECT_THAT(cluster.answers(other), SizeIs(5));
  ASSERT_TRUE(cluster.closed(other).has_value());
  EXPECT_TRUE(cluster.closed(other)->ok()) << *cluster.closed(other);
}

TEST(CoreClients, AJobThatNobodyEverDrivesEnds) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob(2));
  cluster.SettleFor(1000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kRunning);
  cluster.SettleFor(3000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
}

TEST(CoreClients, WhatIsUnderWayFailsWithTheCauseThatEndedTheJob) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob());
  const uint64_t client = cluster.OpenClient(job);
  cluster.Settle();
  cluster.hold_reports = true;
  for (int i = 0; i < 5; ++i) cluster.Ask(client, CallDouble());
  cluster.Settle();
  cluster.Kill("w1");
  cluster.SettleFor(1000);
  EXPECT_EQ(cluster.Info(job).state, JobState::kFailed);
  EXPECT_EQ(cluster.unanswered(client), 0u);
  ASSERT_THAT(cluster.failures(client), SizeIs(5));
  EXPECT_THAT(cluster.failures(client)[0].message, HasSubstr("w1"));
  ASSERT_TRUE(cluster.closed(client).has_value());
  EXPECT_THAT(cluster.closed(client)->message(), HasSubstr("w1"));
}

TEST(CoreClients, AJobThatTrainsIsAskedBetweenItsSteps) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  ir::JobRequest request = SimCluster::MakeJob(2, 1, 1, 50);
  request.programs.push_back(Double());
  const int64_t job = cluster.Submit(request);
  const uint64_t client = cluster.OpenClient(job);
  for (int i = 0; i < 200 && !cluster.opened(client); ++i) ASSERT_TRUE(cluster.DeliverOne());
  for (int i = 0; i < 3; ++i) cluster.Ask(client, CallDouble());
  cluster.Ask(client, proto::CallProgram{"step", {}, proto::Fetch::kAll, std::nullopt});
  ASSERT_THAT(cluster.failures(client), SizeIs(1));
  EXPECT_THAT(cluster.failures(client)[0].message, HasSubstr("runs 'step' itself"));
  cluster.Settle();
  EXPECT_THAT(cluster.answers(client), SizeIs(3));
  EXPECT_EQ(cluster.Info(job).state, JobState::kSucceeded);
  EXPECT_THAT(cluster.steps(job), SizeIs(50)) << "every step, once";
  EXPECT_TRUE(cluster.closed(client)->ok()) << *cluster.closed(client);
}

TEST(CoreClients, MoreThanCreditsAllowIsRefused) {
  SimCluster cluster;
  cluster.AddWorkers(2);
  const int64_t job = cluster.Submit(DrivenJob());
  const uint64_t client = cluster.OpenClient(job);
  cluster.Settle();
  cluster.hold_reports = true;
  const int credits = DeskLimits().credits;
  for (int i = 0; i <= credits; ++i) cluster.Ask(client, CallDouble());
  ASSERT_THAT(cluster.failures(client), SizeIs(1));
  EXPECT_THAT(cluster.failures(client)[0].message, HasSubstr("unanswered, the most at once"));
}

// Clients come, ask and vanish, workers die, the controller restarts: the checks of SimCluster hold
// (every ask answered at most once and in order), and at the end nothing that somebody waits for is
// unanswered.
TEST(CoreClients, NoAskIsLostInRandomHistories) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    SimCluster cluster(SimCluster::DefaultOptions(), seed);
    cluster.AddWorkers(3);
    std::vector<uint64_t> clients;
    std::vector<int64_t> jobs;
    for (int event = 0; event < 120; ++event) {
      const int64_t kind = cluster.Draw(20);
      if (kind == 0) jobs.push_back(cluster.Submit(DrivenJob(cluster.Draw(4))));
      if (kind <= 2 && !jobs.empty()) {
        clients.push_back(
            cluster.OpenClient(jobs[cluster.Draw(static_cast<int64_t>(jobs.size()))]));
      }
      if (kind >= 3 && kind <= 9 && !clients.empty()) {
        const uint64_t client = clients[cluster.Draw(static_cast<int64_t>(clients.size()))];
        if (!cluster.closed(client)) cluster.Ask(client, CallDouble());
      }
      if (kind == 10 && !clients.empty()) {
        const auto at = cluster.Draw(static_cast<int64_t>(clients.size()));
        cluster.EndClient(clients[at], static_cast<ClientEnd>(cluster.Draw(3)));
        clients.erase(clients.begin() + at);
      }
      if (kind == 11) cluster.Kill("w" + std::to_string(cluster.Draw(3)));
      if (kind == 12) cluster.Reconnect("w" + std::to_string(cluster.Draw(3)));
      if (kind == 13) cluster.Advance(100 * (1 + cluster.Draw(20)));
      for (int64_t i = cluster.Draw(8); i > 0; --i) cluster.DeliverOne();
    }
    for (int w = 0; w < 3; ++w) cluster.Reconnect("w" + std::to_string(w));
    cluster.SettleFor(20'000);
    for (const uint64_t client : clients) EXPECT_EQ(cluster.unanswered(client), 0u) << client;
  }
}

// ---- How much one call gives out: whole, and as the largest of each row -------------------------

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
