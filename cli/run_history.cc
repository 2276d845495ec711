#include "cli/run_history.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"

namespace meshwright::cli {
namespace {

// For steps that are done and not told yet: one that waits for its validation.
constexpr int64_t kTellMs = 10'000;

}  // namespace

Result<client::JobInfo> ReadSteps(client::Client& client, int64_t job, bool follow,
                                  int64_t timeout_s,
                                  const std::function<Status(const client::JobUpdate&)>& take) {
  MW_ASSIGN_OR_RETURN(const client::JobInfo now, client.Get(job));
  const bool ended = client::IsTerminal(now.state);
  if (!follow && !ended && now.steps_done == 0) return now;
  Status status;
  const auto on_update = [&](const client::JobUpdate& update) {
    status = take(update);
    if (!status.ok()) return false;
    return follow || ended || update.steps.empty() || update.steps.back().step + 1 < now.steps_done;
  };
  const int64_t timeout_ms = follow ? timeout_s * 1000 : ended ? 0 : kTellMs;
  MW_ASSIGN_OR_RETURN(client::JobInfo last, client.Watch(job, on_update, timeout_ms));
  MW_TRY(status);
  return last;
}

Result<ir::JobRequest> RequestOf(client::Client& client, int64_t job) {
  auto description = client.Describe(job);
  if (description.has_value()) return std::move(description->job);
  if (description.error().code() == StatusCode::kNotFound) return ir::JobRequest{};
  return Fail(description.error());
}

Status LiveRecords::Prepare() const { return folder_.empty() ? OkStatus() : MakeDirs(folder_); }

void LiveRecords::OnUpdate(const client::JobUpdate& update, const ir::JobRequest& request) {
  if (folder_.empty()) return;
  const Status status = Write(update, request);
  if (status.ok()) return;
  fmt::print(stderr,
             "note: the records below {} end here: {}; `meshwright records {} --to FOLDER` writes "
             "all of them\n",
             folder_, status.message(), update.info.id);
  folder_.clear();
}

Status LiveRecords::Write(const client::JobUpdate& update, const ir::JobRequest& request) {
  if (recorder_ == nullptr) {
    if (update.steps.empty()) return OkStatus();
    MW_ASSIGN_OR_RETURN(recorder_,
                        report::RunRecorder::Open(
                            folder_, report::FactsOf(update.info, request),
                            {report::RecordFormat::kTensorBoard, report::RecordFormat::kJsonl}));
  } else if (!update.steps.empty()) {
    recorder_->SetPlanned(update.info);
  }
  return recorder_->Add(update.steps);
}

}  // namespace meshwright::cli
