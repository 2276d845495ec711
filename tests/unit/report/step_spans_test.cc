#include "report/step_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mesh/measured_factors.h"
#include "report/forecast_trace.h"
#include "report/memory_series.h"
#include "report/step_trace.h"
#include "tests/unit/report/planned_job.h"
#include "tests/unit/report/recorded_step.h"

namespace meshwright::report {
namespace {

using ::testing::HasSubstr;

mesh::Topology Machine(int devices, double slower = 1) {
  mesh::Topology topology = mesh::Topology::Local(devices);
  mesh::MeasuredFactors factors;
  factors.steps = slower == 1 ? 0 : 1;  // of none: the profile as it is
  factors.all = slower;
  for (mesh::Device& device : topology.devices) {
    device.profile = std::make_shared<const mesh::DeviceProfile>(
        mesh::WithFactors(*mesh::DefaultDeviceProfile(), factors));
  }
  return topology;
}

const std::vector<std::string> kPipeline = {"parallelism.pipeline_parallel_degree=2",
                                            "parallelism.pipeline_parallel_microbatches=4"};
const std::vector<std::string> kReplicas = {"parallelism.data_parallel_replicate_degree=2"};

class StepSpansTest : public ::testing::Test {
 protected:
  void Plan(const std::vector<std::string>& overrides, double slower = 1) {
    planned_ = PlanSmallJob(overrides, Machine(2));
    ASSERT_TRUE(planned_.has_value()) << planned_.error();
    const auto records = RecordsAsForecast(planned_->plan(), Machine(2, slower), 4, 1'000'000);
    ASSERT_TRUE(records.has_value()) << records.error();
    records_ = *records;
  }
  const planner::Plan& plan() const { return planned_->plan(); }
  std::vector<RecordedStep> Steps(std::vector<ir::StepRecord> records) {
    run_ = RecordedRun();
    run_.Add(plan(), {NoteOf(std::move(records))});
    return run_.Steps(plan(), {});
  }

  Result<PlannedJob> planned_ = Fail(NotFound("not planned"));
  std::vector<ir::StepRecord> records_;
  RecordedRun run_;
};

TEST_F(StepSpansTest, AStepThatIsAsForecastHasTheForecastsParts) {
  for (const auto& overrides : {kPipeline, kReplicas}) {
    Plan(overrides);
    const MeasuredParts measured = MeasureParts(plan(), Steps(records_));
    const StepParts forecast = ForecastParts(plan(), planned_->forecast, Machine(2));
    const double tolerance = 0.002 * planned_->forecast.step_s;
    EXPECT_NEAR(measured.mean.total(), planned_->forecast.step_s, tolerance);
    EXPECT_NEAR(forecast.total(), planned_->forecast.step_s, tolerance);
    for (const StepPart part : {StepPart::kCompute, StepPart::kInput}) {
      EXPECT_NEAR(measured.mean.Of(part), forecast.Of(part), tolerance) << StepPartName(part);
    }
    // What a device has left at its end is idle in a forecast.
    const double idle = measured.mean.Of(StepPart::kBubble) + measured.mean.Of(StepPart::kRest);
    EXPECT_NEAR(idle + measured.mean.Of(StepPart::kCommunication),
                forecast.Of(StepPart::kBubble) + forecast.Of(StepPart::kCommunication), tolerance);
  }
}

TEST_F(StepSpansTest, WaitingForALateMemberIsNoCommunication) {
  Plan(kReplicas);
  const double exchange_s = MeasureParts(plan(), Steps(records_)).mean.Of(StepPart::kCommunication);
  // Rank 1 does everything a millisecond later; rank 0 waits for it in its first collective.
  constexpr int64_t kLate = 1'000'000;
  std::vector<ir::StepRecord> late = records_;
  for (ir::StepRecord& record : late) {
    bool met = record.rank == 1;
    if (met) record.begin_ns += kLate;
    record.end_ns += kLate;
    const ir::Program& program = plan().Main()[static_cast<size_t>(record.rank)];
    for (ir::StepMark& mark : record.marks) {
      const ir::Instruction& run = program.instructions[static_cast<size_t>(mark.instruction)];
      if (mark.node >= 0) {
        const ir::Graph& graph = *program.executables[run.executable.index()].graph;
        met = met || planner::IsCollective(graph.nodes[static_cast<size_t>(mark.node)].op);
      }
      if (met) mark.end_ns += kLate;
    }
  }
  const MeasuredParts parts = MeasureParts(plan(), Steps(late));
  EXPECT_NEAR(parts.ranks.at(0).Of(StepPart::kStragglers), 1e-3, 1e-6);
  EXPECT_NEAR(parts.ranks.at(1).Of(StepPart::kStragglers), 0, 1e-6);
  EXPECT_NEAR(parts.mean.Of(StepPart::kCommunication), exchange_s, 1e-6);
  // The picture has nothing there, and not the run in which rank 0 waited.
  const auto drawn_s = [this](const std::vector<RecordedStep>& steps, int rank) {
    double sum = 0;
    for (const planner::Span& span : SimulationOf(plan(), steps.back()).spans) {
      if (span.device == rank) sum += span.end_s - span.begin_s;
    }
    return sum;
  };
  // A run that waited in its middle is drawn in two pieces, and its memory is the same.
  planner::Simulation shown = SimulationOf(plan(), Steps(records_).back());
  const auto whole = MemoryOverTime(plan().Main(), shown, ir::Space::kDevice);
  shown.spans.insert(shown.spans.begin(), shown.spans.front());
  const auto pieces = MemoryOverTime(plan().Main(), shown, ir::Space::kDevice);
  const auto of = static_cast<size_t>(shown.spans.front().device);
  EXPECT_EQ(pieces[of].size(), whole[of].size() + 2);
  EXPECT_EQ(pieces[of].back().bytes, whole[of].back().bytes);
  for (const int rank : {0, 1}) {
    EXPECT_NEAR(drawn_s(Steps(late), rank), drawn_s(Steps(records_), rank), 1e-6) << rank;
  }
}

TEST_F(StepSpansTest, ClocksAreAlignedByTheShortestRound) {
  Plan(kPipeline);
  constexpr int64_t kAhead = 5'000'000'000;
  MemberNote near = NoteOf({records_[0]});
  near.round = {1000, 1500, 2000, 2500};
  MemberNote far = NoteOf({records_[1]});
  far.worker = far.host = "w1";
  for (ir::StepMark& mark : far.steps[0].marks) mark.end_ns += kAhead;
  far.steps[0].begin_ns += kAhead;
  far.steps[0].end_ns += kAhead;
  // 300 ns there, 100 ns back.
  far.round = {1000, 1300 + kAhead, 1400 + kAhead, 1500};
  RecordedRun run;
  // A round that is over later says less, before and after.
  MemberNote slow = far;
  slow.steps.clear();
  slow.round = {1000, 900'000 + kAhead, 900'000 + kAhead, 1'000'000};
  run.Add(plan(), {slow});
  run.Add(plan(), {near, far});
  run.Add(plan(), {slow});
  EXPECT_EQ(run.clocks().at("w1").offset_ns, kAhead + 100);
  EXPECT_EQ(run.clocks().at("w1").error_ns, 200);
  EXPECT_EQ(run.clocks().at("w0").offset_ns, 0);
  EXPECT_EQ(run.WorkerOf(1), "w1");
  const auto steps = run.Steps(plan(), {});
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].records[1].begin_ns, records_[1].begin_ns - 100);
  EXPECT_EQ(steps[0].records[1].marks.back().end_ns, records_[1].marks.back().end_ns - 100);
}

