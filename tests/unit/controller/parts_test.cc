// The parts of the controller that need no cluster: placement, launches, access, journal, blobs,
// state tables.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "base/sha256.h"
#include "controller/auth.h"
#include "controller/blob_store.h"
#include "controller/journal.h"
#include "controller/launches.h"
#include "controller/placement.h"
#include "controller/planning.h"
#include "controller/states.h"
#include "tests/scale.h"

namespace meshwright::controller {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// VmHWM: the most memory that this process has had.
int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

// ---- Placement ----------------------------------------------------------------------------------

std::vector<mesh::Device> Devices(std::vector<std::pair<std::string, std::string>> workers) {
  std::vector<mesh::Device> devices;
  for (auto& [worker, host] : workers) {
    mesh::Device device;
    device.worker = worker;
    device.host = host;
    devices.push_back(device);
  }
  return devices;
}

std::vector<std::string> Names(const Placement& placement) {
  std::vector<std::string> names;
  for (const mesh::Device& device : placement.devices) names.push_back(device.worker);
  return names;
}

ir::ParallelSpec Degrees(int64_t data, int64_t tensor, int64_t pipeline) {
  ir::ParallelSpec spec;
  spec.data = data;
  spec.tensor = tensor;
  spec.pipeline = pipeline;
  return spec;
}

TEST(Placement, TakesWorkersInNaturalOrder) {
  const Placement placement = Place(
      Degrees(3, 1, 1), Devices({{"w10", "h"}, {"w2", "h"}, {"w1", "h"}, {"w3", "h"}}), {}, 4);
  ASSERT_EQ(placement.outcome, PlacementOutcome::kPlaced);
  EXPECT_THAT(Names(placement), ElementsAre("w1", "w2", "w3"));
}

TEST(Placement, PrefersTheHostWithTheMostFreeDevices) {
  const Placement placement =
      Place(Degrees(2, 1, 1), Devices({{"a0", "a"}, {"b0", "b"}, {"b1", "b"}, {"b2", "b"}}), {}, 4);
  EXPECT_THAT(Names(placement), ElementsAre("b0", "b1"));
}

TEST(Placement, StagesThatDifferTakeWhatTheirMeshesHave) {
  const auto free = Devices({{"w0", "h"}, {"w1", "h"}, {"w2", "h"}, {"w3", "h"}});
  ir::ParallelSpec spec = ir::OpenParallel();
  spec.stage_meshes = "2x1,1x1";
  EXPECT_EQ(Place(spec, free, {}, 4).devices.size(), 3u);
  spec.stage_meshes = "2x2,1x1";
  const Placement large = Place(spec, free, {}, 4);
  EXPECT_EQ(large.outcome, PlacementOutcome::kInfeasible);
  EXPECT_THAT(large.message, HasSubstr("meshes=2x2,1x1"));
  // The planner says what is wrong with it.
  spec.stage_meshes = "2y2";
  EXPECT_EQ(Place(spec, free, {}, 4).outcome, PlacementOutcome::kPlaced);
}

TEST(Placement, AGridSaysTheTensorDegree) {
  ir::ParallelSpec spec = ir::OpenParallel();
  spec.data = 1;
  spec.pipeline = 1;
  spec.tensor_axes = "2x2";
  // One free device of four: the job waits, and never starts on fewer than it needs.
  EXPECT_EQ(Place(spec, Devices({{"w0", "h"}}), {}, 4).outcome, PlacementOutcome::kNoCapacity);
  EXPECT_EQ(Place(spec, Devices({{"w0", "h"}}), {}, 3).outcome, PlacementOutcome::kInfeasible);
}

TEST(Placement, AutoDataTakesWholeReplicas) {
  const auto free = Devices({{"w0", "h"}, {"w1", "h"}, {"w2", "h"}, {"w3", "h"}, {"w4", "h"}});
  EXPECT_EQ(Place(Degrees(0, 2, 1), free, {}, 5).devices.size(), 4u);
  EXPECT_EQ(Place(Degrees(0, 1, 1), free, {}, 5).devices.size(), 5u);
  // Any degree may be open; what is fixed says the multiple.
  EXPECT_EQ(Place(Degrees(0, 0, 0), free, {}, 5).devices.size(), 5u);
  EXPECT_EQ(Place(Degrees(2, 0, 1), free, {}, 5).devices.size(), 4u);
  EXPECT_EQ(Place(Degrees(6, 0, 0), free, {}, 5).outcome, PlacementOutcome::kInfeasible);
}

TEST(Placement, WhatTakesEveryDeviceWaitsForThoseThatReturn) {
  const auto free = Devices({{"w0", "h"}, {"w1", "h"}, {"w2", "h"}, {"w3", "h"}});
  const Placement waits = Place(Degrees(0, 1, 1), free, {2, {3, 7}}, 6);
  EXPECT_EQ(waits.outcome, PlacementOutcome::kNoCapacity) << "of six it would get four";
  EXPECT_THAT(waits.message, HasSubstr("waits for 2 more that job 3 and job 7 are letting go of"));
  EXPECT_EQ(Place(Degrees(2, 2, 1), free, {2, {3}}, 6).devices.size(), 4u)
      << "has all that it needs";
  EXPECT_EQ(Place(Degrees(0, 4, 1), free, {3, {3}}, 7).devices.size(), 4u)
      << "cannot use three more";
  EXPECT_EQ(Place(Degrees(0, 4, 1), free, {4, {3}}, 8).outcome, PlacementOutcome::kNoCapacity);
}

TEST(Placement, TellsWaitingFromNeverAndSaysWhatFits) {
  const auto one = Devices({{"w0", "h"}});
  EXPECT_EQ(Place(Degrees(1, 1, 1), {}, {}, 0).outcome, PlacementOutcome::kNoWorkers);
  const Placement wait = Place(Degrees(2, 1, 1), one, {}, 4);
  EXPECT_EQ(wait.outcome, PlacementOutcome::kNoCapacity);
  EXPECT_THAT(wait.message, HasSubstr("1 of 4 are free"));
  const Placement never = Place(Degrees(4, 2, 1), one, {}, 4);
  EXPECT_EQ(never.outcome, PlacementOutcome::kInfeasible);
  EXPECT_THAT(never.message, HasSubstr("data <= 2"));
  EXPECT_THAT(Place(Degrees(1, 8, 1), one, {}, 4).message, HasSubstr("at most 4"));
}

// ---- Launches -----------------------------------------------------------------------------------

TEST(LaunchSchedule, CoversEveryStepOnceAndValidatesWhereAsked) {
  EXPECT_TRUE(rc::check("steps in order, none missing, no launch across a validation", [] {
    ir::TrainSpec train;
    train.steps = *rc::gen::inRange<int64_t>(1, 60);
    train.steps_per_launch = *rc::gen::inRange<int64_t>(1, 9);
    train.validate_every = *rc::gen::inRange<int64_t>(0, 12);
    train.validation_batches = *rc::gen::inRange<int64_t>(0, 3);
    LaunchSchedule schedule(train, true);
    int64_t done = 0;
    int64_t validated = 0;
    RC_ASSERT(schedule.Next() == (PlannedLaunch{"init", 0, 1}));
    while (const auto launch = schedule.Next()) {
      if (launch->program == "eval") {
        RC_ASSERT(launch->count == train.validation_batches);
        RC_ASSERT(schedule.ValidatedAfter(done - 1));
        validated = done;
        continue;
      }
      RC_ASSERT(launch->first_step == done);
      RC_ASSERT(launch->count >= 1 && launch->count <= train.steps_per_launch);
      for (int64_t i = 0; i + 1 < launch->count; ++i) RC_ASSERT(!schedule.ValidatedAfter(done + i));
      // The validation of what was done before comes before more steps.
      RC_ASSERT(done == 0 || !schedule.ValidatedAfter(done - 1) || validated == done);
      done += launch->count;
    }
    RC_ASSERT(done == train.steps);
    RC_ASSERT(schedule.done());
    RC_ASSERT(train.validation_batches == 0 || validated == train.steps);
  }));
}

TEST(LaunchSchedule, SavesBetweenStepsAndWaitsForTheSaveBefore) {
  ir::TrainSpec train;
  train.steps = 10;
  train.steps_per_launch = 4;
  const ir::CheckpointSpec checkpoint{.enable = true, .folder = {}, .interval = 3};
  LaunchSchedule schedule(train, false, checkpoint);
  EXPECT_EQ(schedule.Next()->program, ir::kInitProgram);
  const auto step = [](int64_t first, int64_t count) {
    return PlannedLaunch{ir::kStepProgram, first, count};
  };
  const auto save = [](int64_t done, SaveCause cause = SaveCause::kInterval) {
    return PlannedLaunch{"", done, 0, LaunchKind::kSave, cause};
  };
  EXPECT_EQ(schedule.Next(), step(0, 3));
  EXPECT_EQ(schedule.Next(), save(3));
  EXPECT_EQ(schedule.Next(), step(3, 3));
  EXPECT_EQ(schedule.Next(), step(6, 3)) << "the save of step 3 is still being written";
  schedule.SaveEnded(true);
  EXPECT_EQ(schedule.Next(), save(9));
  schedule.SaveEnded(true);
  EXPECT_EQ(schedule.Next(), step(9, 1));
  EXPECT_FALSE(schedule.done()) << "the end is saved, too";
  EXPECT_EQ(schedule.Next(), save(10, SaveCause::kEnd));
  EXPECT_EQ(schedule.Next(), std::nullopt);
  EXPECT_FALSE(schedule.done());
  schedule.SaveEnded(true);
  EXPECT_TRUE(schedule.done());
}

TEST(LaunchSchedule, StepsWaitForASaveWhereTheJobSaysSo) {
  ir::TrainSpec train;
  train.steps = 4;
  ir::CheckpointSpec checkpoint{.enable = true, .folder = {}, .interval = 2};
  checkpoint.waits = true;
  LaunchSchedule schedule(train, false, checkpoint);
  EXPECT_EQ(schedule.Next()->program, ir::kInitProgram);
  EXPECT_EQ(schedule.Next()->program, ir::kStepProgram);
  EXPECT_EQ(schedule.Next()->program, ir::kStepProgram);
  EXPECT_EQ(schedule.Next()->kind, LaunchKind::kSave);
  EXPECT_EQ(schedule.Next(), std::nullopt);
  EXPECT_FALSE(schedule.done());
  schedule.SaveEnded(false);
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{ir::kStepProgram, 2, 1})) << "well or not";
}

