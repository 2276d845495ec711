#include "report/plan_what_if.h"

#include <fmt/format.h>

#include "base/table.h"
#include "base/text.h"

namespace meshwright::report {
namespace {

std::string RelativeChange(double before, double after) {
  return before > 0 ? fmt::format("{:+.1f} %", 100 * (after - before) / before) : "";
}

}  // namespace

std::string FormatWhatIf(const std::string& name, const PlanFigures& before,
                         const PlanFigures& after, const std::vector<std::string>& notes) {
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  std::string text = FormatTable(
      {"WHAT IF", "BEFORE", "AFTER", "CHANGE"},
      {{"step", FormatDuration(before.step_s), FormatDuration(after.step_s),
        RelativeChange(before.step_s, after.step_s)},
       {"memory", FormatBytes(before.memory_bytes), FormatBytes(after.memory_bytes),
        RelativeChange(static_cast<double>(before.memory_bytes),
                       static_cast<double>(after.memory_bytes))},
       {"MFU", percent(before.model_flops_utilization), percent(after.model_flops_utilization),
        RelativeChange(before.model_flops_utilization, after.model_flops_utilization)}});
  text += fmt::format("after      {}\n", name);
  text += before.layout == after.layout
              ? fmt::format("layout     {}\n", after.layout)
              : fmt::format("layout     {}\n        -> {}\n", before.layout, after.layout);
  for (const std::string& note : notes) text += fmt::format("note after: {}\n", note);
  return text;
}

}  // namespace meshwright::report
