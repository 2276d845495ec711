#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text.h"

namespace meshwright::cli {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kGib = int64_t{1} << 30;

constexpr std::array<const char*, 3> kLevelWords = {"ok", "warn", "fail"};

Check Ok(std::string name, std::string text) {
  return {std::move(name), CheckLevel::kOk, std::move(text), ""};
}
Check Warn(std::string name, std::string text, std::string mend) {
  return {std::move(name), CheckLevel::kWarn, std::move(text), std::move(mend)};
}
Check Fault(std::string name, std::string text, std::string mend) {
  return {std::move(name), CheckLevel::kFail, std::move(text), std::move(mend)};
}

// ---- The machine ----

// "MemAvailable:  1234 kB" of /proc/meminfo, in bytes.
std::optional<int64_t> MemInfo(const std::string& text, std::string_view key) {
  for (const std::string& line : Split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    const std::string_view rest = Trim(std::string_view(line).substr(key.size()));
    const std::optional<int64_t> kib = ParseInt(rest.substr(0, rest.find(' ')));
    return kib ? std::optional(*kib * 1024) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<int64_t> NumberIn(const Machine& machine, const std::string& path) {
  const std::optional<std::string> text = machine.read(path);
  return text ? ParseInt(Trim(*text)) : std::nullopt;
}

Check CheckCores(const Machine& machine) {
  const int allowed = machine.cores_allowed();
  const int online = machine.cores_online();
  const std::string text = fmt::format("{} of {} may be used", allowed, online);
  const std::optional<std::string> quota = machine.read("/sys/fs/cgroup/cpu.max");
  if (quota && !quota->starts_with("max")) {
    const std::vector<std::string> words = Split(std::string(Trim(*quota)), ' ');
    const auto time = ParseInt(words[0]);
    const auto period = words.size() > 1 ? ParseInt(words[1]) : std::nullopt;
    if (time && period && *period > 0 && *time < allowed * *period) {
      return Warn("cores",
                  fmt::format("{}, but the control group has {:.1f} of them: threads are halted "
                              "when they have used that up",
                              text, static_cast<double>(*time) / static_cast<double>(*period)),
                  "give the container whole cores (docker run --cpuset-cpus, a CPU request equal "
                  "to its limit), or fewer threads: --devices, --threads-per-device");
    }
  }
  if (allowed < online) {
    return Warn("cores", text,
                "workers pin to these only; taskset, the container or Slurm says so: ask for all, "
                "or start the worker with as many --devices times --threads-per-device");
  }
  return Ok("cores", text);
}

Check CheckMemory(const Machine& machine) {
  const std::string info = machine.read("/proc/meminfo").value_or("");
  const std::optional<int64_t> total = MemInfo(info, "MemTotal:");
  std::optional<int64_t> free = MemInfo(info, "MemAvailable:");
  if (!total || !free) {
    return Warn("memory", "/proc/meminfo does not say", "mount /proc in the container");
  }
  std::string text = fmt::format("{} of {} are free", FormatBytes(*free), FormatBytes(*total));
  const auto limit = NumberIn(machine, "/sys/fs/cgroup/memory.max");
  if (limit) {
    const int64_t used = NumberIn(machine, "/sys/fs/cgroup/memory.current").value_or(0);
    text += fmt::format(", the control group may use {}", FormatBytes(*limit));
    free = std::min(*free, std::max<int64_t>(*limit - used, 0));
  }
  const char* const mend =
      "end what else runs here, raise the container's limit, or start workers with a smaller "
      "--memory-mib";
  if (*free < kGib / 4) return Fault("memory", text, mend);
  if (*free < kGib) return Warn("memory", text, mend);
  return Ok("memory", text);
}

Check CheckHugePages(const Machine& machine) {
  const char* const path = "/sys/kernel/mm/transparent_hugepage/enabled";
  const std::optional<std::string> text = machine.read(path);
  if (!text) return Ok("huge pages", "this kernel has none to choose");
  if (text->find("[never]") == std::string::npos) {
    return Ok("huge pages", std::string(Trim(*text)));
  }
  return Warn("huge pages", "the kernel gives none: products of large matrices are slower",
              fmt::format("echo madvise > {}", path));
}

Check CheckFiles(const Machine& machine) {
  constexpr int64_t kWanted = 4096;
  const ProcessLimit limit = machine.open_files();
  const bool enough = limit.hard < 0 || limit.hard >= kWanted;
  const std::string text = limit.hard < 0
                               ? "no limit"
                               : fmt::format("{} at once, of {} at most", limit.soft, limit.hard);
  if (enough) return Ok("open files", text);
  const char* const mend =
      "ulimit -Hn 65536 as root, LimitNOFILE=65536 in the unit, or docker run --ulimit "
      "nofile=65536";
  return limit.hard < 512 ? Fault("open files", text, mend) : Warn("open files", text, mend);
}

Check CheckLocked(const Machine& machine, bool gpus) {
  const ProcessLimit limit = machine.locked_memory();
  if (limit.hard < 0) return Ok("locked memory", "no limit");
  const std::string text = fmt::format("{} at most", FormatBytes(limit.hard));
  if (!gpus) return Ok("locked memory", text + ", which CPU devices do not need");
  if (limit.hard >= kGib) return Ok("locked memory", text);
  return Warn("locked memory", text + ": NCCL over InfiniBand cannot register its buffers",
              "ulimit -l unlimited, LimitMEMLOCK=infinity in the unit, or docker run --ulimit "
              "memlock=-1");
}

Check CheckShared(const Machine& machine) {
  const Result<DiskSpace> space = machine.space("/dev/shm");
  const char* const mend =
      "docker run --shm-size=2g, an emptyDir of medium Memory at /dev/shm, or "
      "workers with --transport tcp";
  if (!space.has_value()) {
    return Fault("shared memory", "there is no /dev/shm", mend);
  }
  const std::string text = fmt::format("{} of {} are free", FormatBytes(space->free_bytes),
                                       FormatBytes(space->total_bytes));
  if (space->free_bytes < 64 * kMib) return Fault("shared memory", text, mend);
  if (space->free_bytes < kGib / 2) return Warn("shared memory", text, mend);
  return Ok("shared memory", text);
}

Check CheckDisk(const Machine& machine, const std::string& folder) {
  const std::string name = "disk " + folder;
  const Result<DiskSpace> space = machine.space(folder);
  if (!space.has_value()) {
    return Fault(name, space.error().message(), fmt::format("mkdir -p {}", folder));
  }
  const Result<double> speed = machine.write_speed(folder);
  if (!speed.has_value()) {
    return Fault(name, fmt::format("nothing can be written: {}", speed.error().message()),
                 "give the user that runs it the folder (chown), or free some space");
  }
  const std::string text =
      fmt::format("{} of {} are free, {:.0f} MiB/s", FormatBytes(space->free_bytes),
                  FormatBytes(space->total_bytes), *speed);
  if (space->free_bytes < kGib / 2) {
    return Fault(name, text, "free some space, or choose a folder of another disk");
  }
  if (space->free_bytes < 10 * kGib) {
    return Warn(name, text, "checkpoints and blobs fill this soon: free some space");
  }
  if (*speed < 50) {
    return Warn(name, text, "that is slow for checkpoints: choose a folder of a faster disk");
  }
  return Ok(name, text);
}

Check CheckBuffers(const Machine& machine) {
  constexpr int64_t kWanted = 4 * kMib;
  const auto send = NumberIn(machine, "/proc/sys/net/core/wmem_max");
  const auto receive = NumberIn(machine, "/proc/sys/net/core/rmem_max");
  const auto last = [&](const char* path) -> std::optional<int64_t> {
    const std::optional<std::string> text = machine.read(path);
    if (!text) return std::nullopt;
    const std::string trimmed(Trim(*text));
    return ParseInt(trimmed.substr(trimmed.find_last_of(" \t") + 1));
  };
  // The kernel tunes the buffers of TCP itself, up to this.
  const auto tuned_send = last("/proc/sys/net/ipv4/tcp_wmem");
  const auto tuned_receive = last("/proc/sys/net/ipv4/tcp_rmem");
  if (!tuned_send || !tuned_receive) {
    return Ok("tcp buffers", "this kernel or container does not say");
  }
  const std::string text = fmt::format(
      "send up to {}, receive up to {} (core: {}, {})", FormatBytes(*tuned_send),
      FormatBytes(*tuned_receive), FormatBytes(send.value_or(0)), FormatBytes(receive.value_or(0)));
  if (*tuned_send >= kWanted && *tuned_receive >= kWanted) return Ok("tcp buffers", text);
  return Warn("tcp buffers", text + ": little for links of 10 Gbit/s and more",
              "sysctl -w net.ipv4.tcp_wmem='4096 65536 16777216' net.ipv4.tcp_rmem='4096 131072 "
              "16777216'");
}

// ---- GPUs ----

bool HasGpus(const Machine& machine) { return machine.file("/dev/nvidia0").has_value(); }

void AddGpus(const Machine& machine, std::vector<Check>& checks) {
  const bool gpus = HasGpus(machine);
  const LibraryFacts driver = machine.library("libcuda.so.1", "cuDriverGetVersion");
  if (!gpus && !driver.found) return checks.push_back(Ok("gpu", "none here"));
  if (!driver.found) {
    return checks.push_back(
        Fault("gpu driver", fmt::format("there is a GPU and no driver library: {}", driver.error),
              "install the driver, or start the container with --gpus all"));
  }
  const auto shown = [](const LibraryFacts& facts) {
    return facts.version.empty() ? std::string("found") : facts.version;
  };
  checks.push_back(Ok("gpu driver", shown(driver)));
  const std::array<std::array<const char*, 3>, 3> libraries = {
      {{"nccl", "libnccl.so.2", "ncclGetVersion"},
       {"cudnn", "libcudnn.so.9", "cudnnGetVersion"},
       {"nvml", "libnvidia-ml.so.1", ""}}};
  for (const auto& [name, file, function] : libraries) {
    const LibraryFacts facts = machine.library(file, function);
    if (facts.found) {
      checks.push_back(Ok(name, shown(facts)));
    } else {
      checks.push_back(Warn(name, facts.error,
                            fmt::format("install it, or add its folder to LD_LIBRARY_PATH; without "
                                        "{} devices of it are not used as they could be",
                                        file)));
    }
  }
}

// ---- The cluster ----

std::string HostOf(const std::string& host_port) {
  const size_t colon = host_port.rfind(':');
  std::string host = host_port.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

Check CheckName(const Machine& machine, const std::string& what, const std::string& host) {
  const Result<std::string> address = machine.resolve(host);
  if (address.has_value()) return Ok(what, fmt::format("{} is {}", host, *address));
  return Warn(what, fmt::format("{}: {}", host, address.error().message()),
              "add it to /etc/hosts or to the DNS of the cluster, or use addresses");
}

Check CheckSkew(const ClusterFacts& cluster) {
  const std::string text = fmt::format("{} ms against the controller's, which answers in {} ms",
                                       cluster.skew_ms, cluster.round_trip_ms);
  const int64_t beyond_ms = std::abs(cluster.skew_ms) - cluster.round_trip_ms;
  const char* const mend =
      "let chrony or systemd-timesyncd set the clock: timedatectl set-ntp true";
  if (beyond_ms > 60'000) return Fault("clock", text, mend);
  if (beyond_ms > 1'000) return Warn("clock", text, mend);
  return Ok("clock", text);
}

void AddWorkers(const Machine& machine, const DoctorQuestion& question, const ClusterFacts& cluster,
                std::vector<Check>& checks) {
  std::set<std::string> others;
  for (const WorkerFacts& worker : cluster.workers) {
    const std::string name = "worker " + worker.name;
    if (worker.state == "LOST" || worker.state == "LEFT") {
      if (worker.state == "LOST") {
        checks.push_back(
            Warn(name, "it is lost",
                 fmt::format("meshwright logs --worker {}; start it again", worker.name)));
      }
      continue;
    }
    if (!worker.version.empty() && worker.version != question.version) others.insert(worker.name);
    const Status dialed = machine.dial(worker.address);
    checks.push_back(
        dialed.ok() ? Ok(name, fmt::format("its data port {} takes connections", worker.address))
                    : Fault(name,
                            fmt::format("its data port {} cannot be reached from here: {}",
                                        worker.address, dialed.message()),
                            "start it with --advertise and an address that other hosts reach, "
                            "and open --data-port in the firewall"));
  }
  if (others.empty()) return;
  checks.push_back(
      Warn("versions of workers",
           fmt::format("another one than {} on: {}", question.version, fmt::join(others, ", ")),
           "install this version there and restart them one by one"));
}

void AddCluster(const Machine& machine, const DoctorQuestion& question,
                std::vector<Check>& checks) {
  const std::string host_name = machine.host_name();
  checks.push_back(CheckName(machine, "own name", host_name));
  if (question.offline) return;
  if (!question.address.starts_with("unix:")) {
    checks.push_back(CheckName(machine, "controller's name", HostOf(question.address)));
  }
  const Result<ClusterFacts> cluster = machine.cluster();
  if (!cluster.has_value()) {
    return checks.push_back(
        cluster.error().code() == StatusCode::kUnavailable
            ? Warn("controller", fmt::format("nobody answers at {}", question.address),
                   "start one (`meshwright up`, `meshwright controller`), name it with --address, "
                   "or open its port in the firewall; --offline leaves this out")
            : Fault("controller", cluster.error().message(),
                    "give the cluster's token with --token-file or $MESHWRIGHT_TOKEN, or look at "
                    "its log"));
  }
  if (cluster->version == question.version) {
    checks.push_back(
        Ok("controller", fmt::format("version {} at {}", cluster->version, question.address)));
  } else {
    checks.push_back(
        Warn("controller",
             fmt::format("it is version {}, this is {}", cluster->version, question.version),
             "use one version for all; upgrade workers first"));
  }
  if (cluster->has_clock) checks.push_back(CheckSkew(*cluster));
  AddWorkers(machine, question, *cluster, checks);
}

std::optional<Check> CheckSecret(const Machine& machine, const std::string& path) {
  const std::optional<FileFacts> file = machine.file(path);
  if (!file) return Fault("secret " + path, "there is no such file", "write it, or leave it out");
  const std::string text = fmt::format("mode {:03o}", file->mode & 0777U);
  if (!file->own) {
    return Warn("secret " + path, "it is somebody else's file",
                fmt::format("chown $USER {}", path));
  }
  if ((file->mode & 0077U) == 0) return Ok("secret " + path, text);
  return Fault("secret " + path, text + ": others on this machine can read it",
               fmt::format("chmod 600 {}", path));
}

}  // namespace

std::vector<Check> Examine(const Machine& machine, const DoctorQuestion& question) {
  std::vector<Check> checks = {CheckCores(machine),
                               CheckMemory(machine),
                               CheckHugePages(machine),
                               CheckFiles(machine),
                               CheckLocked(machine, HasGpus(machine)),
                               CheckShared(machine),
                               CheckBuffers(machine)};
  for (const std::string& folder : question.folders) checks.push_back(CheckDisk(machine, folder));
  for (const std::string& path : question.secrets) {
    if (auto check = CheckSecret(machine, path)) checks.push_back(*std::move(check));
  }
  AddGpus(machine, checks);
  AddCluster(machine, question, checks);
  return checks;
}

CheckLevel WorstOf(const std::vector<Check>& checks) {
  CheckLevel worst = CheckLevel::kOk;
  for (const Check& check : checks) worst = std::max(worst, check.level);
  return worst;
}

std::string FormatChecks(const std::vector<Check>& checks) {
  size_t width = 0;
  std::array<int, 3> counts = {0, 0, 0};
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string text;
  for (const Check& check : checks) {
    const auto level = static_cast<size_t>(check.level);
    ++counts[level];
    text += fmt::format("{:<4}  {:<{}}  {}\n", kLevelWords[level], check.name, width, check.text);
    if (!check.mend.empty()) text += fmt::format("{:<{}}  mend: {}\n", "", width + 6, check.mend);
  }
  return text + fmt::format("{} ok, {} to look at, {} to mend\n", counts[0], counts[1], counts[2]);
}

std::string ChecksJson(const std::vector<Check>& checks) {
  nlohmann::json all = nlohmann::json::array();
  for (const Check& check : checks) {
    all.push_back({{"check", check.name},
                   {"level", kLevelWords[static_cast<size_t>(check.level)]},
                   {"found", check.text},
                   {"mend", check.mend}});
  }
  const char* const worst = kLevelWords[static_cast<size_t>(WorstOf(checks))];
  const nlohmann::json whole = {{"worst", worst}, {"checks", all}};
  return whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace meshwright::cli