TEST(LaunchSchedule, SavesWhenItIsAsked) {
  ir::TrainSpec train;
  train.steps = 3;
  const ir::CheckpointSpec checkpoint{.enable = true, .folder = {}, .interval = 0};
  LaunchSchedule schedule(train, false, checkpoint);
  schedule.RequestSave(SaveCause::kTime);
  EXPECT_EQ(schedule.Next()->program, ir::kInitProgram) << "there is no state to save yet";
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{ir::kStepProgram, 0, 1}));
  schedule.RequestSave(SaveCause::kTime);
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{"", 1, 0, LaunchKind::kSave, SaveCause::kTime}));
  schedule.RequestSave(SaveCause::kTime);
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{ir::kStepProgram, 1, 1})) << "one at a time";
  schedule.SaveEnded(true);
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{"", 2, 0, LaunchKind::kSave, SaveCause::kTime}));
}

TEST(LaunchSchedule, HaltsBehindASaveOfWhatIsNotSavedAndGoesOn) {
  ir::TrainSpec train;
  train.steps = 6;
  const ir::CheckpointSpec checkpoint{.enable = true, .folder = {}, .interval = 2};
  const auto step = [](int64_t first) { return PlannedLaunch{ir::kStepProgram, first, 1}; };
  const auto save = [](int64_t done, SaveCause cause) {
    return PlannedLaunch{"", done, 0, LaunchKind::kSave, cause};
  };
  LaunchSchedule schedule(train, false, checkpoint);
  EXPECT_EQ(schedule.Next()->program, ir::kInitProgram);
  EXPECT_EQ(schedule.Next(), step(0));
  EXPECT_EQ(schedule.Next(), step(1));
  EXPECT_EQ(schedule.Next(), save(2, SaveCause::kInterval));
  schedule.Halt(SaveCause::kPause);
  EXPECT_FALSE(schedule.halted()) << "that save is being written";
  EXPECT_EQ(schedule.Next(), std::nullopt);
  schedule.SaveEnded(true);
  EXPECT_TRUE(schedule.halted()) << "not the same state twice";
  schedule.GoOn();
  EXPECT_EQ(schedule.Next(), step(2));
  schedule.Halt(SaveCause::kPause);
  EXPECT_EQ(schedule.Next(), save(3, SaveCause::kPause));
  schedule.SaveEnded(false);
  EXPECT_TRUE(schedule.halted()) << "it was tried";
  schedule.GoOn();
  EXPECT_FALSE(schedule.halted());
  schedule.Halt(SaveCause::kDrain);
  EXPECT_EQ(schedule.Next(), save(3, SaveCause::kDrain)) << "it may be written now";
  schedule.SaveEnded(true);
  EXPECT_TRUE(schedule.halted());
}

