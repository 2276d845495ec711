#include "base/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/mutex.h"

namespace meshwright {
namespace {

using Series =
    std::variant<std::shared_ptr<prometheus::Counter>, std::shared_ptr<prometheus::Gauge>,
                 std::shared_ptr<prometheus::Histogram>>;

struct Family {
  prometheus::MetricType type;
  std::string help;
  std::map<MetricLabels, Series> series;
};

void CheckLabels(const std::string& name, const MetricLabels& labels) {
  for (const auto& [label, value] : labels) {
    MW_CHECK(prometheus::CheckLabelName(label)) << "metric " << name << ", label " << label;
  }
}

bool Includes(const MetricLabels& all, const MetricLabels& part) {
  return std::all_of(part.begin(), part.end(), [&](const auto& wanted) {
    const auto found = all.find(wanted.first);
    return found != all.end() && found->second == wanted.second;
  });
}

prometheus::ClientMetric CollectSeries(const MetricLabels& labels, const Series& series) {
  prometheus::ClientMetric metric =
      std::visit([](const auto& pointer) { return pointer->Collect(); }, series);
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  return metric;
}

}  // namespace

void Counter::Increment(double by) { series_->Increment(by); }
double Counter::value() const { return series_->Value(); }
void Gauge::Set(double value) { series_->Set(value); }
void Gauge::Increment(double by) { series_->Increment(by); }
void Gauge::Decrement(double by) { series_->Decrement(by); }
double Gauge::value() const { return series_->Value(); }
void Histogram::Observe(double value) { series_->Observe(value); }

struct MetricsRegistry::State {
  Mutex mutex;
  std::map<std::string, Family> families MW_GUARDED_BY(mutex);
  std::vector<std::function<void()>> refreshes MW_GUARDED_BY(mutex);

  template <typename T, typename... Args>
  std::shared_ptr<T> Find(const std::string& name, const std::string& help,
                          const MetricLabels& labels, Args&&... args) {
    MW_CHECK(prometheus::CheckMetricName(name)) << "metric name " << name;
    CheckLabels(name, labels);
    const MutexLock lock(mutex);
    Family& family = families.try_emplace(name, Family{T::metric_type, help, {}}).first->second;
    MW_CHECK(family.type == T::metric_type) << "metric " << name << " asked for as two types";
    const auto found = family.series.find(labels);
    if (found != family.series.end()) return std::get<std::shared_ptr<T>>(found->second);
    auto made = std::make_shared<T>(std::forward<Args>(args)...);
    family.series.emplace(labels, made);
    return made;
  }
};

MetricsRegistry::MetricsRegistry() : state_(std::make_unique<State>()) {}
MetricsRegistry::~MetricsRegistry() = default;

Counter MetricsRegistry::MakeCounter(const std::string& name, const std::string& help,
                                     const MetricLabels& labels) {
  return Counter(state_->Find<prometheus::Counter>(name, help, labels));
}

Gauge MetricsRegistry::MakeGauge(const std::string& name, const std::string& help,
                                 const MetricLabels& labels) {
  return Gauge(state_->Find<prometheus::Gauge>(name, help, labels));
}

Histogram MetricsRegistry::MakeHistogram(const std::string& name, const std::string& help,
                                         const std::vector<double>& bucket_bounds,
                                         const MetricLabels& labels) {
  MW_CHECK(std::is_sorted(bucket_bounds.begin(), bucket_bounds.end())) << "metric " << name;
  return Histogram(state_->Find<prometheus::Histogram>(name, help, labels, bucket_bounds));
}

int64_t MetricsRegistry::RemoveSeries(const MetricLabels& labels) {
  if (labels.empty()) return 0;
  int64_t removed = 0;
  const MutexLock lock(state_->mutex);
  for (auto& [name, family] : state_->families) {
    removed += static_cast<int64_t>(std::erase_if(
        family.series, [&](const auto& entry) { return Includes(entry.first, labels); }));
  }
  return removed;
}

void MetricsRegistry::AddRefresh(std::function<void()> refresh) {
  const MutexLock lock(state_->mutex);
  state_->refreshes.push_back(std::move(refresh));
}

std::string MetricsRegistry::Serialize() {
  std::vector<std::function<void()>> refreshes;
  {
    const MutexLock lock(state_->mutex);
    refreshes = state_->refreshes;
  }
  for (const auto& refresh : refreshes) refresh();  // without the lock: they make series

  std::vector<prometheus::MetricFamily> collected;
  const MutexLock lock(state_->mutex);
  for (const auto& [name, family] : state_->families) {
    if (family.series.empty()) continue;
    prometheus::MetricFamily& out = collected.emplace_back();
    out.name = name;
    out.help = family.help;
    out.type = family.type;
    for (const auto& [labels, series] : family.series) {
      out.metric.push_back(CollectSeries(labels, series));
    }
  }
  return prometheus::TextSerializer().Serialize(collected);
}

std::vector<double> ExponentialBuckets(double start, double factor, int count) {
  MW_CHECK(start > 0 && factor > 1 && count > 0);
  std::vector<double> bounds;
  for (double bound = start; count > 0; bound *= factor, --count) bounds.push_back(bound);
  return bounds;
}

}  // namespace meshwright
