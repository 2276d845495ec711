#include "controller/slow_ranks.h"

#include <algorithm>
#include <cmath>

#include "base/median.h"

namespace meshwright::controller {
namespace {

// Of a distribution like the normal one: its deviation by the median of deviations, and the error
// of a median by the deviation.
constexpr double kDeviation = 1.4826;
constexpr double kMedianError = 1.2533;

struct Centre {
  double median = 0;
  double error = 0;
};

float MedianIn(std::vector<float>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// REQUIRES values.
Centre CentreOf(std::vector<float> values) {
  const float median = MedianIn(values);
  for (float& value : values) value = std::abs(value - median);
  const double spread = kDeviation * static_cast<double>(MedianIn(values));
  return {static_cast<double>(median),
          kMedianError * spread / std::sqrt(static_cast<double>(values.size()))};
}

// Of sorted values without one that is `own`. REQUIRES that it is among them, and another one.
double MedianOfOthers(const std::vector<double>& sorted, double own) {
  const auto at =
      static_cast<size_t>(std::lower_bound(sorted.begin(), sorted.end(), own) - sorted.begin());
  const auto other = [&](size_t i) { return sorted[i < at ? i : i + 1]; };
  const size_t others = sorted.size() - 1;
  return (other((others - 1) / 2) + other(others / 2)) / 2;
}

}  // namespace

SlowRanks::SlowRanks(std::vector<int> stages) : stages_(std::move(stages)) {
  ranks_.resize(stages_.size());
}

double SlowRanks::UsualOf(Rank& rank, double seconds) {
  if (rank.usual != 0) return rank.usual;
  rank.first.push_back(seconds);
  if (rank.first.size() < kWarmUp + kOwnSteps) return 0;
  rank.first.erase(rank.first.begin(), rank.first.begin() + kWarmUp);
  rank.usual = Median(std::move(rank.first));
  rank.first = {};
  return rank.usual;
}

std::optional<double> SlowRanks::ReferenceAlone(const proto::RankSeconds& own,
                                                const std::map<int, double>& drifts) const {
  const auto drift = drifts.find(own.rank);
  if (drift == drifts.end() || ranks_.size() < 2) return std::nullopt;
  const double usual = ranks_[static_cast<size_t>(own.rank)].usual;
  if (drifts.size() == 1) return usual;
  std::vector<double> sorted;
  for (const auto& [rank, of] : drifts) sorted.push_back(of);
  std::sort(sorted.begin(), sorted.end());
  return usual * MedianOfOthers(sorted, drift->second);
}

void SlowRanks::Add(Rank& rank, double ratio) {
  constexpr size_t kMost = kWindows.back();
  if (rank.ratios.size() < kMost) {
    rank.ratios.push_back(static_cast<float>(ratio));
  } else {
    rank.ratios[rank.next] = static_cast<float>(ratio);
  }
  rank.next = (rank.next + 1) % kMost;
}

// REQUIRES that there are so many.
std::vector<float> SlowRanks::Last(const Rank& rank, size_t steps) {
  std::vector<float> last;
  for (size_t i = 1; i <= steps; ++i) {
    last.push_back(rank.ratios[(rank.next + kWindows.back() - i) % kWindows.back()]);
  }
  return last;
}

bool SlowRanks::IsLookedAt(size_t window) const {
  return steps_ % std::max(kStepsPerLook, static_cast<int64_t>(window) / kLooksPerWindow) == 0;
}

std::optional<SlowRanks::News> SlowRanks::Judge(Rank& rank) const {
  const double late = std::log(kLate);
  if (rank.named_by) {
    if (!IsLookedAt(*rank.named_by)) return std::nullopt;
    const Centre now = CentreOf(Last(rank, *rank.named_by));
    rank.ratio = std::exp(now.median);
    if (now.median >= late) return std::nullopt;
    return News{-1, false, rank.ratio, *std::exchange(rank.named_by, std::nullopt)};
  }
  for (const size_t window : kWindows) {
    if (rank.ratios.size() < window) break;
    if (!IsLookedAt(window)) continue;
    const Centre now = CentreOf(Last(rank, window));
    if (now.median <= late + kSigmas * now.error) continue;
    rank.named_by = window;
    rank.ratio = std::exp(now.median);
    return News{-1, true, rank.ratio, window};
  }
  return std::nullopt;
}

std::vector<SlowRanks::News> SlowRanks::OnStep(const std::vector<proto::RankSeconds>& busy) {
  const auto counts = [&](const proto::RankSeconds& of) {
    return of.rank >= 0 && static_cast<size_t>(of.rank) < ranks_.size() && of.seconds > 0;
  };
  const auto stage_of = [&](const proto::RankSeconds& of) {
    return stages_[static_cast<size_t>(of.rank)];
  };
  std::map<int, std::vector<double>> stages;
  for (const proto::RankSeconds& of : busy) {
    if (counts(of)) stages[stage_of(of)].push_back(of.seconds);
  }
  for (auto& [stage, seconds] : stages) std::sort(seconds.begin(), seconds.end());
  std::map<int, double> drifts;
  for (const proto::RankSeconds& of : busy) {
    if (!counts(of) || stages.at(stage_of(of)).size() > 1) continue;
    const double usual = UsualOf(ranks_[static_cast<size_t>(of.rank)], of.seconds);
    if (usual > 0) drifts[of.rank] = of.seconds / usual;
  }
  for (const proto::RankSeconds& of : busy) {
    if (!counts(of)) continue;
    const std::vector<double>& stage = stages.at(stage_of(of));
    const std::optional<double> reference =
        stage.size() > 1 ? MedianOfOthers(stage, of.seconds) : ReferenceAlone(of, drifts);
    if (reference) Add(ranks_[static_cast<size_t>(of.rank)], std::log(of.seconds / *reference));
  }
  std::vector<News> news;
  if (++steps_ % kStepsPerLook != 0) return news;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (std::optional<News> of = Judge(ranks_[rank])) {
      of->rank = static_cast<int>(rank);
      news.push_back(*of);
    }
  }
  return news;
}

bool SlowRanks::HasPeers(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= stages_.size()) return false;
  return std::count(stages_.begin(), stages_.end(), stages_[static_cast<size_t>(rank)]) > 1;
}

std::map<int, double> SlowRanks::slow() const {
  std::map<int, double> slow;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].named_by) slow[static_cast<int>(rank)] = ranks_[rank].ratio;
  }
  return slow;
}

}  // namespace meshwright::controller
