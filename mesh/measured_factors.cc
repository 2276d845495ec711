#include "mesh/measured_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace meshwright::mesh {
namespace {

constexpr std::string_view kNotePrefix = "measured on ";

double Bounded(double factor) {
  return std::clamp(factor, MeasuredFactors::kLeast, MeasuredFactors::kMost);
}

// Half way between the two, as ratios go.
double Follow(double before, double now) { return Bounded(std::sqrt(before * Bounded(now))); }

// Plans that differ by less are the same plan, and found in the cache of plans.
double Coarse(double factor) {
  constexpr double kStep = 1.05;
  return std::pow(kStep, std::round(std::log(factor) / std::log(kStep)));
}

std::string NoteText(const std::string& name, const MeasuredFactors& factors) {
  std::string classes;
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    if (!factors.kernels[k]) continue;
    classes += fmt::format("{}{} {:.2f} x", classes.empty() ? "" : ", ",
                           KernelClassName(static_cast<KernelClass>(k)), *factors.kernels[k]);
  }
  return fmt::format("{}{} steps of '{}': {:.2f} x the seconds of its profile ({})", kNotePrefix,
                     factors.steps, name, factors.all, classes);
}

Result<double> NumberOf(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return Fail(InvalidArgument(fmt::format("'{}' is no number", text)));
  }
  return value;
}

Result<double> FactorOf(std::string_view text) {
  MW_ASSIGN_OR_RETURN(const double factor, NumberOf(text));
  if (factor >= MeasuredFactors::kLeast && factor <= MeasuredFactors::kMost) return factor;
  return Fail(InvalidArgument(fmt::format("a factor of {}; {} to {}", factor,
                                          MeasuredFactors::kLeast, MeasuredFactors::kMost)));
}

Status ReadLine(std::string_view line, FactorsByDevice& factors, std::string& device) {
  const size_t space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  const std::string_view rest =
      space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
  if (word == "device") {
    if (rest.size() < 3 || rest.front() != '"' || rest.back() != '"') {
      return InvalidArgument("a device wants its name in quotes");
    }
    device = std::string(rest.substr(1, rest.size() - 2));
    if (!factors.emplace(device, MeasuredFactors()).second) {
      return InvalidArgument(fmt::format("device \"{}\" comes twice", device));
    }
    return OkStatus();
  }
  if (device.empty()) return InvalidArgument(fmt::format("'{}' before a device", word));
  MeasuredFactors& own = factors.at(device);
  if (word == "steps") {
    MW_ASSIGN_OR_RETURN(const double steps, NumberOf(rest));
    if (steps < 1 || steps > 1e15) return InvalidArgument("steps are at least 1");
    own.steps = static_cast<int64_t>(steps);
    return OkStatus();
  }
  if (word == "all") {
    MW_ASSIGN_OR_RETURN(own.all, FactorOf(rest));
    return OkStatus();
  }
  if (word != "kernel") {
    return InvalidArgument(fmt::format("'{}'; device, steps, all or kernel", word));
  }
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    const std::string_view name = KernelClassName(static_cast<KernelClass>(k));
    if (!rest.starts_with(name) || rest.size() <= name.size() || rest[name.size()] != ' ') continue;
    MW_ASSIGN_OR_RETURN(own.kernels[k], FactorOf(rest.substr(name.size() + 1)));
    return OkStatus();
  }
  return InvalidArgument(fmt::format("'{}' is no class of kernels with a factor", rest));
}

}  // namespace

MeasuredFactors Learn(const MeasuredFactors& before, const MeasuredSteps& steps) {
  MeasuredFactors after = before;
  if (steps.steps < 1) return after;
  SecondsBeside all;
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    const SecondsBeside& kernel = steps.kernels[k];
    if (!(kernel.measured_s > 0) || !(kernel.profile_s > 0)) continue;
    all.measured_s += kernel.measured_s;
    all.profile_s += kernel.profile_s;
    const double now = kernel.measured_s / kernel.profile_s;
    after.kernels[k] = before.kernels[k] ? Follow(*before.kernels[k], now) : Bounded(now);
  }
  if (!(all.profile_s > 0)) return after;
  const double now = all.measured_s / all.profile_s;
  after.all = before.steps > 0 ? Follow(before.all, now) : Bounded(now);
  after.steps += steps.steps;
  return after;
}

DeviceProfile WithFactors(const DeviceProfile& profile, const MeasuredFactors& factors) {
  if (factors.steps < 1) return profile;
  MW_CHECK(factors.all >= MeasuredFactors::kLeast && factors.all <= MeasuredFactors::kMost)
      << "a factor of " << factors.all;
  DeviceProfile shown = profile;
  shown.launch_s *= Coarse(factors.all);
  for (size_t k = 0; k < kKernelClassCount; ++k) {
    // A class that no step had is as the others.
    const double factor = Coarse(factors.kernels[k].value_or(factors.all));
    KernelRates& rates = shown.kernels[k];
    rates.bytes_per_s /= factor;
    for (RateCurve& curve : rates.curves) {
      for (RatePoint& point : curve) point.flops_per_s /= factor;
    }
  }
  shown.source = NoteText(profile.name, factors);
  return shown;
}

std::string MeasuredNote(const DeviceProfile& profile) {
  return profile.source.starts_with(kNotePrefix) ? "profile: " + profile.source : "";
}

std::vector<std::string> MeasuredNotes(const Topology& topology) {
  std::vector<std::string> notes;
  for (const Device& device : topology.devices) {
    if (device.profile == nullptr) continue;
    std::string note = MeasuredNote(*device.profile);
    const bool known = std::find(notes.begin(), notes.end(), note) != notes.end();
    if (!note.empty() && !known) notes.push_back(std::move(note));
  }
  return notes;
}

std::string FormatFactors(const FactorsByDevice& factors) {
  std::string text =
      "# What steps have shown of devices: seconds of their kernels over those of their "
      "profiles.\n";
  for (const auto& [name, own] : factors) {
    text += fmt::format("device \"{}\"\nsteps {}\nall {}\n", name, own.steps, own.all);
    for (size_t k = 0; k < kKernelClassCount; ++k) {
      if (!own.kernels[k]) continue;
      text += fmt::format("kernel {} {}\n", KernelClassName(static_cast<KernelClass>(k)),
                          *own.kernels[k]);
    }
  }
  return text;
}

Result<FactorsByDevice> ParseFactors(std::string_view text) {
  FactorsByDevice factors;
  std::string device;
  int number = 0;
  for (const std::string& each : Split(std::string(text), '\n')) {
    ++number;
    const std::string_view line = Trim(each);
    if (line.empty() || line.front() == '#') continue;
    const Status read = ReadLine(line, factors, device);
    if (!read.ok()) return Fail(read.WithContext(fmt::format("line {}", number)));
  }
  for (const auto& [name, own] : factors) {
    if (own.steps > 0) continue;
    return Fail(InvalidArgument(fmt::format(
        "line {}: device \"{}\" has no steps that its factors are from", number, name)));
  }
  return factors;
}

}  // namespace meshwright::mesh
