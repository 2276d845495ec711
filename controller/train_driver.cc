#include "controller/train_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "controller/report_values.h"

namespace meshwright::controller {
DriverNews TrainDriver::On(const PlannedLaunch& launch,
                           const std::vector<proto::StepReport>& reports) {
  if (!resumed_.empty()) {
    const bool counts = resumed_.front();
    resumed_.pop_front();
    if (!counts) return {};
  }
  if (launch.kind != LaunchKind::kProgram) return {};
  if (launch.program == ir::kStepProgram) return OnSteps(reports);
  if (launch.program == ir::kEvalProgram) return OnValidation(launch, reports);
  return {};
}

void TrainDriver::Hold(proto::StepMetrics metrics) {
  MW_CHECK(schedule_.ValidatedAfter(metrics.step))
      << "step " << metrics.step << " waits for nothing";
  held_ = std::move(metrics);
  schedule_.ValidateStart();
}

// From the launch of steps on in which the first one is that nobody was told of, or a later one
// where all were told: a step that waits for its validation is none that was told.
Status TrainDriver::Resume(const std::vector<ResumedLaunch>& launches, bool from_first) {
  std::optional<size_t> begin;
  if (from_first) begin = 0;
  for (size_t i = 0; i < launches.size(); ++i) {
    const auto& [launch, asked] = launches[i];
    if (asked || launch.program != ir::kStepProgram || launch.first_step > told_steps_) continue;
    begin = i;
  }
  if (!begin) {
    return Aborted(fmt::format("no worker knows any more what ran after step {}", told_steps_));
  }
  const bool anew = from_first && *begin == 0;
  if (!anew) schedule_.StartAt(launches[*begin].launch.first_step);
  for (size_t i = 0; i < launches.size(); ++i) {
    const bool counts = i >= *begin && !launches[i].asked;
    resumed_.push_back(counts);
    // A save may still be under way behind later steps.
    const bool saves = launches[i].launch.kind == LaunchKind::kSave;
    if (counts || saves) MW_TRY(schedule_.Replay(launches[i].launch));
  }
  return OkStatus();
}

DriverNews TrainDriver::Abandon() {
  DriverNews news;
  if (held_) Tell(*std::exchange(held_, std::nullopt), news);
  return news;
}

void TrainDriver::Tell(proto::StepMetrics metrics, DriverNews& news) const {
  if (metrics.step >= told_steps_) news.steps.push_back(std::move(metrics));
}

DriverNews TrainDriver::OnSteps(const std::vector<proto::StepReport>& reports) {
  MW_CHECK(!reports.empty()) << "a launch of no steps";
  DriverNews news;
  std::vector<proto::StepMetrics> steps;
  for (const proto::StepReport& report : reports) {
    const proto::StepMetrics& metrics = steps.emplace_back(MetricsOf(report));
    if (std::isfinite(metrics.loss)) {
      news.loss = metrics.loss;
      continue;
    }
    // The steps behind this one trained on broken weights.
    news.status = Aborted(fmt::format("the loss is {} at step {}; lower optimizer.lr, set "
                                      "training.max_norm or look at the data; no weights were "
                                      "written",
                                      metrics.loss, metrics.step + 1))
                      .WithBlame(Blame::kUser);
    break;
  }
  news.steps_done = steps.back().step + 1;
  if (news.status.ok() && schedule_.ValidatedAfter(steps.back().step)) {
    MW_CHECK(!held_) << "step " << held_->step << " was not validated";
    held_ = std::move(steps.back());
    steps.pop_back();
  }
  for (proto::StepMetrics& metrics : steps) Tell(std::move(metrics), news);
  return news;
}

void TrainDriver::AddBatch(int64_t batch, const proto::StepReport& report) {
  const double loss = ValueOr(report.values, "loss_sum", kNoNumber);
  const double tokens = ValueOr(report.values, "count", kNoNumber);
  std::vector<Sum*> sums = {&validation_.all};
  if (!sets_.empty()) {
    const auto set = static_cast<size_t>(batch / std::max<int64_t>(1, set_batches_));
    MW_CHECK(set < sets_.size()) << "batch " << batch << " of " << sets_.size() << " sets";
    sums.push_back(&validation_.sets[sets_[set]]);
  }
  for (Sum* sum : sums) {
    sum->loss += loss;
    sum->tokens += tokens;
  }
  for (const auto& [name, value] : report.values) {
    if (name != "loss_sum" && name != "count") validation_.values[name] += value;
  }
  validation_.seconds += report.seconds;
  ++validation_.batches;
}

void TrainDriver::NoteValidation(const ValidationSum& sum, proto::StepMetrics& metrics) const {
  metrics.validation_loss = sum.all.loss / sum.all.tokens;
  for (const auto& [name, set] : sum.sets) {
    metrics.values[ir::kValidationPrefix + name] = set.loss / set.tokens;
  }
  for (const auto& [name, value] : sum.values) {
    const double of = means_.contains(name) ? static_cast<double>(sum.batches) : 1;
    metrics.values[ir::kValidationPrefix + name] = value / of;
  }
}

DriverNews TrainDriver::OnValidation(const PlannedLaunch& launch,
                                     const std::vector<proto::StepReport>& reports) {
  DriverNews news;
  if (!held_) {
    // Of a step that was judged before.
    if (judge_ && schedule_.EndsValidation(launch)) schedule_.Judged(false, false);
    return news;
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    AddBatch(launch.first_step + static_cast<int64_t>(i), reports[i]);
  }
  if (!schedule_.EndsValidation(launch)) return news;
  const ValidationSum sum = std::exchange(validation_, {});
  proto::StepMetrics metrics = *std::exchange(held_, std::nullopt);
  NoteValidation(sum, metrics);
  Verdict verdict;
  if (judge_) {
    verdict = judge_->Of(metrics);
    schedule_.Judged(verdict.best, verdict.ends);
  }
  if (metrics.step < told_steps_) return news;
  news.log_lines.push_back(fmt::format(
      "step {}: loss {:.4f}, validation loss {:.4f} ({:.0f} tokens in {:.2f} s)", metrics.step + 1,
      metrics.loss, metrics.validation_loss, sum.all.tokens, sum.seconds));
  for (const auto& [name, set] : sum.sets) {
    news.log_lines.back() += fmt::format(", {} {:.4f}", name, set.loss / set.tokens);
  }
  if (verdict.ends) {
    news.log_lines.push_back(fmt::format(
        "step {}: training ends early: {} validations in a row were no better than step {}",
        metrics.step + 1, judge_->standing().worse, judge_->standing().least_step + 1));
  }
  news.steps.push_back(std::move(metrics));
  return news;
}

}  // namespace meshwright::controller