TEST(LaunchSchedule, GoesOnFromAStepThatIsDone) {
  ir::TrainSpec train;
  train.steps = 6;
  train.validate_every = 2;
  train.validation_batches = 1;
  LaunchSchedule schedule(train, true, {}, {.checkpoint = {}, .step = 4, .exclude = {}});
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{"", 4, 0, LaunchKind::kRestore}));
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{ir::kStepProgram, 4, 1}))
      << "step 4 was validated before";
  schedule.RequestSave(SaveCause::kTime);
  EXPECT_EQ(schedule.Next(), (PlannedLaunch{ir::kStepProgram, 5, 1})) << "saving is off";
  EXPECT_EQ(schedule.Next()->program, ir::kEvalProgram);
  EXPECT_TRUE(schedule.done());
}

TEST(LaunchSchedule, SplitsAValidationThatIsTooLongForOneReport) {
  ir::TrainSpec train;
  train.steps = 2;
  train.steps_per_launch = 2;
  train.validation_batches = 2500;
  LaunchSchedule schedule(train, true);
  std::vector<PlannedLaunch> launches;
  while (const auto launch = schedule.Next()) launches.push_back(*launch);
  EXPECT_THAT(launches,
              ElementsAre(PlannedLaunch{"init", 0, 1}, PlannedLaunch{"step", 0, 2},
                          PlannedLaunch{"eval", 0, 1000}, PlannedLaunch{"eval", 1000, 1000},
                          PlannedLaunch{"eval", 2000, 500}));
  EXPECT_FALSE(schedule.EndsValidation(launches[3]));
  EXPECT_TRUE(schedule.EndsValidation(launches[4]));
  EXPECT_TRUE(schedule.done());
}

