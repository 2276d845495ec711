// What a controller keeps on disk, and reads again after its death.
#include "base/file.h"
#include "controller/journal.h"
#include "controller/run_record.h"
#include "security/issue_book.h"
#include "security/join_token.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/target.h"

namespace meshwright::fuzz {
namespace {

Seeds SeedsOfRuns() {
  controller::RunRecord run;
  run.number = 3;
  run.gen = MeshGeneration(41);
  run.kind = "cpu";
  run.ranks = {{"w1", 0}, {"w0", 1}};
  run.start = {{"root", "gpt/7/step-5"}, 5, {"head.*"}};
  run.plan.layout = "data=2";
  run.plan.degrees.data = 2;
  run.plan.programs = {"init", "step"};
  run.plan.devices.resize(2);
  run.plan.devices[0].programs = {{std::string(64, 'a'), 10, "init/0"}};
  run.plan.devices[0].state_slots = {"w", "m"};
  run.plan.devices[1].input_rows = {{{1, 2}, {4, 8}}};
  Seeds seeds = {controller::FormatRunRecord(run)};
  run.larger = controller::SeatedPlan{run.plan, {{"w1", 0}, {"w2", 3}}};
  seeds.push_back(controller::FormatRunRecord(run));
  return seeds;
}

void RunRecord(std::string_view input) {
  const auto read = [](std::string_view text) {
    return controller::ParseRunRecord(std::string(text));
  };
  ExpectStable(input, read, controller::FormatRunRecord);
}

Seeds SeedsOfJournal() {
  proto::StepMetrics step;
  step.step = 7;
  step.loss = 1.5;
  step.tokens = 4096;
  step.seconds = 0.05;
  std::string text = controller::FormatStep(step);
  step.step = 8;
  text += controller::FormatStep(step);
  return {text, text + controller::FormatLine("began", 1'700'000'000'000)};
}

// Both files of a job's folder say the same nonsense.
void RunJournal(std::string_view input) {
  static const TempDir folder = Sure(TempDir::Make("mw-fuzz"));
  for (const char* name : {"metrics.jsonl", "job.log"}) {
    MW_CHECK(WriteFileAtomic(folder.File(name), input).ok());
  }
  const auto sizes = controller::MeasureJournal(folder.path());
  const controller::Journal journal = controller::LoadJournal(folder.path(), sizes);
  int64_t from = 0;
  for (const proto::StepMetrics& step : journal.StepsFrom(from, 100)) {
    (void)controller::FormatStep(step);
  }
  MW_CHECK(controller::MendJournal(folder.path()) >= 0);
}

constexpr int64_t kNowS = 1'700'000'000;

Seeds SeedsOfIssues() {
  const TempDir folder = Sure(TempDir::Make("mw-fuzz"));
  const auto book = Sure(security::IssueBook::Open(folder.File("issued.jsonl"), kNowS));
  const security::JoinToken once{"", kNowS + 60, "", true, false, "01"};
  MW_CHECK(book->Admit(once, {"w0", std::string(64, 'a'), kNowS + 100}, kNowS).ok());
  MW_CHECK(book->Renew({"w1", std::string(64, 'b'), kNowS + 200}, kNowS).ok());
  return {Sure(ReadFile(folder.File("issued.jsonl")))};
}

void RunIssues(std::string_view input) {
  static const TempDir folder = Sure(TempDir::Make("mw-fuzz"));
  const std::string path = folder.File("issued.jsonl");
  MW_CHECK(WriteFileAtomic(path, input).ok());
  const auto book = security::IssueBook::Open(path, kNowS);
  if (!book.has_value()) return;
  const security::JoinToken any{"", kNowS + 60, "", false, false, "02"};
  (void)(*book)->Admit(any, {"w0", "key", kNowS + 100}, kNowS);
  MW_CHECK(security::IssueBook::Open(path, kNowS).has_value()) << "it does not read itself";
}

}  // namespace

std::vector<Target> RecordTargets() {
  return {
      {"run-record", "controller::ParseRunRecord", SeedsOfRuns, RunRecord},
      {"journal", "controller::LoadJournal, MendJournal", SeedsOfJournal, RunJournal, 400},
      {"issue-book", "security::IssueBook::Open", SeedsOfIssues, RunIssues, 400},
  };
}

}  // namespace meshwright::fuzz
