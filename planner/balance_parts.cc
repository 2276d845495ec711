#include "planner/balance_parts.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace meshwright::planner {
namespace {

// The bound need not be tight, only close.
constexpr int kBisections = 24;

constexpr double kNeverSeconds = std::numeric_limits<double>::infinity();

size_t LayerIndex(int index) { return static_cast<size_t>(index); }

class Balancer {
 public:
  explicit Balancer(std::span<const std::span<const double>> sum_of_part)
      : sums_(sum_of_part),
        parts_(static_cast<int>(sum_of_part.size())),
        layers_(static_cast<int>(sum_of_part.front().size()) - 1) {}

  std::vector<int> Run() {
    const double bound_s = UpperBound();
    const std::vector<int> furthest = Furthest(bound_s);
    MW_CHECK(!furthest.empty()) << parts_ << " parts have no end below " << bound_s << " s";
    const std::vector<int> nearest = Nearest(bound_s);
    std::vector<std::vector<int>> cuts(LayerIndex(parts_));  // per part, by end from its nearest
    std::vector<double> best = {0};                          // of the parts before, by end
    int best_first = 0;
    for (int part = 0; part < parts_; ++part) {
      const int first = nearest[LayerIndex(part)];
      const int count = furthest[LayerIndex(part)] - first + 1;
      std::vector<double> next(LayerIndex(count), kNeverSeconds);
      cuts[LayerIndex(part)].assign(LayerIndex(count), 0);
      for (int end = first; end < first + count; ++end) {
        const int begin_last = std::min(end - 1, best_first + static_cast<int>(best.size()) - 1);
        double& least_s = next[LayerIndex(end - first)];
        // Longer parts only get dearer.
        for (int begin = begin_last; begin >= best_first; --begin) {
          const double own_s = Seconds(part, begin, end);
          if (own_s >= least_s) break;
          const double value_s = std::max(best[LayerIndex(begin - best_first)], own_s);
          if (value_s >= least_s) continue;
          least_s = value_s;
          cuts[LayerIndex(part)][LayerIndex(end - first)] = begin;
        }
      }
      best = std::move(next);
      best_first = first;
    }
    std::vector<int> part_of_layer(LayerIndex(layers_), 0);
    int end = layers_;
    for (int part = parts_ - 1; part >= 0; --part) {
      const int begin = cuts[LayerIndex(part)][LayerIndex(end - nearest[LayerIndex(part)])];
      std::fill(part_of_layer.begin() + begin, part_of_layer.begin() + end, part);
      end = begin;
    }
    MW_CHECK(end == 0) << "the first part begins at layer " << end;
    return part_of_layer;
  }

 private:
  double Seconds(int part, int begin, int end) const {
    return sums_[LayerIndex(part)][LayerIndex(end)] - sums_[LayerIndex(part)][LayerIndex(begin)];
  }

  // Per part the last end that it can have when none takes longer; empty: there is none.
  std::vector<int> Furthest(double bound_s) const {
    std::vector<int> ends;
    int begin = 0;
    for (int part = 0; part < parts_; ++part) {
      const std::span<const double> sum = sums_[LayerIndex(part)];
      const auto behind = std::partition_point(sum.begin() + begin, sum.end(), [&](double until) {
        return until - sum[LayerIndex(begin)] <= bound_s;
      });
      const int end =
          std::min(static_cast<int>(behind - sum.begin()) - 1, layers_ - (parts_ - 1 - part));
      if (end <= begin) return {};
      ends.push_back(end);
      begin = end;
    }
    return begin == layers_ ? ends : std::vector<int>();
  }

  // Per part the first end that leaves no more than the parts behind it can take.
  // REQUIRES: Furthest(bound_s) is not empty.
  std::vector<int> Nearest(double bound_s) const {
    std::vector<int> ends(LayerIndex(parts_), layers_);
    int end = layers_;
    for (int part = parts_ - 1; part > 0; --part) {
      const std::span<const double> sum = sums_[LayerIndex(part)];
      const auto begin = std::partition_point(sum.begin(), sum.begin() + end, [&](double until) {
        return sum[LayerIndex(end)] - until > bound_s;
      });
      end = std::max(static_cast<int>(begin - sum.begin()), part);
      ends[LayerIndex(part - 1)] = end;
    }
    return ends;
  }

  double UpperBound() const {
    double low_s = 0;
    double high_s = 0;
    for (int part = 0; part < parts_; ++part)
      high_s = std::max(high_s, sums_[LayerIndex(part)].back());
    for (int i = 0; i < kBisections; ++i) {
      const double middle_s = low_s + (high_s - low_s) / 2;
      (Furthest(middle_s).empty() ? low_s : high_s) = middle_s;
    }
    return high_s;
  }

  const std::span<const std::span<const double>> sums_;
  const int parts_;
  const int layers_;
};

}  // namespace

std::vector<int> BalanceParts(std::span<const std::span<const double>> sum_of_part) {
  MW_CHECK(!sum_of_part.empty() && sum_of_part.size() < sum_of_part.front().size())
      << sum_of_part.size() << " parts without a layer each";
  return Balancer(sum_of_part).Run();
}

}  // namespace meshwright::planner
