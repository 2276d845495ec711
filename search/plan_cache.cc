// Lines of words: a name and values; numbers as their shortest text that reads back the same.
#include "search/plan_cache.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "base/text.h"
#include "planner/layout.h"
#include "planner/zero_levels.h"
#include "search/fingerprint.h"

namespace meshwright::search {
namespace {

using planner::Layout;
using planner::Recompute;

constexpr std::string_view kTitle = "meshwright plan cache 8";
constexpr std::string_view kNone = "-";

std::string LayoutLine(const Layout& layout) {
  std::vector<int> modes;
  for (const Recompute mode : layout.recompute) modes.push_back(static_cast<int>(mode));
  const auto list = [](const auto& numbers) {
    return numbers.empty() ? std::string(kNone) : fmt::format("{}", fmt::join(numbers, ","));
  };
  const std::string meshes = planner::FormatStageDegrees(layout.stage_degrees);
  std::string text = "layout";
  for (const planner::AxisKind& kind : planner::kAxisKinds) {
    text += fmt::format(" {}", layout.degrees[kind.axis]);
  }
  text += fmt::format(" {}", static_cast<int>(layout.context_attention));
  for (const planner::ZeroLevel& level : planner::ZeroLevels()) {
    text += fmt::format(" {}", layout.zero_groups.*level.group);
  }
  return fmt::format(
      "{} {} {} {} {} {} {} {} {} {} {} {}\n", text, layout.pipeline, layout.microbatches,
      layout.schedule, static_cast<int>(layout.sequence_parallel), layout.chunks,
      list(layout.part_layers), layout.zero, list(modes), meshes.empty() ? kNone : meshes,
      list(layout.devices), list(layout.tensor_axes));
}

std::string CostLines(const LayoutCost& cost) {
  return LayoutLine(cost.layout) + fmt::format("cost {} {}\n", cost.step_s, cost.fullest_bytes());
}

// The words of a line, taken one after the other; any that is missing or no number spoils the rest.
class Words {
 public:
  explicit Words(std::string_view line) : words_(Split(line, ' ')) {}

  std::string Text() {
    if (next_ < words_.size()) return words_[next_++];
    sound_ = false;
    return "";
  }
  template <typename T>
  void Take(T& number) {
    const std::string word = Text();
    const char* const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, number);
    sound_ = sound_ && error == std::errc() && at == end;
  }
  void Take(bool& flag) {
    int number = 0;
    Take(number);
    flag = number != 0;
  }
  std::vector<int> List() {
    std::vector<int> numbers;
    const std::string text = Text();
    if (text == kNone) return numbers;
    for (const std::string& field : Split(text, ',')) {
      Words word(field);
      word.Take(numbers.emplace_back());
      sound_ = sound_ && word.sound_;
    }
    return numbers;
  }
  // All words were taken and were what they should be.
  bool Ended() const { return sound_ && next_ == words_.size(); }

 private:
  std::vector<std::string> words_;
  size_t next_ = 0;
  bool sound_ = true;
};

bool ReadLayout(Words& words, Layout& layout) {
  for (const planner::AxisKind& kind : planner::kAxisKinds) words.Take(layout.degrees[kind.axis]);
  int attention = 0;
  words.Take(attention);
  if (attention < 0 || attention > static_cast<int>(planner::ContextAttention::kNested)) {
    return false;
  }
  layout.context_attention = static_cast<planner::ContextAttention>(attention);
  for (const planner::ZeroLevel& level : planner::ZeroLevels()) {
    words.Take(layout.zero_groups.*level.group);
  }
  words.Take(layout.pipeline);
  words.Take(layout.microbatches);
  layout.schedule = words.Text();
  words.Take(layout.sequence_parallel);
  words.Take(layout.chunks);
  layout.part_layers = words.List();
  words.Take(layout.zero);
  for (const int mode : words.List()) {
    if (mode < 0 || mode > static_cast<int>(Recompute::kFull)) return false;
    layout.recompute.push_back(static_cast<Recompute>(mode));
  }
  const std::string meshes = words.Text();
  if (meshes != kNone) {
    auto degrees = planner::ParseStageDegrees(meshes);
    if (!degrees.has_value()) return false;
    layout.stage_degrees = *std::move(degrees);
  }
  layout.devices = words.List();
  for (const int size : words.List()) layout.tensor_axes.push_back(size);
  return words.Ended();
}

// Of its stages the fullest alone.
bool ReadCost(Words& words, LayoutCost& cost) {
  words.Take(cost.step_s);
  words.Take(cost.stages.emplace_back().state_bytes);
  return words.Ended();
}

// What a line adds to the entry. The first layout is that of the plan.
class EntryReader {
 public:
  bool Add(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string rest = space == std::string::npos ? "" : line.substr(space + 1);
    Words words(rest);
    std::vector<LayoutCost>& best = entry_.found.best;
    if (name == "note") {
      entry_.note = rest;
      return true;
    }
    if (name == "search") return ReadSearch(words);
    if (name == "layout" && !has_layout_) {
      has_layout_ = true;
      return ReadLayout(words, entry_.layout);
    }
    if (name == "layout") return ReadLayout(words, best.emplace_back().layout);
    return name == "cost" && !best.empty() && ReadCost(words, best.back());
  }
  std::optional<PlanEntry> Take() {
    if (!has_layout_) return std::nullopt;
    return std::move(entry_);
  }

