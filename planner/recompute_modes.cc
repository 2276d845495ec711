#include "planner/recompute_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/parse_int.h"
#include "base/text.h"

namespace meshwright::planner {
namespace {

constexpr std::array<const char*, 4> kModeNames = {"none", "gathers", "selective", "full"};

const char* ModeName(Recompute mode) { return kModeNames[static_cast<size_t>(mode)]; }

// "3" or "0-5".
std::optional<std::pair<int, int>> ParseRange(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = ParseInt(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseInt(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *first > *last) return std::nullopt;
  if (*last > std::numeric_limits<int>::max()) return std::nullopt;
  return std::pair(static_cast<int>(*first), static_cast<int>(*last));
}

std::optional<Recompute> ModeNamed(std::string_view name) {
  const auto* const at = std::find(kModeNames.begin(), kModeNames.end(), name);
  if (at == kModeNames.end()) return std::nullopt;
  return static_cast<Recompute>(at - kModeNames.begin());
}

}  // namespace

Recompute ModeOfLayer(const std::vector<Recompute>& modes, int layer) {
  if (layer < 0 || static_cast<size_t>(layer) >= modes.size()) return Recompute::kNone;
  return modes[static_cast<size_t>(layer)];
}

Result<std::vector<Recompute>> RecomputeOfLayers(Recompute mode, const std::string& layers,
                                                 int layer_count) {
  const auto size = static_cast<size_t>(layer_count);
  if (layers.empty()) return std::vector<Recompute>(size, mode);
  std::vector<Recompute> modes(size, Recompute::kNone);
  for (const std::string& field : Split(layers, ',')) {
    const std::string_view part = Trim(field);
    const size_t space = part.find(' ');
    const auto range = ParseRange(part.substr(0, space));
    const auto own = space == std::string_view::npos ? std::optional(mode)
                                                     : ModeNamed(Trim(part.substr(space + 1)));
    if (!range || !own) {
      return Fail(InvalidField(
          "parallel.recompute_layers",
          fmt::format(
              "is '{}': '{}' is no layer or range; write layers "
              "as in \"0-5,11\", or with modes of their own as in \"0-5 full,6-11 selective\"",
              layers, part)));
    }
    if (range->second >= layer_count) {
      return Fail(InvalidField("parallel.recompute_layers",
                               fmt::format("is '{}', but the model has {} layers, the last is "
                                           "{}",
                                           layers, layer_count, layer_count - 1)));
    }
    for (int layer = range->first; layer <= range->second; ++layer) {
      modes[static_cast<size_t>(layer)] = *own;
    }
  }
  return modes;
}

std::string FormatRecompute(const std::vector<Recompute>& modes) {
  std::vector<std::string> runs;
  for (size_t begin = 0; begin < modes.size();) {
    size_t end = begin;
    while (end < modes.size() && modes[end] == modes[begin]) ++end;
    if (begin == 0 && end == modes.size()) return ModeName(modes[0]);
    runs.push_back(end - begin == 1
                       ? fmt::format("{} {}", begin, ModeName(modes[begin]))
                       : fmt::format("{}-{} {}", begin, end - 1, ModeName(modes[begin])));
    begin = end;
  }
  return runs.empty() ? "none" : fmt::format("{}", fmt::join(runs, ", "));
}

void PinRecompute(const std::vector<Recompute>& modes, ir::ParallelSpec& spec) {
  spec.recompute_layers.clear();
  const auto most = std::max_element(modes.begin(), modes.end());
  spec.recompute = ModeName(most == modes.end() ? Recompute::kNone : *most);
  const bool mixed =
      std::adjacent_find(modes.begin(), modes.end(), std::not_equal_to<>()) != modes.end();
  if (mixed) spec.recompute_layers = FormatRecompute(modes);
}

}  // namespace meshwright::planner
