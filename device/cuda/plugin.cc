#include "device/cuda/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace meshwright::device::cuda {
namespace {

std::string BinaryFolder() {
  char path[PATH_MAX] = {};
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  if (length <= 0) return ".";
  return std::filesystem::path(std::string(path, static_cast<size_t>(length)))
      .parent_path()
      .string();
}

std::string FormatCuda(int32_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<Plugin> OpenFirst() {
  std::string last;
  for (const std::string& path : PluginPaths()) {
    const bool named = path.find('/') != std::string::npos;
    if (named && ::access(path.c_str(), R_OK) != 0) {
      if (last.empty()) last = fmt::format("there is no {}", path);
      continue;
    }
    Result<Plugin> plugin = Plugin::Open(path);
    if (plugin.has_value()) return plugin;
    if (named) return plugin;  // it is there, and this is what is wrong with it
  }
  return Fail(
      NotFound(fmt::format("{} (a build with -DMESHWRIGHT_CUDA=ON makes it)",
                           last.empty() ? fmt::format("there is no {}", kPluginFile) : last)));
}

// Asked first: a machine without one need not load CUDA's libraries to know.
bool HasDriver() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) (void)::dlclose(driver);
  return driver != nullptr;
}

Result<System> FindSystem() {
  if (!HasDriver()) return Fail(Unavailable("there is no NVIDIA driver (libcuda.so.1)"));
  // Read when CUDA starts. Streams that share a connection wait for each other, and a transfer may
  // wait for long: there is one for each channel of a pipeline.
  (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  MW_ASSIGN_OR_RETURN(Plugin plugin, OpenFirst());
  MW_ASSIGN_OR_RETURN(std::vector<Gpu> gpus, ListGpus(plugin.driver()));
  return System{plugin, std::move(gpus)};
}

}  // namespace

Result<Plugin> Plugin::Open(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return Fail(NotFound(reason == nullptr ? path + " cannot be opened" : reason));
  }
  const auto interface = reinterpret_cast<const char* (*)()>(::dlsym(library, kInterfaceSymbol));
  const auto driver = reinterpret_cast<Driver* (*)()>(::dlsym(library, kDriverSymbol));
  if (interface == nullptr || driver == nullptr) {
    return Fail(FailedPrecondition(path + " is no plugin of Meshwright"));
  }
  if (std::string_view(interface()) != MESHWRIGHT_CUDA_INTERFACE) {
    return Fail(FailedPrecondition(
        fmt::format("{} is of another build ({}, this is {}); install both from the same one", path,
                    interface(), MESHWRIGHT_CUDA_INTERFACE)));
  }
  return Plugin(library, driver());
}

Result<void*> Plugin::Symbol(const char* name) const {
  void* symbol = ::dlsym(library_, name);
  if (symbol != nullptr) return symbol;
  return Fail(NotFound(fmt::format("{} has no {}", kPluginFile, name)));
}

std::vector<std::string> PluginPaths() {
  if (const char* named = std::getenv("MESHWRIGHT_CUDA_PLUGIN"); named != nullptr && *named != 0) {
    return {named};
  }
  const std::string folder = BinaryFolder();
  return {folder + "/" + kPluginFile, folder + "/" + MESHWRIGHT_PLUGIN_DIR + "/" + kPluginFile,
          kPluginFile};
}

Result<std::vector<Gpu>> ListGpus(Driver& driver) {
  Versions versions;
  int32_t count = 0;  // not written when there is no driver
  Code code = driver.ReadVersions(&versions);
  if (code == kSuccess) code = driver.CountDevices(&count);
  if (code == kInsufficientDriver) {
    return Fail(
        Unavailable(versions.driver == 0
                        ? std::string("there is no NVIDIA driver")
                        : fmt::format("the NVIDIA driver is for CUDA {}, this build needs {}",
                                      FormatCuda(versions.driver), FormatCuda(versions.runtime))));
  }
  if (code == kNoDevice || (code == kSuccess && count == 0)) {
    return Fail(Unavailable("the NVIDIA driver shows no GPU (is CUDA_VISIBLE_DEVICES empty?)"));
  }
  if (code != kSuccess) {
    return Fail(Unavailable(
        fmt::format("asking for GPUs: {} ({})", driver.ErrorName(code), driver.ErrorText(code))));
  }
  std::vector<Gpu> gpus;
  for (int32_t i = 0; i < count; ++i) {
    Gpu gpu{i, {}, versions.architecture};
    code = driver.Describe(i, &gpu.description);
    if (code != kSuccess) {
      return Fail(Unavailable(
          fmt::format("GPU {}: {} ({})", i, driver.ErrorName(code), driver.ErrorText(code))));
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

Status CheckArchitecture(const Gpu& gpu) {
  const Description& is = gpu.description;
  if (10 * is.major + is.minor >= gpu.oldest) return OkStatus();
  return Unavailable(
      fmt::format("GPU {} ({}) is sm_{}{}, this build has code for sm_{} and later; name others "
                  "with --gpus, or "
                  "build with -DMESHWRIGHT_CUDA_ARCHITECTURES={}{}",
                  gpu.index, is.name, is.major, is.minor, gpu.oldest, is.major, is.minor));
}

const Result<System>& ThisSystem() {
  static const Result<System> system = FindSystem();
  return system;
}

}  // namespace meshwright::device::cuda
