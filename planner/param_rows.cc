#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "planner/plan_text.h"

namespace meshwright::planner {
namespace {

std::string RangesText(const std::set<int64_t>& numbers) {
  return FormatRanges(std::vector<int64_t>(numbers.begin(), numbers.end()));
}

// A name around the first of its parts that is a number.
struct SplitName {
  std::string before;  // all of it where there is no number
  std::optional<int64_t> layer;
  std::string behind;
};

SplitName SplitAtLayer(const std::string& name) {
  const std::vector<std::string> parts = Split(name, '.');
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<int64_t> layer = ParseInt(parts[i]);
    if (!layer) continue;
    const auto at = parts.begin() + static_cast<std::ptrdiff_t>(i);
    return {Join({parts.begin(), at}, "."), layer, Join({at + 1, parts.end()}, ".")};
  }
  return {name, {}, ""};
}

struct LayerGroup {
  SplitName name;
  std::string sharding;
  std::set<int64_t> layers;
  std::set<int64_t> stages;
};

std::string NameOf(const LayerGroup& group) {
  if (!group.name.layer) return group.name.before;
  const bool one = group.layers.size() == 1;
  const auto parts = [](const std::string& text, const char* before, const char* behind) {
    return text.empty() ? "" : before + text + behind;
  };
  return parts(group.name.before, "", ".") + (one ? "" : "{") + RangesText(group.layers) +
         (one ? "" : "}") + parts(group.name.behind, ".", "");
}

std::vector<LayerGroup> LayerGroups(const Plan& plan) {
  std::vector<LayerGroup> groups;
  for (const ParamInfo& param : plan.params) {
    SplitName name = SplitAtLayer(param.name);
    std::string sharding = mesh::FormatSharding(param.type, param.sharding);
    auto same = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& group) {
      return name.layer && group.name.layer && group.name.before == name.before &&
             group.name.behind == name.behind && group.sharding == sharding;
    });
    if (same == groups.end()) {
      groups.push_back({std::move(name), std::move(sharding), {}, {}});
      same = groups.end() - 1;
      if (same->name.layer) same->layers.insert(*same->name.layer);
    } else {
      same->layers.insert(*name.layer);
    }
    same->stages.insert(param.stages.begin(), param.stages.end());
  }
  return groups;
}

// "a.b.weight" as {"a.b", "weight"}.
std::pair<std::string, std::string> StemAndLast(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos || name.back() == '}') return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

}  // namespace

std::string FormatRanges(std::span<const int64_t> numbers) {
  std::string text;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end - begin > 1) text += fmt::format("-{}", numbers[end - 1]);
    begin = end;
  }
  return text;
}

std::vector<ParamRow> ParamRows(const Plan& plan) {
  std::vector<ParamRow> rows;
  for (const ParamInfo& param : plan.params) {
    rows.push_back({param.name, fmt::format("{}", fmt::join(param.stages, ",")),
                    mesh::FormatSharding(param.type, param.sharding)});
  }
  return rows;
}

std::vector<ParamRow> FoldedParamRows(const Plan& plan) {
  struct Row {
    std::string stem;
    std::vector<std::string> lasts;
    ParamRow row;
  };
  std::vector<Row> rows;
  for (const LayerGroup& group : LayerGroups(plan)) {
    ParamRow row{NameOf(group), RangesText(group.stages), group.sharding};
    auto [stem, last] = StemAndLast(row.name);
    const auto same = std::find_if(rows.begin(), rows.end(), [&, &of = stem](const Row& other) {
      return other.stem == of && !other.lasts.front().empty() && other.row.stages == row.stages &&
             other.row.sharding == row.sharding;
    });
    if (same == rows.end() || last.empty()) {
      rows.push_back({std::move(stem), {std::move(last)}, std::move(row)});
    } else {
      same->lasts.push_back(std::move(last));
    }
  }
  std::vector<ParamRow> folded;
  for (Row& row : rows) {
    if (row.lasts.size() > 1) row.row.name = row.stem + ".{" + Join(row.lasts, ",") + "}";
    folded.push_back(std::move(row.row));
  }
  return folded;
}

}  // namespace meshwright::planner
