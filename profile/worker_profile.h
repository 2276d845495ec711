// The profile of a worker's devices: measured once per machine, number of threads and binary, kept
// on disk.
//
// While one worker of a host measures, the user's others wait, whatever their caches (a lock file):
// they would measure one another, and those with the same cache find what it has written.
//
// What is kept is what the machine does for a worker that has its cores: kernels and links, as long
// as a run typically takes. With "measure" the profile is also what the worker gets now: where
// others compute on its cores, its rates are those of its share of them. Shares are never kept.
//
// Thread rule: MakeMeasuredProfile is a pure function; the rest reads and writes files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "mesh/device_profile.h"
#include "worker/kernel_timing.h"
#include "worker/link_timing.h"

namespace meshwright::profile {

// Curves and bandwidths from timings (worker/kernel_timing.h). Errors: kInternal naming a class of
// kernels without a timing.
Result<mesh::DeviceProfile> MakeMeasuredProfile(const std::string& name,
                                                const std::vector<worker::KernelTiming>& timings);

struct ProfileRequest {
  std::string mode = "cached";  // cached | measure | off | the path of a profile
  int threads = 1;
  int64_t memory_bytes = 0;           // of a device; 0: not known
  int64_t host_link_bytes_per_s = 0;  // that the worker is held to; 0: none
  int64_t disk_bytes_per_s = 0;       // the same
  std::string cache_dir;              // of profiles; empty: nothing is kept
  // Of all workers that would measure one another; empty: there is no other. One that cannot be
  // had in time costs a line in the log and whatever the others disturb.
  std::string lock_path;
  int64_t lock_timeout_ms = 600'000;
  std::string machine;  // what a profile is valid for besides threads: processor, binary
  std::function<Result<worker::MachineTimings>(int threads)> measure;
  std::string transport = "auto";  // between workers, as links are measured
  // Not set: links are not measured. A failure costs the links and a line in the log, no more.
  std::function<Result<worker::LinkTimings>()> measure_links = {};
  std::function<double(int threads)> measure_share = {};  // of the cores; not set: 1
};

// The same device with a share of its cores, in (0, 1]: everything takes 1 / share as long.
mesh::DeviceProfile ProfileAtShare(const mesh::DeviceProfile& profile, double share);

// The text of the profile; empty for "off". A cache that cannot be read or written costs a
// measurement and a line in the log, no more. Errors: of the measurement, and of a profile that
// the mode names.
Result<std::string> WorkerProfileText(const ProfileRequest& request);

// Of a GPU by its name ("NVIDIA H200"): published rates (mesh/known_profiles.cc), or the profile
// that the mode names. Empty, with a line in the log, for one that is not known.
Result<std::string> GpuProfileText(const std::string& mode, const std::string& gpu,
                                   int64_t memory_bytes);

// "AMD EPYC 7763 64-Core Processor, 16 cores; " and `build`, which says what binary measured.
std::string MachineDescription(const std::string& build);
// In the folder for temporary files, one per user; empty without such a folder.
std::string MeasuringLockPath();

}  // namespace meshwright::profile
