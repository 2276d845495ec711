// The search for stages that differ: which layers of a model run on which submeshes.
//
// A stage is a contiguous range of layers, an *option* (one way to compute layers on a submesh of
// one class of devices: its mesh, with or without recomputation), and so a submesh. A step of m
// microbatches takes
//   T = sum_i period_i + (m - 1) max_i period_i + max_i tail_i,
// where period_i is what stage i computes and sends for a microbatch and tail_i what it does once
// per step. Memory is a constraint: state + in flight x activations + transient <= memory of a
// device. So is placement: the submeshes must lie on the hosts that exist; devices may stay idle.
//
// From the last stage to the first, each way to have layers [first, layers) on some of the devices
// is a label: its sum and maximum of periods, its largest tail, and what is left of the hosts. A
// label that another one of the same layers, hosts and depth is no worse than in any respect goes;
// of the others a number goes on that are likely best by a bound: the least that the layers before
// can add, and the period that the devices that are left must keep. The search is a beam, therefore
// not exact where many labels are alike: it is made narrow first, for a bound that the wide one
// keeps.
//
// Costs that differ by less than a hundred-millionth count as equal; then the fewest stages win,
// then the fewest devices.
//
// Thread rule: values; SearchStages from any threads at once, the problem's callables run on the
// caller's and must be pure. Source: Alpa (Zheng et al., OSDI'22) section 5, equation 2, which has
// no transfers, update, sync, classes or placement.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace meshwright::search {

struct StageDeviceClass {
  std::vector<int> host_devices;  // devices of every host
  int64_t memory_bytes = 0;       // of a device; 0: unknown, not checked
};

// hosts == 1: any devices_per_host devices of one host. hosts > 1: whole hosts that have exactly
// devices_per_host devices.
struct SubmeshShape {
  int hosts = 1;
  int devices_per_host = 1;
  int devices() const { return hosts * devices_per_host; }
  friend auto operator<=>(const SubmeshShape&, const SubmeshShape&) = default;
};

// Devices [first_device, first_device + devices_per_host) of each host.
struct SubmeshPlace {
  std::vector<int> hosts;  // ascending, of the class
  int first_device = 0;
};

// Of one layer, or of a range of layers. Bytes are per device.
struct LayerCost {
  double compute_s = 0;          // per microbatch
  double tail_s = 0;             // per step: update and sums of gradients
  int64_t state_bytes = 0;       // weights, gradients, optimizer
  int64_t activation_bytes = 0;  // per microbatch in flight
  int64_t transient_bytes = 0;   // while it computes; layers compute one after another

  // And of what is computed behind it.
  LayerCost& operator+=(const LayerCost& next) {
    compute_s += next.compute_s;
    tail_s += next.tail_s;
    state_bytes += next.state_bytes;
    activation_bytes += next.activation_bytes;
    transient_bytes = std::max(transient_bytes, next.transient_bytes);
    return *this;
  }
};

// A way to compute layers on a submesh.
struct StageOption {
  int device_class = 0;
  SubmeshShape shape;
  // How boundary tensors lie on its devices: options with equal ports transfer at equal costs.
  int port = 0;
  std::vector<LayerCost> layers;  // per layer
};

struct StageProblem {
  int layers = 0;
  std::vector<StageDeviceClass> classes;
  std::vector<StageOption> options;
  std::vector<int64_t> boundary_bytes;  // per pair of neighbouring layers, per microbatch
  // Seconds per microbatch from a stage of one port to the next one and back, of a boundary's
  // bytes; charged to the earlier stage. Null: transfers are free.
  std::function<double(int from_port, int to_port, int64_t bytes)> transfer_s;
  int microbatches = 1;
  bool holds_all = false;  // a stage holds all microbatches (GPipe), else as 1F1B does
  int stages = 0;          // their number; 0: open

  // Microbatches whose activations a stage holds, from the number of stages from it to the last one
  // (that one: 1).
  int InFlight(int stages_to_end) const {
    return holds_all || stages_to_end > microbatches ? microbatches : stages_to_end;
  }
  double TransferSeconds(int from_port, int to_port, int cut) const {
    return transfer_s ? transfer_s(from_port, to_port, boundary_bytes[static_cast<size_t>(cut - 1)])
                      : 0;
  }
};

// How many microbatches fit a device of the option's class, of as many as there are; -1: not even
// what is there without any.
inline int InFlightMax(const StageProblem& problem, int option, const LayerCost& cost) {
  const int device_class = problem.options[static_cast<size_t>(option)].device_class;
  const int64_t memory_bytes = problem.classes[static_cast<size_t>(device_class)].memory_bytes;
  if (memory_bytes == 0) return problem.microbatches;
  const int64_t left_bytes = memory_bytes - cost.state_bytes - cost.transient_bytes;
  if (left_bytes < 0) return -1;
  if (cost.activation_bytes == 0) return problem.microbatches;
  return static_cast<int>(
      std::min<int64_t>(left_bytes / cost.activation_bytes, problem.microbatches));
}

struct StageChoice {
  int first_layer = 0;
  int end_layer = 0;  // one past the last
  int option = 0;
  friend bool operator==(const StageChoice&, const StageChoice&) = default;
};

struct StageAnswer {
  std::vector<StageChoice> stages;
  std::vector<SubmeshPlace> places;  // of each stage, on hosts of its option's class
};

struct StageSearchOptions {
  int64_t timeout_ms = 10'000;
  int width = 256;  // labels that go on, per layer
};

// The best stages found in time; equal problems give equal answers when time does not end the
// search. Nothing: no stages fit, or none was found in time. REQUIRES: options have costs >= 0 of
// every layer, and boundaries lie between all of them.
std::optional<StageAnswer> SearchStages(const StageProblem& problem,
                                        const StageSearchOptions& options, const Clock& clock);

}  // namespace meshwright::search
