// Processor sharing: the cores of one host divided among the devices that run on them.
//
// While the running devices have T threads and the host C cores, each advances at min(1, C / T) of
// its speed. All of a host's devices advance alike, so one virtual clock, which runs at that rate,
// tells when each is done: at the virtual time at which it began plus its work. Room-internal to
// planner/simulate.
//
// Thread rule: values. Source: Kleinrock, Time-shared Systems: A Theoretical Treatment, JACM 1967.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <set>
#include <vector>

namespace meshwright::planner {

class SharedCores {
 public:
  explicit SharedCores(int cores) : cores_(cores) {}

  // Times do not go back from call to call. `work_s` is at full speed.
  void Begin(size_t device, double now_s, double work_s, int threads);
  // When the next one will be done if nothing else begins; none when none runs.
  std::optional<double> NextEnd() const;
  // Those that are done at `now_s`, which is what NextEnd said: at least one.
  std::vector<size_t> Finish(double now_s);

 private:
  struct Job {
    double end_virtual_s = 0;
    size_t device = 0;
    int threads = 1;
    friend auto operator<=>(const Job&, const Job&) = default;
  };

  double Rate() const;
  void AdvanceTo(double now_s);

  int cores_ = 1;
  int threads_ = 0;
  double now_s_ = 0;
  double virtual_s_ = 0;
  std::set<Job> jobs_;  // next to end first
};

}  // namespace meshwright::planner
