// records and compare: what runs have done, for the tools that people compare runs with.
#include <fmt/format.h>

#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/otlp_post.h"
#include "cli/output.h"
#include "cli/run_history.h"
#include "report/otlp_spans.h"
#include "report/run_compare.h"

namespace meshwright::cli {
namespace {

using client::Client;
using client::JobInfo;
using report::RecordFormat;

RecordFormat RecordFormatOf(const std::string& name) {
  if (name == "jsonl") return RecordFormat::kJsonl;
  if (name == "otlp") return RecordFormat::kOtlp;
  return name == "csv" ? RecordFormat::kCsv : RecordFormat::kTensorBoard;
}

Status NoStepYet(const JobInfo& info) {
  return FailedPrecondition(
      fmt::format("job {} is {} and has done no step: there is nothing to write{}", info.id,
                  client::JobStateName(info.state),
                  client::IsTerminal(info.state) ? "" : "; --follow waits for its steps"));
}

std::string SentSoFar(int64_t requests) {
  return fmt::format("{} {} of spans taken before (sending them again does no harm)", requests,
                     requests == 1 ? "request" : "requests");
}

Result<int> WriteRecords(Client& client, const RecordsArgs& args, bool json) {
  std::vector<RecordFormat> formats;
  for (const std::string& name : args.formats) formats.push_back(RecordFormatOf(name));
  ir::JobRequest request;
  std::unique_ptr<report::RunRecorder> recorder;
  const auto take = [&](const client::JobUpdate& update) -> Status {
    if (update.steps.empty()) return OkStatus();
    if (recorder == nullptr) {
      MW_ASSIGN_OR_RETURN(request, RequestOf(client, args.id));
      MW_ASSIGN_OR_RETURN(recorder, report::RunRecorder::Open(
                                        args.to, report::FactsOf(update.info, request), formats));
    } else {
      recorder->SetPlanned(update.info);
    }
    return recorder->Add(update.steps);
  };
  MW_ASSIGN_OR_RETURN(const JobInfo info,
                      ReadSteps(client, args.id, args.follow, args.timeout_s, take));
  if (recorder == nullptr) {
    return Fail(NoStepYet(info));
  }
  MW_TRY(recorder->Finish());
  if (json) {
    fmt::print("{{\"id\":{},\"folder\":\"{}\",\"steps\":{}}}\n", args.id,
               JsonEscape(recorder->path()), recorder->steps());
    return kExitOk;
  }
  fmt::print("{} steps of job {} in {}\n", FormatCount(recorder->steps()), args.id,
             recorder->path());
  for (const RecordFormat format : formats) {
    if (format != RecordFormat::kTensorBoard) continue;
    fmt::print("  look     tensorboard --logdir {}\n", args.to);
  }
  return kExitOk;
}

// A collector has so long for each request; the default of OpenTelemetry's own exporters.
constexpr int64_t kPostMs = 10'000;

// To a collector instead of a file of such requests.
Result<int> SendSpans(Client& client, const RecordsArgs& args, bool json) {
  MW_ASSIGN_OR_RETURN(const OtlpEndpoint to, ParseOtlpEndpoint(args.to));
  std::vector<client::StepMetrics> steps;
  const auto take = [&](const client::JobUpdate& update) {
    steps.insert(steps.end(), update.steps.begin(), update.steps.end());
    return OkStatus();
  };
  MW_ASSIGN_OR_RETURN(const JobInfo info,
                      ReadSteps(client, args.id, args.follow, args.timeout_s, take));
  if (steps.empty()) return Fail(NoStepYet(info));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest request, RequestOf(client, args.id));
  const std::string lines = report::OtlpOf(report::FactsOf(info, request), steps);
  int64_t sent = 0;
  for (const std::string& line : Split(lines, '\n')) {
    if (line.empty()) continue;
    const Status posted = PostOtlp(to, line, kPostMs);
    if (!posted.ok()) return Fail(sent == 0 ? posted : posted.WithContext(SentSoFar(sent)));
    ++sent;
  }
  if (json) {
    fmt::print("{{\"id\":{},\"url\":\"{}\",\"steps\":{},\"requests\":{}}}\n", args.id,
               JsonEscape(to.Url()), steps.size(), sent);
    return kExitOk;
  }
  fmt::print("{} steps of job {} sent to {}\n", FormatCount(static_cast<int64_t>(steps.size())),
             args.id, to.Url());
  return kExitOk;
}

Result<report::ComparedRun> RunOfJob(Client& client, int64_t id) {
  report::ComparedRun run;
  const auto take = [&](const client::JobUpdate& update) {
    run.steps.insert(run.steps.end(), update.steps.begin(), update.steps.end());
    return OkStatus();
  };
  MW_ASSIGN_OR_RETURN(const JobInfo info, ReadSteps(client, id, false, 0, take));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest request, RequestOf(client, id));
  if (run.steps.empty()) {
    return Fail(
        FailedPrecondition(fmt::format("job {} is {} and has done no step: there is nothing to "
                                       "compare",
                                       id, client::JobStateName(info.state))));
  }
  run.label = OneLine(fmt::format("job {} {}", id, info.name));
  run.state = client::JobStateName(info.state);
  run.facts = report::FactsOf(info, request);
  return run;
}

Result<report::ComparedRun> RunOfFile(const std::string& place) {
  std::error_code error;
  std::string file = place;
  if (std::filesystem::is_directory(place, error)) {
    file = place + "/metrics.jsonl";
    if (!FileExists(file) && FileExists(place + "/metrics.csv")) file = place + "/metrics.csv";
  }
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  report::ComparedRun run;
  MW_ASSIGN_OR_RETURN(run.steps, report::ParseSteps(text, file));
  const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
  run.label = OneLine(folder.filename().string());
  run.facts.name = run.label;
  // What `records` and the controller put beside it.
  run.facts.config_text = ReadFile((folder / "config.resolved.toml").string()).value_or("");
  return run;
}

Result<int> CompareRuns(const CompareArgs& args, const GlobalArgs& global) {
  std::unique_ptr<Client> client;  // files need none
  std::vector<report::ComparedRun> runs;
  for (const std::string& name : args.runs) {
    const std::optional<int64_t> id = ParseInt(name);
    if (!id) {
      MW_ASSIGN_OR_RETURN(report::ComparedRun run, RunOfFile(name));
      runs.push_back(std::move(run));
      continue;
    }
    if (client == nullptr) {
      MW_ASSIGN_OR_RETURN(client, Connect(global));
    }
    MW_ASSIGN_OR_RETURN(report::ComparedRun run, RunOfJob(*client, *id));
    runs.push_back(std::move(run));
  }
  if (!args.svg.empty()) MW_TRY(WriteFileAtomic(args.svg, report::DrawCurves(runs)));
  fmt::print("{}", global.json ? report::ComparisonJson(runs) : report::FormatComparison(runs));
  return kExitOk;
}

}  // namespace

int RunRecords(const RecordsArgs& args, const GlobalArgs& global) {
  auto connection = Connect(global);
  if (!connection) return ReportError(connection.error());
  const Result<int> code = IsUrl(args.to) ? SendSpans(**connection, args, global.json)
                                          : WriteRecords(**connection, args, global.json);
  return code ? *code : ReportError(code.error());
}

int RunCompare(const CompareArgs& args, const GlobalArgs& global) {
  const Result<int> code = CompareRuns(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