TEST_F(StepSpansTest, WhatIsNoRecordOfThePlanIsDropped) {
  Plan(kPipeline);
  const auto drops = [&](void (*spoil)(ir::StepRecord&)) {
    std::vector<ir::StepRecord> records = records_;
    spoil(records[1]);
    const auto steps = Steps(std::move(records));
    return steps.empty() && run_.dropped() == 1;
  };
  EXPECT_FALSE(drops([](ir::StepRecord&) {}));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.rank = 7; }));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.program = "eval"; }));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.marks[3].instruction = 1 << 20; }));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.marks[0].node = 1 << 20; }));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.marks[0].node = -9; }));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.marks.back().end_ns = 0; }));
  EXPECT_TRUE(drops([](ir::StepRecord& r) { r.end_ns = r.begin_ns; }));
}

TEST_F(StepSpansTest, OnlyTheNewestStepsAreKept) {
  Plan(kReplicas);
  RecordedRun run;
  for (int64_t step = 0; step < 100; ++step) {
    std::vector<ir::StepRecord> records = records_;
    for (ir::StepRecord& record : records) record.step = step;
    run.Add(plan(), {NoteOf(std::move(records))});
  }
  EXPECT_EQ(run.steps().size(), RecordedRun::kMostSteps);
  EXPECT_EQ(run.steps().begin()->first, 100 - static_cast<int64_t>(RecordedRun::kMostSteps));
  EXPECT_EQ(run.Steps(plan(), {}).size(), RecordedRun::kMostSteps) << "they have no gap";
  for (ir::StepRecord& record : records_) record.step = 200;
  run.Add(plan(), {NoteOf(records_)});
  EXPECT_EQ(run.Steps(plan(), {}).size(), 1u) << "the newest ones";
  EXPECT_EQ(run.Steps(plan(), {90, 5}).size(), 5u);
}

// By pid and tid, the events of "X".
std::map<std::pair<int, int>, std::vector<nlohmann::json>> Rows(const nlohmann::json& trace) {
  std::map<std::pair<int, int>, std::vector<nlohmann::json>> rows;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") rows[{event.at("pid"), event.at("tid")}].push_back(event);
  }
  return rows;
}

