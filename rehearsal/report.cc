// What a rehearsal came to, for people and as JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/table.h"
#include "base/text.h"
#include "rehearsal/rehearse.h"

namespace meshwright::rehearsal {
namespace {

using Json = nlohmann::ordered_json;

// "[0:4,2:4]": from each dim's first element to behind its last.
std::string BoxText(const ir::Box& box) {
  std::vector<std::string> dims;
  for (size_t d = 0; d < box.size.size(); ++d) {
    dims.push_back(fmt::format("{}:{}", box.offset[d], box.offset[d] + box.size[d]));
  }
  return "[" + Join(dims, ",") + "]";
}

std::string ShareText(double share) { return share == 0 ? "0" : fmt::format("{:.1e}", share); }

std::string DifferenceText(const std::string& kind, const Difference& difference) {
  if (difference.index.size() != difference.box.size.size() || difference.box.size.empty()) {
    if (!std::isfinite(difference.share)) {
      return fmt::format("{} of {}: the two runs do not have the same tensor\n", kind,
                         difference.tensor);
    }
  }
  return fmt::format(
      "{} of {}: rank {}, which holds {}, has {:.10g} at [{}]; one device has {:.10g} ({} of the "
      "largest entry)\n",
      kind, difference.tensor, difference.rank, BoxText(difference.box), difference.actual,
      fmt::join(difference.index, ","), difference.expected, ShareText(difference.share));
}

std::vector<std::string> RowOf(const Check& check) {
  const std::string verdict = check.equal ? "equal" : "DIFFERS";
  MW_CHECK(check.expected.has_value() == check.actual.has_value()) << check.name;
  if (check.expected) {
    return {check.name, fmt::format("{:.10g}", *check.expected),
            fmt::format("{:.10g}", *check.actual), ShareText(check.largest), verdict};
  }
  const std::string count = check.equal
                                ? fmt::format("{} tensors", check.tensors)
                                : fmt::format("{} of {} tensors", check.differing, check.tensors);
  return {check.name, "", count, ShareText(check.largest), verdict};
}

// The first thing that differs, and the first tensors that do: gradients before the weights that
// they make. JSON has all of them.
std::string FirstDifferences(const std::vector<Check>& checks) {
  const auto differs = [](const Check& check) { return !check.equal; };
  const auto first = std::find_if(checks.begin(), checks.end(), differs);
  if (first == checks.end()) return "";
  std::string text = fmt::format("first difference: {}\n", first->name);
  const auto tensors =
      std::find_if(first, checks.end(), [](const Check& check) { return !check.first.empty(); });
  if (tensors == checks.end()) return text;
  for (const Difference& each : tensors->first) {
    text += "  " + DifferenceText(tensors->name, each);
  }
  return text;
}

std::string SizesText(const Rehearsal& rehearsal) {
  std::vector<std::string> sizes;
  for (const SmallSize& size : rehearsal.sizes) {
    sizes.push_back(fmt::format("{} {} -> {}", size.name, size.of_job, size.small));
  }
  return sizes.empty() ? "everything as in the job" : Join(sizes, ", ");
}

// "rehearsed", a line for each.
std::string WaysText(const std::vector<RehearsedWay>& ways) {
  std::string text;
  for (const RehearsedWay& way : ways) {
    text += fmt::format("{:<11}{} ({}): {}\n", text.empty() ? "rehearsed" : "", way.key, way.of_job,
                        way.rehearsed ? "yes" : "no, " + way.why_not);
  }
  return text;
}

Json BoxObject(const ir::Box& box) { return {{"offset", box.offset}, {"size", box.size}}; }

// What is not finite has no number in JSON.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json CheckObject(const Check& check) {
  Json object = {{"name", check.name}, {"equal", check.equal}};
  if (check.expected) {
    object["expected"] = Number(*check.expected);
    object["actual"] = Number(*check.actual);
  } else {
    object["tensors"] = check.tensors;
    object["differing"] = check.differing;
  }
  object["largest_share"] = Number(check.largest);
  Json differences = Json::array();
  for (const Difference& each : check.first) {
    differences.push_back({{"tensor", each.tensor},
                           {"rank", each.rank},
                           {"box", BoxObject(each.box)},
                           {"index", each.index},
                           {"expected", Number(each.expected)},
                           {"actual", Number(each.actual)},
                           {"share", Number(each.share)}});
  }
  object["differences"] = differences;
  return object;
}

}  // namespace

std::string FormatRehearsal(const std::string& job, const Rehearsal& rehearsal) {
  const ProgramsCheck& programs = rehearsal.programs;
  std::string text = fmt::format(
      "job        {}\nlayout     {}\nprograms   {} of {}, {} instructions, {} messages: accepted "
      "by the static verifier\nrehearsal  {} emulated devices, {} rows of {} tokens a step, f64\n"
      "model      {}\nmade small {}\n",
      job, rehearsal.layout, programs.programs,
      programs.one_per_stage ? "one device per stage" : "all ranks",
      FormatCount(programs.instructions), FormatCount(programs.messages), rehearsal.ranks,
      rehearsal.rows, rehearsal.tokens, rehearsal.small_model, SizesText(rehearsal));
  text += WaysText(rehearsal.ways);
  std::vector<std::vector<std::string>> rows;
  for (const Check& check : rehearsal.checks) rows.push_back(RowOf(check));
  if (!rows.empty()) {
    text += FormatTable({"COMPARED", "ONE DEVICE", "THE LAYOUT", "DIFFERENCE", ""}, rows);
  }
  text += FirstDifferences(rehearsal.checks);
  if (!rehearsal.broken.empty()) text += rehearsal.broken + "\n";
  return text + fmt::format("{} (within {:.0e}, {})\n",
                            rehearsal.equal() ? "the layout computes what one device computes"
                                              : "the layout does not compute what one device does",
                            rehearsal.tolerance, FormatDuration(rehearsal.seconds));
}

std::string RehearsalJson(const std::string& job, const Rehearsal& rehearsal) {
  const ProgramsCheck& programs = rehearsal.programs;
  Json sizes = Json::array();
  for (const SmallSize& size : rehearsal.sizes) {
    sizes.push_back({{"name", size.name}, {"job", size.of_job}, {"small", size.small}});
  }
  Json ways = Json::array();
  for (const RehearsedWay& way : rehearsal.ways) {
    ways.push_back({{"key", way.key},
                    {"of_job", way.of_job},
                    {"rehearsed", way.rehearsed},
                    {"why_not", way.why_not}});
  }
  Json checks = Json::array();
  for (const Check& check : rehearsal.checks) checks.push_back(CheckObject(check));
  const Json object = {{"job", job},
                       {"layout", rehearsal.layout},
                       {"equal", rehearsal.equal()},
                       {"ranks", rehearsal.ranks},
                       {"programs",
                        {{"count", programs.programs},
                         {"one_per_stage", programs.one_per_stage},
                         {"instructions", programs.instructions},
                         {"messages", programs.messages}}},
                       {"small",
                        {{"model", rehearsal.small_model},
                         {"rows", rehearsal.rows},
                         {"tokens", rehearsal.tokens},
                         {"sizes", sizes}}},
                       {"ways", ways},
                       {"tolerance", rehearsal.tolerance},
                       {"checks", checks},
                       {"broken", rehearsal.broken},
                       {"seconds", rehearsal.seconds}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace meshwright::rehearsal
