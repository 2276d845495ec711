#include "web/run_stories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "mesh/measured_factors.h"
#include "tests/still_clock.h"
#include "tests/unit/report/planned_job.h"
#include "tests/unit/report/recorded_step.h"

namespace meshwright::web {
namespace {

using controller::StoryForm;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RunStoriesTest : public ::testing::Test {
 protected:
  RunStoriesTest() {
    for (mesh::Device& device : topology_.devices) device.profile = mesh::DefaultDeviceProfile();
  }
  ~RunStoriesTest() override {
    if (stories_) stories_->Stop();
  }

  void Start(const std::string& factors, int64_t advice_ms = 0) {
    if (stories_) stories_->Stop();
    stories_ = MakeRunStories({.factors_path = factors, .advice_ms = advice_ms}, kStill);
    stories_->Listen([this](const controller::StepFigures& figures) { figures_ = figures; },
                     [this](const controller::MadePlan& made) {
                       taken_up_.push_back(made.plan->layout.ToString());
                     });
  }

  // The job is planned for devices as they are known, which are half as fast as their profile.
  void PlanJob(int64_t id, const std::string& degree = "2", bool ahead = false) {
    for (mesh::Device& device : topology_.devices) {
      device.profile = stories_->Measured(mesh::DefaultDeviceProfile());
    }
    auto planned =
        report::PlanSmallJob({"parallelism.data_parallel_replicate_degree=" + degree}, topology_);
    ASSERT_TRUE(planned.has_value()) << planned.error();
    plan_ = std::make_shared<const planner::Plan>(planned->plan());
    stories_->OnPlan({JobId(id), ahead, dir_.path(),
                      std::make_shared<const ir::JobRequest>(planned->prepared.request), plan_,
                      topology_});
  }

  void Record(int64_t id, int64_t step, const std::string& layout) {
    mesh::Topology truth = topology_;
    mesh::MeasuredFactors half;
    half.steps = 1;
    half.all = 2;
    for (mesh::Device& device : truth.devices) {
      device.profile = std::make_shared<const mesh::DeviceProfile>(
          mesh::WithFactors(*mesh::DefaultDeviceProfile(), half));
    }
    auto records = report::RecordsAsForecast(*plan_, truth, step, 1'000'000);
    ASSERT_TRUE(records.has_value()) << records.error();
    controller::StepsRecorded recorded{JobId(id), layout, {"step", step, 1}, {}};
    recorded.members.push_back(
        {"w0", "host-a", {100, 200, 300, 400}, 1'000'000, 9'000'000, *std::move(records)});
    stories_->OnRecorded(std::move(recorded));
  }

  Result<std::string> Ask(int64_t id, StoryForm form, ir::StepRange steps = {}) {
    std::promise<Result<std::string>> answer;
    stories_->Ask({JobId(id), steps, form},
                  [&](Result<std::string> text) { answer.set_value(std::move(text)); });
    return answer.get_future().get();
  }

  TempDir dir_ = *TempDir::Make();
  mesh::Topology topology_ = mesh::Topology::Local(2);
  std::shared_ptr<const planner::Plan> plan_;
  std::shared_ptr<controller::RunStory> stories_;
  controller::StepFigures figures_;    // of the stories' thread; read behind an answer
  std::vector<std::string> taken_up_;  // as above
};

TEST_F(RunStoriesTest, TellsWhatWasRecordedInEveryForm) {
  Start("");
  EXPECT_EQ(Ask(7, StoryForm::kTable).error().code(), StatusCode::kFailedPrecondition);
  PlanJob(7);
  EXPECT_EQ(Ask(7, StoryForm::kTable).error().code(), StatusCode::kNotFound);
  Record(7, 3, plan_->layout.ToString());
  EXPECT_THAT(Ask(7, StoryForm::kTable).value(), HasSubstr("step 4, mean of their devices"));
  EXPECT_THAT(Ask(7, StoryForm::kWhy).value(), HasSubstr("exposed communication"));
  for (const StoryForm form : {StoryForm::kTrace, StoryForm::kTableJson, StoryForm::kWhyJson}) {
    EXPECT_FALSE(nlohmann::json::parse(Ask(7, form).value()).empty());
  }
  const auto other = Ask(7, StoryForm::kTable, {10, 2});
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().message(),
            "steps 11 to 12 of job 7 are not recorded; there are records of 4");
  // The page's files say the same as the answers, and the metrics as the files.
  const auto file = [&](const char* name) { return ReadFile(dir_.File(name)).value(); };
  EXPECT_EQ(file(kTimelineFile), Ask(7, StoryForm::kTrace).value());
  EXPECT_THAT(file(kMeasuredPicture), HasSubstr("step 4 as measured"));
  const auto parts = nlohmann::json::parse(file(kPartsFile));
  EXPECT_EQ(parts.at("measured").at("compute_s"), figures_.measured_parts.at("compute"));
  EXPECT_NEAR(figures_.measured_s / figures_.forecast_s, 2, 0.1) << "links are as fast as ever";
}

TEST_F(RunStoriesTest, WhatWasRecordedBeforeAPauseIsToldBehindIt) {
  Start("");
  PlanJob(7);
  Record(7, 3, plan_->layout.ToString());
  Record(7, 4, plan_->layout.ToString());
  PlanJob(7);
  PlanJob(7);
  EXPECT_THAT(Ask(7, StoryForm::kTable).value(), HasSubstr("step")) << "until there is more";
  Record(7, 20, plan_->layout.ToString());
  EXPECT_THAT(Ask(7, StoryForm::kTable).value(), HasSubstr("step 21, mean"));
  EXPECT_THAT(Ask(7, StoryForm::kTable, {3, 1}).value(), HasSubstr("step 4, mean"));
  EXPECT_THAT(Ask(7, StoryForm::kTable, {8, 1}).error().message(), HasSubstr("records of 4-5,21"));
  // Of the run before the last one nothing is kept.
  PlanJob(7);
  EXPECT_THAT(Ask(7, StoryForm::kTable, {3, 1}).error().message(),
              HasSubstr("there are records of 21"));
  EXPECT_THAT(Ask(7, StoryForm::kTable, {20, 1}).value(), HasSubstr("step 21, mean"));
}

TEST_F(RunStoriesTest, AJobOnFewerDevicesIsToldByThePlanThatItRunsBy) {
  Start("");
  PlanJob(7);
  const auto wide = plan_;
  stories_->OnRun(JobId(7), wide->layout.ToString());
  Record(7, 3, wide->layout.ToString());
  PlanJob(7, "1", true);
  const auto narrow = plan_;
  const std::string layout = narrow->layout.ToString();
  ASSERT_NE(layout, wide->layout.ToString());
  EXPECT_THAT(Ask(7, StoryForm::kWhy).value(), HasSubstr("step 4:")) << "it does not run by that";
  EXPECT_TRUE(taken_up_.empty());

  // A worker is lost.
  stories_->OnRun(JobId(7), layout);
  EXPECT_EQ(Ask(7, StoryForm::kWhy).error().code(), StatusCode::kNotFound) << "nothing yet";
  EXPECT_THAT(taken_up_, ElementsAre(layout));
  EXPECT_FALSE(FileExists(dir_.File(kMeasuredPicture))) << "it was of the plan before";
  Record(7, 9, layout);
  const std::string why = Ask(7, StoryForm::kWhy).value();
  EXPECT_THAT(why, HasSubstr("step 10:"));
  EXPECT_THAT(why, HasSubstr("by the plan " + layout));
  EXPECT_THAT(ReadFile(dir_.File(kMeasuredPicture)).value(), HasSubstr("step 10 as measured"));
  EXPECT_THAT(Ask(7, StoryForm::kTable, {3, 1}).value(), HasSubstr("step 4, mean"))
      << "who asks for steps of the run before gets them";

  EXPECT_EQ(ReadFile(dir_.File("plan.txt")).value(), planner::FormatPlan(*narrow, false));

  // Its host is back.
  stories_->OnRun(JobId(7), wide->layout.ToString());
  EXPECT_THAT(Ask(7, StoryForm::kWhy).value(), HasSubstr("step 4:"));
  EXPECT_THAT(taken_up_, ElementsAre(layout, wide->layout.ToString()));
  EXPECT_EQ(ReadFile(dir_.File("plan.txt")).value(), planner::FormatPlan(*wide, false));
  stories_->OnRun(JobId(7), "a layout of which nothing is known");
  EXPECT_THAT(Ask(7, StoryForm::kWhy).error().message(), HasSubstr("no longer holds"));
}

// As where a launch has one step.
TEST_F(RunStoriesTest, StepsOfSeveralLaunchesAreToldTogether) {
  Start("");
  PlanJob(7);
  const std::string layout = plan_->layout.ToString();
  for (const int64_t step : {1, 2, 3}) Record(7, step, layout);
  EXPECT_THAT(Ask(7, StoryForm::kTable).value(), HasSubstr("steps 2 to 4, mean"));
  for (const int64_t step : {1001, 1002}) Record(7, step, layout);
  EXPECT_THAT(Ask(7, StoryForm::kTable).value(), HasSubstr("steps 1002 to 1003, mean"));
}

TEST_F(RunStoriesTest, LaterPlansGoByWhatStepsHaveShownAlsoAfterARestart) {
  const std::string path = dir_.File("factors.txt");
  Start(path);
  PlanJob(7);
  Record(7, 3, plan_->layout.ToString());
  (void)Ask(7, StoryForm::kTable);
  const double before = figures_.measured_s / figures_.forecast_s;
  for (int life = 0; life < 2; ++life) {
    PlanJob(8 + life);
    EXPECT_THAT(plan_->notes.back(), HasSubstr("profile: measured on"));
    Record(8 + life, 3, plan_->layout.ToString());
    (void)Ask(8 + life, StoryForm::kTable);
    const double now = figures_.measured_s / figures_.forecast_s;
    EXPECT_NEAR(now, 1, 0.05) << "it was " << before;
    Start(path);
  }
  ASSERT_TRUE(WriteFileAtomic(path, "nonsense\n").ok());
  Start(path);
  EXPECT_EQ(stories_->Measured(mesh::DefaultDeviceProfile()), mesh::DefaultDeviceProfile());
}

// Somebody asks what to try, and the search for it stands still until the test says that the asker
// has gone.
class HeldAdvice : public RunStoriesTest {
 protected:
  ~HeldAdvice() override {
    LetGo();
    stories_->Stop();  // it looks at what is here
  }

