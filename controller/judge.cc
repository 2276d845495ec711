#include "controller/judge.h"

#include <cmath>

#include "base/check.h"
#include "controller/report_values.h"

namespace meshwright::controller {
namespace {

double ValueOf(const proto::StepMetrics& metrics, const ir::Metric& metric) {
  if (metric.name == ir::kValidationLoss) return metrics.validation_loss;
  return ValueOr(metrics.values, metric.name, kNoNumber);
}

// A number that is none is never better.
bool Better(const ir::Metric& metric, double value, double than, int64_t than_step) {
  return std::isfinite(value) && (than_step < 0 || metric.Better(value, than));
}

}  // namespace

std::optional<Judge> Judge::Of(const ir::JobRequest& job) {
  Judge judge;
  if (job.checkpoint.enable && !job.checkpoint.keep_best.empty()) {
    judge.best_ = ir::ParseMetric(job.checkpoint.keep_best);
  }
  if (job.train.early_stop_patience > 0) {
    judge.stop_ = ir::ParseMetric(job.train.early_stop_metric);
    judge.patience_ = job.train.early_stop_patience;
  }
  if (!judge.best_ && !judge.stop_) return std::nullopt;
  return judge;
}

Verdict Judge::Of(const proto::StepMetrics& metrics) {
  MW_CHECK(metrics.step >= 0) << "step " << metrics.step << " is judged";
  MW_CHECK(best_ || stop_) << "nothing is asked of a validation";
  MW_CHECK(standing_.worse >= 0) << standing_.worse << " validations were no better";
  if (metrics.step <= standing_.last_step) {
    const bool last = metrics.step == standing_.last_step;
    return {metrics.step == standing_.best_step, last && stop_ && standing_.worse >= patience_};
  }
  standing_.last_step = metrics.step;
  Verdict verdict;
  if (best_) {
    const double value = ValueOf(metrics, *best_);
    verdict.best = Better(*best_, value, standing_.best, standing_.best_step);
    if (verdict.best) {
      standing_.best = value;
      standing_.best_step = metrics.step;
    }
  }
  if (stop_) {
    const double value = ValueOf(metrics, *stop_);
    ++standing_.worse;
    if (Better(*stop_, value, standing_.least, standing_.least_step)) {
      standing_.least = value;
      standing_.least_step = metrics.step;
      standing_.worse = 0;
    }
    verdict.ends = standing_.worse >= patience_;
  }
  return verdict;
}

}  // namespace meshwright::controller