// ---- Access -------------------------------------------------------------------------------------

TEST(Auth, AcceptsTheTokenAndNothingElse) {
  EXPECT_TRUE(CheckAuthorization("", "").ok());
  EXPECT_TRUE(CheckAuthorization("secret", "Bearer secret").ok());
  for (const char* wrong : {"", "secret", "Bearer ", "Bearer Secret", "Bearer secret1",
                            "bearer secret", "Bearer secre"}) {
    EXPECT_EQ(CheckAuthorization("secret", wrong).code(), StatusCode::kUnauthenticated) << wrong;
  }
}

TEST(Auth, KnowsWhatIsThisMachineAlone) {
  for (const char* loopback : {"127.0.0.1", "127.5.0.1", "localhost", "::1"}) {
    EXPECT_TRUE(IsLoopbackBind(loopback)) << loopback;
  }
  for (const char* open : {"0.0.0.0", "10.0.0.1", "::", "127x"}) {
    EXPECT_FALSE(IsLoopbackBind(open)) << open;
  }
}

// ---- Journal ------------------------------------------------------------------------------------

proto::StepMetrics Step(int64_t step, double validation_loss) {
  return {step, 5.5, 1.25, 1e-3, 4096, 0.05, validation_loss};
}

TEST(Journal, FormatsAndReadsBackItsFiles) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(FormatStep(Step(3, nan)),
            "{\"step\":3,\"loss\":5.5,\"grad_norm\":1.25,\"lr\":0.001,\"tokens\":4096,"
            "\"seconds\":0.05}\n");
  auto bad = Step(4, 2.5);
  bad.loss = std::numeric_limits<double>::infinity();
  EXPECT_THAT(FormatStep(bad), HasSubstr("\"loss\":null"));
  EXPECT_THAT(FormatStep(bad), HasSubstr("\"validation_loss\":2.5"));
  EXPECT_EQ(FormatLine("two\nlines", 1'767'225'600'123), "2026-01-01T00:00:00.123Z two lines\n");

  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  ASSERT_TRUE(WriteFileAtomic(dir->File("metrics.jsonl"),
                              FormatStep(Step(0, nan)) + "{broken\n" + FormatStep(Step(1, 2)))
                  .ok());
  ASSERT_TRUE(WriteFileAtomic(dir->File("job.log"), "one\ntwo\n").ok());
  const JournalSizes sizes = MeasureJournal(dir->path());
  ASSERT_TRUE(AppendFile(dir->File("job.log"), "after it was measured\n").ok());
  const Journal journal = LoadJournal(dir->path(), sizes);
  int64_t steps = 0;
  int64_t lines = 0;
  const auto read = journal.StepsFrom(steps, 10);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].validation_loss, 2);
  EXPECT_TRUE(std::isnan(read[0].validation_loss));
  EXPECT_THAT(journal.LinesFrom(lines, 10), ElementsAre("one", "two"));
}

