// Metrics: counters, gauges and histograms that Prometheus scrapes.
//
// A series is a name with labels. A component asks the registry once for a handle and then only
// touches the handle; it keeps working, unseen, when the series is removed. Names follow the
// Prometheus rules: base units, "_total" on counters, no growing ids in labels.
//
// Thread rule: thread-safe. Ownership: handles share their series and may outlive the registry.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace meshwright {

using MetricLabels = std::map<std::string, std::string>;

// Only rises. One atomic add.
class Counter {
 public:
  explicit Counter(std::shared_ptr<prometheus::Counter> series) : series_(std::move(series)) {}
  void Increment(double by = 1);  // negative values are ignored
  double value() const;

 private:
  std::shared_ptr<prometheus::Counter> series_;
};

// Rises and falls. One atomic store.
class Gauge {
 public:
  explicit Gauge(std::shared_ptr<prometheus::Gauge> series) : series_(std::move(series)) {}
  void Set(double value);
  void Increment(double by = 1);
  void Decrement(double by = 1);
  double value() const;

 private:
  std::shared_ptr<prometheus::Gauge> series_;
};

// Counts observations in buckets. One lock.
class Histogram {
 public:
  explicit Histogram(std::shared_ptr<prometheus::Histogram> series) : series_(std::move(series)) {}
  void Observe(double value);

 private:
  std::shared_ptr<prometheus::Histogram> series_;
};

class MetricsRegistry {
 public:
  MetricsRegistry();
  ~MetricsRegistry();
  MetricsRegistry(const MetricsRegistry&) = delete;
  MetricsRegistry& operator=(const MetricsRegistry&) = delete;

  // The series (name, labels): made when new, the same one when asked again.
  // REQUIRES: valid metric and label names; one type and one help text per name (first one counts);
  // ascending bucket bounds.
  Counter MakeCounter(const std::string& name, const std::string& help,
                      const MetricLabels& labels = {});
  Gauge MakeGauge(const std::string& name, const std::string& help,
                  const MetricLabels& labels = {});
  Histogram MakeHistogram(const std::string& name, const std::string& help,
                          const std::vector<double>& bucket_bounds,
                          const MetricLabels& labels = {});

  // Forgets every series whose labels include all of `labels`, e.g. {{"job", "7"}} some time after
  // the job ended. An empty map matches nothing. Returns how many.
  int64_t RemoveSeries(const MetricLabels& labels);

  // Called before each Serialize, to set gauges that are read rather than pushed. May make series.
  void AddRefresh(std::function<void()> refresh);

  // All series in the Prometheus text format 0.0.4, ordered by name and labels.
  std::string Serialize();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Adds process_cpu_seconds_total, process_resident_memory_bytes, process_virtual_memory_bytes,
// process_open_fds, process_max_fds, process_threads and process_start_time_seconds of this
// process, read from /proc at each scrape.
void AddProcessMetrics(MetricsRegistry& registry);

// Bounds start, start*factor, ...: `count` of them.
std::vector<double> ExponentialBuckets(double start, double factor, int count);

}  // namespace meshwright
