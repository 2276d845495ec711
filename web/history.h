// The last days of a cluster in a few numbers, without a database: a ring of samples that become
// coarser as they age.
//
//   every 5 s for an hour, every minute for 12 hours, every 10 minutes for a week
// A coarse sample is the mean of what was sampled in its time. What it holds does not grow: 2,448
// samples.
//
// Thread rule: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace meshwright::web {

enum class Gauge : uint8_t { kDevices, kBusy, kWorkers, kRunning, kQueued, kTokensPerS };
inline constexpr size_t kGaugeCount = 6;
inline constexpr std::array<const char*, kGaugeCount> kGaugeNames = {
    "devices", "busy_devices", "ready_workers", "running_jobs", "queued_jobs", "tokens_per_s"};

struct Sample {
  int64_t unix_ms = 0;  // the end of its time
  std::array<double, kGaugeCount> values = {};
  double& operator[](Gauge gauge) { return values[static_cast<size_t>(gauge)]; }
};

class History {
 public:
  struct Tier {
    int64_t every_ms = 0;
    size_t most = 0;
  };
  static constexpr std::array<Tier, 3> kTiers = {Tier{5'000, 720}, Tier{60'000, 720},
                                                 Tier{600'000, 1008}};

  // Samples come in the order of their times, at most one in 5 s.
  void Add(const Sample& sample);

  // What is known from that time on, oldest first, each time as fine as it is kept; at most `most`
  // samples. REQUIRES: most > 0.
  std::vector<Sample> Since(int64_t unix_ms, size_t most) const;

 private:
  struct Ring {
    std::deque<Sample> samples;
    Sample sum;  // of those that are to become one
    int64_t count = 0;
    int64_t since_ms = 0;  // the first of them came then
  };
  std::array<Ring, kTiers.size()> rings_;
};

}  // namespace meshwright::web
