// What steps have shown of a kind of device: how much longer its kernels take than its profile
// says, class by class.
//
// A profile is measured on kernels alone (profile/worker_profile.h); in a step caches are cold and
// neighbours busy. A factor is seconds in steps over seconds by the profile, over all nodes of the
// class; it is bounded, so that no accident of a step makes a device useless, and takes half of
// what a newer step says, so that it follows without jumping. What launch_s is scaled by is the
// factor of all classes together.
//
// The text form, of all kinds, sorted by name; "#" starts a comment:
//   device "cpu of 1 thread (AMD EPYC)"
//   steps 6
//   all 1.25
//   kernel product 1.3125
//
// Thread rule: values, pure functions; deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "mesh/device_profile.h"
#include "mesh/topology.h"

namespace meshwright::mesh {

// Seconds of steps beside those that a profile says.
struct SecondsBeside {
  double measured_s = 0;
  double profile_s = 0;
};

struct MeasuredSteps {
  int64_t steps = 0;
  std::array<SecondsBeside, kKernelClassCount> kernels;
};

struct MeasuredFactors {
  static constexpr double kLeast = 0.25;
  static constexpr double kMost = 4;

  int64_t steps = 0;  // that they are from
  double all = 1;
  std::array<std::optional<double>, kKernelClassCount> kernels;  // none: no step had the class
  friend bool operator==(const MeasuredFactors&, const MeasuredFactors&) = default;
};

// By the name of the profile.
using FactorsByDevice = std::map<std::string, MeasuredFactors, std::less<>>;

// The factors after these steps. `profile_s` is by the profile as it was measured, without factors.
MeasuredFactors Learn(const MeasuredFactors& before, const MeasuredSteps& steps);

// The profile with what steps have shown, in steps of 5 %. Its name stays; its source says so.
DeviceProfile WithFactors(const DeviceProfile& profile, const MeasuredFactors& factors);

// "profile: measured on 6 steps of 'cpu': 1.25 x the seconds of its profile (product 1.31 x)";
// empty: the profile has no factors.
std::string MeasuredNote(const DeviceProfile& profile);
// Of all of its devices, each once.
std::vector<std::string> MeasuredNotes(const Topology& topology);

std::string FormatFactors(const FactorsByDevice& factors);
// Parse(Format(x)) == x. Errors: kInvalidArgument "line 4: ...".
Result<FactorsByDevice> ParseFactors(std::string_view text);

}  // namespace meshwright::mesh