// 200 MB of steps, of which the last ones are kept: read in little memory, numbered as they came.
TEST(Journal, ReadsTheEndOfALongHistoryInLittleMemory) {
  if (kSanitizedBuild) GTEST_SKIP() << "a sanitizer's allocator keeps what was freed";
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  constexpr int64_t kSteps = Journal::kMaxSteps + 1000;
  std::string text;
  for (int64_t i = 0; i < kSteps; ++i) {
    text += fmt::format("{{\"step\":{}{:>1000}}}\n", i, "");
    if (text.size() < 1 << 20 && i + 1 < kSteps) continue;
    ASSERT_TRUE(AppendFile(dir->File("metrics.jsonl"), text).ok());
    text.clear();
  }
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const int64_t before = PeakBytes();
  const Journal journal = LoadJournal(dir->path(), MeasureJournal(dir->path()));
  EXPECT_LT(PeakBytes() - before, 100 << 20);
  EXPECT_EQ(journal.step_count(), kSteps);
  int64_t from = 0;
  const auto first = journal.StepsFrom(from, 1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].step, 1000);
}

TEST(Journal, AReaderMissesNothingWhileItGrows) {
  Journal journal;
  int64_t cursor = 0;
  std::vector<int64_t> seen;
  for (int64_t i = 0; i < 100; ++i) {
    journal.AddStep(Step(i, 0));
    if (i % 7 != 0) continue;
    for (const auto& step : journal.StepsFrom(cursor, 5)) seen.push_back(step.step);
  }
  while (true) {
    const auto more = journal.StepsFrom(cursor, 5);
    if (more.empty()) break;
    for (const auto& step : more) seen.push_back(step.step);
  }
  ASSERT_EQ(seen.size(), 100u);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(Journal, AReaderMayAskFromAnyNumber) {
  Journal journal;
  for (int64_t i = 0; i < 3; ++i) journal.AddStep(Step(i, 0));
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t from : {int64_t{3}, kMax - 1, kMax}) {
    int64_t cursor = from;
    EXPECT_TRUE(journal.StepsFrom(cursor, 10'000).empty());
    EXPECT_EQ(cursor, from);
  }
  int64_t cursor = 1;
  EXPECT_EQ(journal.StepsFrom(cursor, kMax).size(), 2u);
  cursor = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(journal.StepsFrom(cursor, kMax).size(), 3u);
  EXPECT_EQ(cursor, 3);
}

TEST(Journal, AppendsWhatCameLater) {
  Journal journal;
  journal.AddLine("one");
  journal.AddStep(Step(0, 0));
  Journal later;
  later.AddLine("two");
  later.AddStep(Step(1, 0));
  journal.Append(later);
  int64_t cursor = 0;
  EXPECT_THAT(journal.LinesFrom(cursor, 10), ElementsAre("one", "two"));
  EXPECT_EQ(journal.step_count(), 2);
}

TEST(Journal, ForgetsTheOldestBeyondItsCap) {
  Journal journal;
  for (int64_t i = 0; i < Journal::kMaxLines + 5; ++i) journal.AddLine(std::to_string(i));
  int64_t cursor = 0;
  EXPECT_EQ(journal.LinesFrom(cursor, 1).at(0), "5");
  EXPECT_EQ(cursor, 6);
  EXPECT_EQ(journal.line_count(), Journal::kMaxLines + 5);
}

// ---- Blobs --------------------------------------------------------------------------------------

TEST(BlobStore, ShowsABlobOnlyWhenItIsWhole) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  auto store = BlobStore::Open(dir->File("blobs"));
  ASSERT_TRUE(store.has_value()) << store.error();
  const std::string bytes = "some bytes";
  const std::string hash = Sha256Hex(bytes);
  {
    auto writer = (*store)->Begin(hash, 10);
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE((*writer)->Write("some ").ok());
    EXPECT_FALSE((*store)->Find(hash));
  }
  auto wrong = (*store)->Begin(hash, 10);
  ASSERT_TRUE((*wrong)->Write("some bites").ok());
  EXPECT_EQ((*wrong)->Finish().code(), StatusCode::kDataLoss);
  wrong->reset();
  auto right = (*store)->Begin(hash, 10);
  ASSERT_TRUE((*right)->Write(bytes).ok());
  EXPECT_EQ((*right)->Write("x").code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE((*right)->Finish().ok());
  EXPECT_EQ((*store)->Find(hash), 10);
  EXPECT_EQ(ReadFile((*store)->PathOf(hash).value_or("")).value_or(""), bytes);
  EXPECT_EQ((*store)->PutBytes(bytes, "again")->sha256, hash);
}

TEST(BlobStore, RefusesNamesThatAreNoHashes) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  auto store = BlobStore::Open(dir->File("blobs"));
  ASSERT_TRUE(store.has_value());
  for (const std::string& name : {std::string("../../etc/passwd"), std::string(64, 'A'),
                                  std::string(63, 'a'), std::string()}) {
    EXPECT_EQ((*store)->Begin(name, 1).error().code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ((*store)->PathOf(name).error().code(), StatusCode::kNotFound) << name;
  }
}

// ---- State tables -------------------------------------------------------------------------------

TEST(States, TerminalJobsHaveNoWayOutAndAllStatesAreReached) {
  for (const auto& row : JobTable()) EXPECT_FALSE(proto::IsTerminal(row.from));
  for (int i = 2; i < proto::kJobStateCount; ++i) {
    const auto state = static_cast<JobState>(i);
    const auto table = JobTable();
    EXPECT_TRUE(std::any_of(table.begin(), table.end(), [&](const auto& row) {
      return row.to == state;
    })) << proto::JobStateName(state);
  }
}

TEST(States, TablesAreFunctions) {
  const auto distinct = [](auto table) {
    for (size_t i = 0; i < table.size(); ++i) {
      for (size_t j = i + 1; j < table.size(); ++j) {
        EXPECT_FALSE(table[i].from == table[j].from && table[i].event == table[j].event);
      }
    }
  };
  distinct(WorkerTable());
  distinct(JobTable());
  distinct(MeshTable());
  EXPECT_THAT(FormatStateTables(), HasSubstr("QUEUED      place        PLANNING"));
}

TEST(States, AnyLiveJobCanBeCancelledOrFail) {
  for (const auto state :
       {JobState::kQueued, JobState::kPlanning, JobState::kStarting, JobState::kRunning}) {
    EXPECT_EQ(Next(state, JobEvent::kCancel), JobState::kCancelled);
    EXPECT_EQ(Next(state, JobEvent::kFail), JobState::kFailed);
  }
}

// ---- Planning -----------------------------------------------------------------------------------

TEST(PlanJob, OnlyThePlannersErrorIsAMisfit) {
  const TempDir dir = TempDir::Make().value();
  auto blobs = BlobStore::Open(dir.File("blobs")).value();
  Result<planner::Plan> made = Fail(ResourceExhausted("too large"));
  const auto make_plan = [&](const ir::JobRequest&, const mesh::Topology&) { return made; };
  ir::JobRequest job;
  job.SetLoss({});
  bool misfit = false;
  EXPECT_FALSE(PlanJob(make_plan, job, {}, *blobs, {dir.File("job")}, misfit).has_value());
  EXPECT_TRUE(misfit);
  made = Fail(Internal("broken"));
  EXPECT_FALSE(PlanJob(make_plan, job, {}, *blobs, {dir.File("job")}, misfit).has_value());
  EXPECT_FALSE(misfit);
  // What cannot be written has one of the planner's codes.
  made = planner::Plan{};
  made->programs["step"] = {};
  misfit = true;
  const auto unwritten =
      PlanJob(make_plan, job, {}, *blobs, {dir.File(std::string(300, 'x'))}, misfit);
  ASSERT_FALSE(unwritten.has_value());
  EXPECT_EQ(unwritten.error().code(), StatusCode::kInvalidArgument) << unwritten.error();
  EXPECT_FALSE(misfit);
}

}  // namespace
}  // namespace meshwright::controller
