#include "cli/run_dir.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/subprocess.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "cli/plan_report.h"

namespace meshwright::cli {
namespace {

TEST(RunDir, ClusterFileRoundTrips) {
  ClusterState state;
  state.processes = {{"controller", 12, 345}, {"worker-0", 13, 346}};
  state.address = "127.0.0.1:7700";
  state.metrics_address = "127.0.0.1:7780";
  const auto parsed = ParseCluster(FormatCluster(state));
  ASSERT_TRUE(parsed) << parsed.error();
  EXPECT_EQ(*parsed, state);
}

TEST(RunDir, DamagedClusterFileIsRefused) {
  for (const char* text : {"process a b c\n", "process a 1 5\n", "process a -3 5\n", "hello\n"}) {
    EXPECT_EQ(ParseCluster(text).error().code(), StatusCode::kDataLoss) << text;
  }
}

TEST(RunDir, OnlyAProcessWithTheSameStartTimeIsAlive) {
  const uint64_t ticks = StartTicks(::getpid());
  ASSERT_GT(ticks, 0u);
  EXPECT_TRUE(IsAlive({"me", ::getpid(), ticks}));
  EXPECT_FALSE(IsAlive({"stranger", ::getpid(), ticks + 1}));
}

std::unique_ptr<Subprocess> Shell(const std::string& script) {
  SubprocessOptions options;
  options.args = {"/bin/sh", "-c", script};
  options.stdout_to = OutputTo::Pipe();
  auto child = Subprocess::Start(options);
  EXPECT_TRUE(child) << child.error();
  return child ? *std::move(child) : nullptr;
}

void AwaitFirstByte(Subprocess& child) {
  const UniqueFd out = child.TakeStdout();
  char byte;
  ASSERT_EQ(::read(out.get(), &byte, 1), 1);
}

TEST(RunDir, StopEndsObedientAndStubbornProcesses) {
  const auto obedient = Shell("echo up; exec tail -f /dev/null");
  const auto stubborn = Shell("trap '' TERM; echo up; while :; do read x < /dev/zero; done");
  ASSERT_TRUE(obedient && stubborn);
  AwaitFirstByte(*obedient);
  AwaitFirstByte(*stubborn);
  std::vector<std::string> report;
  const Status status =
      StopProcesses({{"obedient", obedient->pid(), StartTicks(obedient->pid())},
                     {"stubborn", stubborn->pid(), StartTicks(stubborn->pid())},
                     {"gone", 999'999'999, 1}},
                    200, [&](const std::string& line) { report.push_back(line); });
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_EQ(report.size(), 2u);
  EXPECT_NE(report[0].find("obedient"), std::string::npos);
  EXPECT_NE(report[0].find("stopped"), std::string::npos);
  EXPECT_NE(report[1].find("stubborn"), std::string::npos);
  EXPECT_NE(report[1].find("killed"), std::string::npos);
}

TEST(Daemon, LastLinesOfALog) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  const std::string path = folder->File("log");
  ASSERT_TRUE(WriteFileAtomic(path, "one\ntwo\nthree\n").ok());
  EXPECT_EQ(LastLines(path, 2), "two\nthree\n");
  EXPECT_EQ(LastLines(path, 9), "one\ntwo\nthree\n");
  EXPECT_EQ(LastLines(folder->File("none"), 2), "");
}

TEST(Connect, AddressPrecedence) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  ASSERT_TRUE(MakeDirs(folder->File("meshwright")).ok());
  ASSERT_TRUE(
      WriteFileAtomic(folder->File("meshwright/config.toml"), "address = \"file:1\"\n").ok());
  std::string variable = "env:1";
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    if (name == "XDG_CONFIG_HOME") return folder->path();
    if (name == "MESHWRIGHT_ADDRESS") return variable;
    return std::nullopt;
  };
  GlobalArgs global;
  global.address = "flag:1";
  EXPECT_EQ(*ResolveAddress(global, environment), "flag:1");
  global.address.clear();
  EXPECT_EQ(*ResolveAddress(global, environment), "env:1");
  variable.clear();
  EXPECT_EQ(*ResolveAddress(global, environment), "file:1");
  EXPECT_EQ(*ResolveAddress(global, [](const std::string&) { return std::nullopt; }),
            "127.0.0.1:7700");
}

TEST(PlanReport, MeshTextParsesOrSaysHowToWriteIt) {
  const auto mesh = ParseMesh("data=2,tensor=3");
  ASSERT_TRUE(mesh) << mesh.error();
  EXPECT_EQ(mesh->device_count(), 6);
  EXPECT_EQ(mesh->AxisSize("tensor"), 3);
  for (const char* text : {"", "data", "data=", "data=0", "=2", "data=2x", "a=65536,b=65536"}) {
    EXPECT_EQ(ParseMesh(text).error().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(PlanReport, TopologyHasTheDevicesOfReadyWorkers) {
  client::WorkerInfo worker;
  worker.name = "a";
  worker.state = "READY";
  worker.devices = 2;
  client::WorkerInfo lost = worker;
  lost.state = "LOST";
  const auto topology = TopologyOf({worker, lost});
  ASSERT_TRUE(topology);
  EXPECT_EQ(topology->devices.size(), 2u);
  EXPECT_EQ(TopologyOf({lost}).error().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace meshwright::cli
