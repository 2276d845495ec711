// Plugin: libmeshwright_cuda.so, which holds everything that needs CUDA's libraries, opened at run
// time. Without it, without a driver or without a GPU the answer is a normal value: the reason, in
// one line.
//
// Host and plugin talk through abstract classes (device/cuda/driver.h, ops/cuda/toolkit.h), so both
// must be of the same headers: each carries their fingerprint, and another one is refused.
//
// Thread rule: thread-safe. Ownership: what is open stays open until the process ends.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda/driver.h"

namespace meshwright::device::cuda {

// Names of what the plugin exports, all extern "C".
inline constexpr char kPluginFile[] = "libmeshwright_cuda.so";
inline constexpr char kInterfaceSymbol[] = "meshwright_cuda_interface";  // const char*()
inline constexpr char kDriverSymbol[] = "meshwright_cuda_driver";        // Driver*()

class Plugin {
 public:
  // Errors: kNotFound, kFailedPrecondition: why it cannot be used.
  static Result<Plugin> Open(const std::string& path);

  Driver& driver() const { return *driver_; }
  // Another room's part of it. Errors: kNotFound naming it.
  Result<void*> Symbol(const char* name) const;

 private:
  Plugin(void* library, Driver* driver) : library_(library), driver_(driver) {}
  void* library_ = nullptr;
  Driver* driver_ = nullptr;
};

// Where the plugin is looked for: $MESHWRIGHT_CUDA_PLUGIN alone when it is set; else beside the
// binary, where an installation has it, and where the system looks.
std::vector<std::string> PluginPaths();

struct Gpu {
  int32_t index = 0;
  Description description;
  int32_t oldest = 0;  // Versions::architecture
};

// Errors: kUnavailable naming a GPU that is older than what the plugin has code for.
Status CheckArchitecture(const Gpu& gpu);

// The GPUs that this process may use (CUDA_VISIBLE_DEVICES is the driver's to heed).
// Errors: kUnavailable: the reason, one line.
Result<std::vector<Gpu>> ListGpus(Driver& driver);

// Plugin and GPUs of this machine; looked for once per process. Errors: kUnavailable and those of
// Plugin::Open: why none can be used, in one line.
struct System {
  Plugin plugin;
  std::vector<Gpu> gpus;  // at least one
};
const Result<System>& ThisSystem();

}  // namespace meshwright::device::cuda