TEST_F(StepSpansTest, ATraceHasTheForecastsRowsNamesAndTimes) {
  Plan(kPipeline);
  const auto steps = Steps(records_);
  const auto text = StepTrace(plan(), run_, steps, "job 7");
  ASSERT_TRUE(text.has_value()) << text.error();
  const auto trace = nlohmann::json::parse(*text);
  const auto forecast =
      nlohmann::json::parse(ToChromeTrace(plan().Main(), planned_->forecast.simulation));
  const auto rows = Rows(trace), expected = Rows(forecast);
  ASSERT_EQ(rows.size(), expected.size());
  for (const auto& [row, runs] : expected) {
    std::map<std::pair<std::string, int>, double> begins;
    for (const auto& event : rows.at(row)) {
      if (event.at("args").contains("microbatch")) {
        begins[{event.at("name"), event.at("args").at("instruction")}] = event.at("ts");
      }
    }
    ASSERT_EQ(begins.size(), runs.size());
    for (const auto& run : runs) {
      const auto at = begins.find({run.at("name"), run.at("args").at("instruction")});
      ASSERT_NE(at, begins.end()) << run;
      EXPECT_NEAR(at->second, run.at("ts").get<double>(), 1);
    }
  }
  int starts = 0, ends = 0;
  for (const auto& event : trace.at("traceEvents")) {
    starts += event.at("ph") == "s" ? 1 : 0;
    ends += event.at("ph") == "f" ? 1 : 0;
  }
  EXPECT_GT(starts, 0);
  EXPECT_EQ(starts, ends);
  EXPECT_EQ(trace.at("otherData").at("first_step"), 5) << "steps are counted from 1";
}

// A viewer nests what lies within, and shows nothing well that overlaps.
TEST_F(StepSpansTest, EventsOfARowNest) {
  Plan(kPipeline, 2);
  const auto steps = Steps(records_);
  const auto trace = nlohmann::json::parse(StepTrace(plan(), run_, steps, "job").value());
  for (auto& [row, events] : Rows(trace)) {
    std::vector<std::pair<double, double>> spans;
    for (const auto& event : events) {
      const double begin = event.at("ts");
      spans.emplace_back(begin, begin + event.at("dur").get<double>());
    }
    // The longest first where several begin at once.
    std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<double> open_until;
    for (const auto& [begin, end] : spans) {
      while (!open_until.empty() && open_until.back() <= begin + 0.002) open_until.pop_back();
      EXPECT_TRUE(open_until.empty() || end <= open_until.back() + 0.002) << "at " << begin;
      open_until.push_back(end);
    }
  }
}

TEST_F(StepSpansTest, TheTableNamesKernelsByLayerBesideTheirForecast) {
  Plan(kReplicas);
  const auto steps = Steps(records_);
  const auto names = SecondsByName(plan(), Machine(2), steps);
  double all = 0;
  for (const NamedSeconds& name : names) {
    all += name.measured_s;
    if (name.part == StepPart::kCompute && name.forecast_s > 1e-6) {
      EXPECT_NEAR(name.measured_s / name.forecast_s, 1, 0.02) << name.name;
    }
  }
  EXPECT_NEAR(all, planned_->forecast.step_s, 0.002 * planned_->forecast.step_s);
  const std::string table = FormatLongest(names, steps);
  EXPECT_THAT(table, HasSubstr("step 5, mean of their devices"));
  EXPECT_THAT(table, HasSubstr("forward layer 0"));
  const auto json = nlohmann::json::parse(LongestJson(names, steps));
  EXPECT_EQ(json.at("nodes").size(), names.size());
}

// Devices that are half as fast as their profile says: the next plan's forecast is right.
TEST_F(StepSpansTest, ForecastsComeNearToDevicesThatAreHalfAsFast) {
  const mesh::Topology truth = Machine(2, 2);
  mesh::FactorsByDevice factors;
  double error = 1e9;
  for (int round = 0; round < 3; ++round) {
    mesh::Topology seen = Machine(2);
    for (mesh::Device& device : seen.devices) {
      device.profile = std::make_shared<const mesh::DeviceProfile>(
          mesh::WithFactors(*device.profile, factors[device.profile->name]));
    }
    planned_ = PlanSmallJob(kReplicas, seen);
    ASSERT_TRUE(planned_.has_value()) << planned_.error();
    EXPECT_EQ(planned_->plan().notes.empty() ||
                  planned_->plan().notes.back().find("profile: measured on") == std::string::npos,
              round == 0);
    const auto records = RecordsAsForecast(plan(), truth, round, 0);
    ASSERT_TRUE(records.has_value()) << records.error();
    const auto steps = Steps(*records);
    const double measured_s = MeasureParts(plan(), steps).mean.total();
    const double now = std::abs(planned_->forecast.step_s / measured_s - 1);
    EXPECT_EQ(now > 0.4, round == 0) << now;
    EXPECT_EQ(now<0.05, round> 0) << now;
    EXPECT_LE(now, error + 1e-9);
    error = now;
    for (const auto& [name, kind] : MeasureKernels(plan(), Machine(2), steps)) {
      factors[name] = mesh::Learn(factors[name], kind);
    }
  }
  const auto again = mesh::ParseFactors(mesh::FormatFactors(factors));
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(*again, factors);
}

}  // namespace
}  // namespace meshwright::report
