#include "cli/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace meshwright::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

// A machine at which nothing is wrong, and what a test changes of it.
struct DoctorScene {
  std::map<std::string, std::string> files = {
      {"/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:   8388608 kB\n"},
      {"/sys/fs/cgroup/cpu.max", "max 100000\n"},
      {"/sys/fs/cgroup/memory.max", "max\n"},
      {"/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"},
      {"/proc/sys/net/core/wmem_max", "212992\n"},
      {"/proc/sys/net/core/rmem_max", "212992\n"},
      {"/proc/sys/net/ipv4/tcp_wmem", "4096\t65536\t16777216\n"},
      {"/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t16777216\n"}};
  std::map<std::string, FileFacts> modes = {{"token", {0600, true}}};
  std::map<std::string, LibraryFacts> libraries;
  std::map<std::string, DiskSpace> disks = {{"/dev/shm", {8 * kGib, 8 * kGib}},
                                            {"/state", {100 * kGib, 200 * kGib}}};
  double mib_per_s = 800;
  ProcessLimit open_files{1024, 1 << 20};
  ProcessLimit locked{8 << 20, 8 << 20};
  int cores = 16;
  bool resolves = true;
  Result<ClusterFacts> cluster = ClusterFacts{
      "1.0", 20, 3, true, {{"w0", "READY", "10.0.0.2:7000", "1.0"}, {"w1", "LEFT", "", "0.9"}}};
  Status dialed;
  DoctorQuestion question{"1.0", "head:7700", false, {"/state"}, {"token"}};

  std::vector<Check> Examined() {
    Machine machine;
    machine.read = [this](const std::string& path) -> std::optional<std::string> {
      const auto found = files.find(path);
      return found == files.end() ? std::nullopt : std::optional(found->second);
    };
    machine.cores_online = [] { return 16; };
    machine.cores_allowed = [this] { return cores; };
    machine.open_files = [this] { return open_files; };
    machine.locked_memory = [this] { return locked; };
    machine.space = [this](const std::string& path) -> Result<DiskSpace> {
      const auto found = disks.find(path);
      if (found == disks.end()) return Fail(NotFound("no " + path));
      return found->second;
    };
    machine.write_speed = [this](const std::string&) -> Result<double> {
      if (mib_per_s < 0) return Fail(PermissionDenied("Permission denied"));
      return mib_per_s;
    };
    machine.resolve = [this](const std::string&) -> Result<std::string> {
      if (!resolves) return Fail(NotFound("Name or service not known"));
      return std::string("10.0.0.1");
    };
    machine.dial = [this](const std::string&) { return dialed; };
    machine.library = [this](const std::string& name, const std::string&) {
      const auto found = libraries.find(name);
      return found == libraries.end() ? LibraryFacts{false, "", name + ": no such file"}
                                      : found->second;
    };
    machine.file = [this](const std::string& path) -> std::optional<FileFacts> {
      const auto found = modes.find(path);
      return found == modes.end() ? std::nullopt : std::optional(found->second);
    };
    machine.host_name = [] { return std::string("node-1"); };
    machine.cluster = [this] { return cluster; };
    return Examine(machine, question);
  }
  // The check of that name; an empty one: there is none.
  Check Of(const std::string& name) {
    for (const Check& check : Examined()) {
      if (check.name == name) return check;
    }
    return {};
  }
};

TEST(Doctor, OfASoundMachineFindsNothing) {
  DoctorScene scene;
  const std::vector<Check> checks = scene.Examined();
  EXPECT_EQ(WorstOf(checks), CheckLevel::kOk) << FormatChecks(checks);
  for (const Check& check : checks) EXPECT_EQ(check.mend, "") << check.name;
  EXPECT_THAT(FormatChecks(checks), AllOf(HasSubstr("ok    cores"), HasSubstr("0 to mend")));
}

