// SlowRanks: which ranks of a mesh take longer for their own work than their peers do.
//
// Peers are the ranks of one stage: they do the same work. Of each step and rank the logarithm of
// its busy time over the median of its peers' counts. A rank without peers is compared with itself,
// as it was at first, and by how much others that are alone are slower than at first: what slows
// all of them is no rank's. The only rank of a mesh is never named. Steps are noisy, and now and
// then one takes several times as long, so nothing is said of single steps: the median of a window
// must lie above kLate by kSigmas times the error of that median, which the window's own spread
// says. A short window finds what is far off soon, a long one what is a little late. What was named
// is taken back when the median of the same window is below kLate again.
//
// Thread rule: a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "proto/messages.h"

namespace meshwright::controller {

class SlowRanks {
 public:
  static constexpr double kLate = 1.05;
  static constexpr double kSigmas = 8;
  static constexpr std::array<size_t, 4> kWindows = {32, 128, 512, 2048};  // steps

  struct News {
    int rank = -1;
    bool slow = false;  // false: no longer
    double ratio = 1;   // of its time to that of its peers
    size_t steps = 0;   // that it is known by
  };

  SlowRanks() = default;
  // stages: by rank.
  explicit SlowRanks(std::vector<int> stages);

  // One step of the program that the mesh runs again and again; ranks of which nothing is known are
  // left out.
  std::vector<News> OnStep(const std::vector<proto::RankSeconds>& busy);
  // By rank: how many times as long as its peers it takes.
  std::map<int, double> slow() const;
  bool HasPeers(int rank) const;

 private:
  // Not at every step: between two looks at a window little of it changes.
  static constexpr int64_t kStepsPerLook = 8;
  static constexpr int64_t kLooksPerWindow = 32;
  // Of a rank without peers: the first ones are slower than all others, then it is measured.
  static constexpr size_t kWarmUp = 8;
  static constexpr size_t kOwnSteps = 64;

  struct Rank {
    std::vector<float> ratios;  // logarithms, of the last steps: a ring once it is full
    size_t next = 0;
    std::vector<double> first;       // seconds, of a rank without peers
    double usual = 0;                // of them
    std::optional<size_t> named_by;  // window
    double ratio = 1;
  };

  // Of a rank that is alone. drifts: of those, by rank, seconds now over those at first.
  std::optional<double> ReferenceAlone(const proto::RankSeconds& own,
                                       const std::map<int, double>& drifts) const;
  static double UsualOf(Rank& rank, double seconds);
  static void Add(Rank& rank, double ratio);
  static std::vector<float> Last(const Rank& rank, size_t steps);
  bool IsLookedAt(size_t window) const;
  std::optional<News> Judge(Rank& rank) const;

  std::vector<int> stages_;
  std::vector<Rank> ranks_;
  int64_t steps_ = 0;
};

}  // namespace meshwright::controller