  void Hold() {
    Start("", 60'000);
    PlanJob(7);
    Record(7, 3, plan_->layout.ToString());
    AskWhy([this, looks = std::make_shared<std::atomic<int>>(0)] {
      // First before it looks for the steps, then before it searches.
      if (looks->fetch_add(1) == 0) return false;
      if (looks->load() == 2) searching_.set_value();
      may_go_.wait();
      return true;
    });
    ASSERT_EQ(searching_.get_future().wait_for(kPatience), std::future_status::ready);
  }
  void AskWhy(std::function<bool()> gone = nullptr) {
    auto answer = std::make_shared<std::promise<Result<std::string>>>();
    answers_.push_back(answer->get_future());
    stories_->Ask({JobId(7), {}, StoryForm::kWhy, std::move(gone)},
                  [answer](Result<std::string> text) { answer->set_value(std::move(text)); });
  }
  void LetGo() {
    if (!std::exchange(has_let_go_, true)) let_go_.set_value();
  }
  Status AnswerTo(size_t question) {
    if (answers_[question].wait_for(kPatience) != std::future_status::ready) {
      return DeadlineExceeded("no answer");
    }
    return internal::ToStatus(answers_[question].get());
  }

  static constexpr std::chrono::seconds kPatience{60};
  std::promise<void> searching_;
  std::promise<void> let_go_;
  const std::shared_future<void> may_go_{let_go_.get_future()};
  bool has_let_go_ = false;
  std::atomic<bool> others_gone_ = false;
  std::vector<std::future<Result<std::string>>> answers_;
};

TEST_F(HeldAdvice, KeepsNeitherRecordsNorOtherQuestionsWaiting) {
  Hold();
  Record(7, 4, plan_->layout.ToString());
  std::promise<Result<std::string>> table;
  stories_->Ask({JobId(7), {4, 1}, StoryForm::kTable},
                [&](Result<std::string> text) { table.set_value(std::move(text)); });
  auto told = table.get_future();
  const bool came = told.wait_for(kPatience) == std::future_status::ready;
  LetGo();
  EXPECT_TRUE(came);
  EXPECT_THAT(told.get().value_or(""), HasSubstr("step 5"));
  EXPECT_EQ(AnswerTo(0).code(), StatusCode::kCancelled);
}

TEST_F(HeldAdvice, FewWaitAndWhoHasGoneIsDropped) {
  Hold();
  for (int i = 1; i < StoryOptions::kMostWaiting; ++i)
    AskWhy([this] { return others_gone_.load(); });
  AskWhy();
  const Status last = AnswerTo(StoryOptions::kMostWaiting);
  EXPECT_EQ(last.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(last.message(), HasSubstr("16 questions about steps of jobs are waiting already"));
  others_gone_ = true;
  LetGo();
  for (int i = 0; i < StoryOptions::kMostWaiting; ++i) {
    EXPECT_EQ(AnswerTo(static_cast<size_t>(i)).code(), StatusCode::kCancelled);
  }
  EXPECT_TRUE(Ask(7, StoryForm::kTable).has_value()) << "their places are free again";
}

TEST_F(HeldAdvice, AtTheEndNothingMoreIsSearched) {
  Hold();
  AskWhy();
  std::thread end([this] { stories_->Stop(); });
  const Deadline patience = Deadline::After(60'000);
  while (Ask(7, StoryForm::kTable).has_value() && !patience.expired()) std::this_thread::yield();
  LetGo();
  EXPECT_EQ(AnswerTo(0).code(), StatusCode::kUnavailable);
  EXPECT_EQ(AnswerTo(1).code(), StatusCode::kUnavailable);
  end.join();
}

TEST_F(RunStoriesTest, APlanIsSearchedAroundOnce) {
  Start("", 60'000);
  PlanJob(7);
  Record(7, 3, plan_->layout.ToString());
  std::array<int, 2> looks{};
  std::array<std::string, 2> texts;
  for (size_t i = 0; i < 2; ++i) {
    std::promise<Result<std::string>> answer;
    stories_->Ask({JobId(7), {}, StoryForm::kWhy, [&, i] { return ++looks.at(i) < 0; }},
                  [&](Result<std::string> text) { answer.set_value(std::move(text)); });
    texts.at(i) = answer.get_future().get().value();
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(looks[1], 2) << "before the steps were looked for and before the search, not in it";
  EXPECT_GT(looks[0], 2);
}

TEST_F(RunStoriesTest, AskedAfterTheEndItAnswers) {
  Start("");
  stories_->Stop();
  EXPECT_EQ(Ask(7, StoryForm::kTable).error().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace meshwright::web