 private:
  bool ReadSearch(Words& words) {
    words.Take(entry_.by_search);
    words.Take(entry_.found.gap);
    words.Take(entry_.found.priced);
    words.Take(entry_.found.candidates);
    return words.Ended();
  }

  PlanEntry entry_;
  bool has_layout_ = false;
};

std::string ChecksumLine(std::string_view text) {
  return fmt::format("sha256 {}\n", Sha256Hex(text));
}

}  // namespace

std::string PlanCacheKey(const ir::JobRequest& job, const mesh::Topology& topology,
                         const FindOptions& options) {
  return Sha256Hex(fmt::format("{}\n{}\n{}\n{}\n{} ms, {} alternatives\n", kTitle,
                               JobFingerprint(job), ParallelFingerprint(job.parallel),
                               TopologyFingerprint(topology), options.timeout_ms,
                               options.alternatives));
}

Result<std::string> FormatPlanEntry(const std::string& key, const PlanEntry& entry) {
  std::string text = fmt::format("{}\n{}\n", kTitle, key);
  text += fmt::format("search {} {} {} {}\n", static_cast<int>(entry.by_search), entry.found.gap,
                      entry.found.priced, entry.found.candidates);
  if (!entry.note.empty()) text += fmt::format("note {}\n", entry.note);
  text += LayoutLine(entry.layout);
  for (const LayoutCost& cost : entry.found.best) text += CostLines(cost);
  text += ChecksumLine(text);
  MW_ASSIGN_OR_RETURN(const PlanEntry again, ParsePlanEntry(key, text));
  bool same = again.layout.ToString() == entry.layout.ToString();
  for (size_t i = 0; same && i < entry.found.best.size(); ++i) {
    same = again.found.best[i].layout.ToString() == entry.found.best[i].layout.ToString();
  }
  if (same) return text;
  return Fail(Unimplemented(
      fmt::format("an entry cannot say what the layout {} is", entry.layout.ToString())));
}

Result<PlanEntry> ParsePlanEntry(const std::string& key, std::string_view text) {
  const size_t sum = text.rfind("sha256 ");
  if (sum == std::string_view::npos || text.substr(sum) != ChecksumLine(text.substr(0, sum))) {
    return Fail(DataLoss("its checksum does not hold"));
  }
  std::vector<std::string> lines = Split(text.substr(0, sum), '\n');
  lines.pop_back();  // behind the last line end
  if (lines.size() < 3 || lines[0] != kTitle) return Fail(DataLoss("it is of another version"));
  if (lines[1] != key) return Fail(DataLoss("it was written for another job or cluster"));
  EntryReader reader;
  for (size_t i = 2; i < lines.size(); ++i) {
    if (!reader.Add(lines[i])) {
      return Fail(DataLoss(fmt::format("line {} is '{}'", i + 1, lines[i])));
    }
  }
  std::optional<PlanEntry> entry = reader.Take();
  if (!entry) return Fail(DataLoss("it has no layout"));
  return *std::move(entry);
}

}  // namespace meshwright::search
