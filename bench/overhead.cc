#include "bench/overhead.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "base/median.h"

namespace meshwright::bench {
namespace {

using Clock = std::chrono::steady_clock;

// As little as an observer can do.
class Sum final : public ops::NodeObserver {
 public:
  void OnNode(const ir::Graph&, NodeId, double seconds) override {
    seconds_ += seconds;
    ++nodes_;
  }
  void Clear() { *this = Sum(); }
  double seconds() const { return seconds_; }
  int64_t nodes() const { return nodes_; }

 private:
  double seconds_ = 0;
  int64_t nodes_ = 0;
};

// Seconds per node that observing adds outside of the interval which the observer is told: the
// executor's two looks at the clock and the call, with nothing in between.
double ObserverSeconds() {
  constexpr int kCalls = 1'000;
  constexpr int kRepeats = 21;
  const ir::Graph graph;
  std::vector<double> outside;
  Sum sum;
  ops::NodeObserver* volatile observer = &sum;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    sum.Clear();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) {
      const Clock::time_point start = Clock::now();
      const std::chrono::duration<double> taken = Clock::now() - start;
      observer->OnNode(graph, NodeId(0), taken.count());
    }
    const std::chrono::duration<double> all = Clock::now() - begin;
    outside.push_back((all.count() - sum.seconds()) / kCalls);
  }
  return Median(outside);
}

}  // namespace

Result<Overhead> MeasureOverhead(DeviceRunOptions options, int64_t steps) {
  constexpr int64_t kWarmUp = 2;
  Overhead overhead;
  {
    options.observer = nullptr;
    MW_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceRun> run, DeviceRun::Start(options));
    MW_TRY(run->Step(kWarmUp));
    std::vector<double> plain, recorded;
    for (int64_t i = 0; i < steps; ++i) {
      MW_ASSIGN_OR_RETURN(const std::vector<double> seconds, run->Step(1));
      plain.push_back(seconds[0]);
      MW_ASSIGN_OR_RETURN(const std::vector<double> of_recorded, run->Step(1, true));
      recorded.push_back(of_recorded[0]);
      for (const ir::StepRecord& record : run->TakeRecorded()) {
        overhead.marks = static_cast<int64_t>(record.marks.size());
      }
    }
    overhead.step_seconds = Median(plain);
    overhead.recorded_seconds = Median(recorded);
  }
  Sum sum;
  options.observer = &sum;
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceRun> run, DeviceRun::Start(options));
  MW_TRY(run->Step(kWarmUp));
  overhead.instructions = static_cast<int64_t>(run->step_program().instructions.size());
  std::vector<double> rest;
  for (int64_t i = 0; i < steps; ++i) {
    sum.Clear();
    MW_ASSIGN_OR_RETURN(const std::vector<double> seconds, run->Step(1));
    rest.push_back(seconds[0] - sum.seconds());
  }
  overhead.nodes = sum.nodes();
  overhead.rest_seconds = Median(rest);
  overhead.observer_seconds = ObserverSeconds() * static_cast<double>(overhead.nodes);
  return overhead;
}

}  // namespace meshwright::bench