TEST(Doctor, EveryFaultHasAMendAndItsLevel) {
  const auto fails = [](const std::string& name, auto change) {
    DoctorScene scene;
    change(scene);
    const Check check = scene.Of(name);
    EXPECT_EQ(check.level, CheckLevel::kFail) << name << ": " << check.text;
    EXPECT_NE(check.mend, "") << name;
    EXPECT_EQ(WorstOf(scene.Examined()), CheckLevel::kFail);
    return check;
  };
  fails("memory", [](auto& s) { s.files["/sys/fs/cgroup/memory.max"] = "104857600\n"; });
  fails("shared memory", [](auto& s) { s.disks["/dev/shm"].free_bytes = 1 << 20; });
  fails("open files", [](auto& s) { s.open_files = {256, 256}; });
  fails("disk /state", [](auto& s) { s.mib_per_s = -1; });
  fails("disk /state", [](auto& s) { s.disks["/state"].free_bytes = 1 << 20; });
  fails("clock", [](auto& s) { s.cluster->skew_ms = -90'000; });
  const Check token = fails("secret token", [](auto& s) { s.modes["token"].mode = 0644; });
  EXPECT_EQ(token.mend, "chmod 600 token");
  fails("secret token", [](auto& s) { s.modes.clear(); });
  fails("worker w0", [](auto& s) { s.dialed = DeadlineExceeded("no answer within 2000 ms"); });
  fails("controller", [](auto& s) { s.cluster = Fail(Unauthenticated("wrong token")); });
  fails("gpu driver", [](auto& s) { s.modes["/dev/nvidia0"] = {0666, true}; });
}

TEST(Doctor, WhatWorksLessWellIsAWarning) {
  const auto warns = [](const std::string& name, auto change) {
    DoctorScene scene;
    change(scene);
    const Check check = scene.Of(name);
    EXPECT_EQ(check.level, CheckLevel::kWarn) << name << ": " << check.text;
    EXPECT_NE(check.mend, "") << name;
    EXPECT_EQ(WorstOf(scene.Examined()), CheckLevel::kWarn);
    return check;
  };
  warns("cores", [](auto& s) { s.cores = 4; });
  EXPECT_THAT(
      warns("cores", [](auto& s) { s.files["/sys/fs/cgroup/cpu.max"] = "150000 100000\n"; }).text,
      HasSubstr("the control group has 1.5 of them"));
  warns("huge pages", [](auto& s) {
    s.files["/sys/kernel/mm/transparent_hugepage/enabled"] = "always madvise [never]\n";
  });
  warns("tcp buffers", [](auto& s) { s.files["/proc/sys/net/ipv4/tcp_rmem"] = "4096 1 2097152"; });
  warns("disk /state", [](auto& s) { s.mib_per_s = 12; });
  warns("clock", [](auto& s) { s.cluster->skew_ms = 2'000; });
  warns("own name", [](auto& s) { s.resolves = false; });
  warns("controller", [](auto& s) { s.cluster = Fail(Unavailable("nobody")); });
  warns("controller", [](auto& s) { s.cluster->version = "0.9"; });
  warns("versions of workers", [](auto& s) { s.cluster->workers[0].version = "0.9"; });
  EXPECT_THAT(warns("worker w0", [](auto& s) { s.cluster->workers[0].state = "LOST"; }).mend,
              HasSubstr("meshwright logs --worker w0"));
  warns("locked memory", [](auto& s) {
    s.modes["/dev/nvidia0"] = {0666, true};
    s.libraries = {{"libcuda.so.1", {true, "CUDA 13.0", ""}},
                   {"libnccl.so.2", {true, "2.28.3", ""}},
                   {"libcudnn.so.9", {true, "9.1.0", ""}},
                   {"libnvidia-ml.so.1", {true, "", ""}}};
  });
}

TEST(Doctor, OfflineAsksNobody) {
  DoctorScene scene;
  scene.question.offline = true;
  scene.cluster = Fail(Internal("it was asked"));
  EXPECT_EQ(WorstOf(scene.Examined()), CheckLevel::kOk);
  EXPECT_EQ(scene.Of("controller").name, "");
}

TEST(Doctor, SkewWithinTheTimeOfTheCallIsNone) {
  DoctorScene scene;
  scene.cluster->skew_ms = 2'500;
  scene.cluster->round_trip_ms = 3'000;
  EXPECT_EQ(scene.Of("clock").level, CheckLevel::kOk);
}

TEST(Doctor, SaysTheSameAsJson) {
  DoctorScene scene;
  scene.cores = 4;
  const auto json = nlohmann::json::parse(ChecksJson(scene.Examined()));
  EXPECT_EQ(json["worst"], "warn");
  EXPECT_EQ(json["checks"][0]["check"], "cores");
  EXPECT_EQ(json["checks"][0]["level"], "warn");
  EXPECT_EQ(json["checks"][0]["found"], "4 of 16 may be used");
}

// Whatever it is like.
TEST(Doctor, ThisMachineAnswersAllProbes) {
  Machine machine = ThisMachine(500);
  machine.cluster = []() -> Result<ClusterFacts> { return Fail(Unavailable("none")); };
  EXPECT_GE(machine.cores_allowed(), 1);
  EXPECT_GE(machine.cores_online(), machine.cores_allowed());
  EXPECT_TRUE(machine.read("/proc/meminfo"));
  EXPECT_GT(machine.space("/tmp/there/is/no/such/folder")->total_bytes, 0);
  EXPECT_GT(machine.write_speed("/tmp").value(), 0);
  EXPECT_FALSE(machine.library("libthere-is-no-such-library.so", "").found);
  EXPECT_EQ(machine.resolve("127.0.0.1").value(), "127.0.0.1");
  EXPECT_FALSE(machine.dial("127.0.0.1:1").ok());
  EXPECT_FALSE(machine.file("/there/is/no/such/file"));
  const std::vector<Check> checks = Examine(machine, {"1.0", "127.0.0.1:1", false, {"/tmp"}, {}});
  EXPECT_GE(checks.size(), 10U);
}

}  // namespace
}  // namespace meshwright::cli
