#include "controller/report_values.h"

#include <set>

namespace meshwright::controller {

double ValueOr(const std::map<std::string, double>& values, const std::string& name,
               double fallback) {
  const auto it = values.find(name);
  return it == values.end() ? fallback : it->second;
}

proto::StepMetrics MetricsOf(const proto::StepReport& report) {
  static const std::set<std::string> kOwnFields = {"loss", "grad_norm", "lr", "tokens"};
  proto::StepMetrics metrics;
  metrics.step = report.step;
  metrics.loss = ValueOr(report.values, "loss", kNoNumber);
  metrics.grad_norm = ValueOr(report.values, "grad_norm", kNoNumber);
  metrics.lr = ValueOr(report.values, "lr", kNoNumber);
  metrics.tokens = ValueOr(report.values, "tokens", 0);
  metrics.seconds = report.seconds;
  metrics.validation_loss = kNoNumber;
  for (const auto& [name, value] : report.values) {
    if (!kOwnFields.contains(name)) metrics.values[name] = value;
  }
  return metrics;
}

}  // namespace meshwright::controller
