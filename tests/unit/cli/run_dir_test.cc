#include "cli/run_dir.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "base/subprocess.h"
#include "cli/args.h"
#include "cli/connect.h"
#include "cli/daemon.h"
#include "report/plan_report.h"

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

TEST(RunDir, DamageIsReportedWithThePath) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  ASSERT_TRUE(WriteFileAtomic(ClusterFile(folder->path()), "hello\n").ok());
  const auto state = LoadCluster(folder->path());
  ASSERT_FALSE(state);
  EXPECT_NE(state.error().message().find(ClusterFile(folder->path())), std::string::npos);
}

TEST(RunDir, OnlyOneHasTheLock) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  auto first = LockRunDir(folder->path(), 0);
  ASSERT_TRUE(first) << first.error();
  const auto second = LockRunDir(folder->path(), 0);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(ExitCodeOf(second.error()), kExitUsage) << "as docs/cli.md says of a second `up`";
  EXPECT_NE(second.error().message().find(folder->path()), std::string::npos);
  const auto patient = LockRunDir(folder->path(), 30);
  ASSERT_FALSE(patient);
  EXPECT_EQ(patient.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(EndStarter(folder->path()), std::nullopt) << "the holder starts no cluster";
  *first = UniqueFd();
  EXPECT_TRUE(LockRunDir(folder->path(), 0));
  EXPECT_NE(LockRunDir("/proc/none", 0).error().message().find("choose another --dir"),
            std::string::npos);
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
  // Not `tail -f`: it ends by itself when nobody reads its output any more.
  const auto obedient = Shell("echo up; exec sleep 1000");
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

TEST(Daemon, LastLinesOfThisStartOnly) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  Daemon daemon;
  daemon.name = "worker-0";
  daemon.log_path = folder->File("log");
  daemon.log_begin_bytes = 4;
  ASSERT_TRUE(WriteFileAtomic(daemon.log_path, "old\nnew\n").ok());
  const std::string text = EndedEarly(daemon, "while it started").message();
  EXPECT_NE(text.find("new"), std::string::npos) << text;
  EXPECT_EQ(text.find("old"), std::string::npos) << text;
  EXPECT_EQ(LastLines(daemon.log_path, 9, 8), "");
}

struct PipeEnds {
  PipeEnds() { EXPECT_EQ(::pipe(ends), 0); }
  int ends[2];
};

TEST(Daemon, RunsOnlyWhenItsStarterLetsItGo) {
  EXPECT_TRUE(AwaitStart(-1).ok());
  const PipeEnds go;
  Daemon daemon;
  daemon.start = UniqueFd(go.ends[1]);
  LetGo(daemon);
  EXPECT_TRUE(AwaitStart(go.ends[0]).ok());
  const PipeEnds dead;
  ::close(dead.ends[1]);  // as the system does for a starter that was killed
  EXPECT_EQ(AwaitStart(dead.ends[0]).code(), StatusCode::kFailedPrecondition);
}

TEST(Daemon, WaitReadyEndsOnInterruptAndNamesTheWholePatience) {
  const PipeEnds silent;
  const UniqueFd write_end(silent.ends[1]);
  Daemon daemon;
  daemon.name = "controller";
  daemon.ready = UniqueFd(silent.ends[0]);
  const auto stopped = WaitReady(daemon, {Deadline::After(60'000), 60'000, [] { return true; }});
  EXPECT_EQ(stopped.error().code(), StatusCode::kCancelled);
  const auto late = WaitReady(daemon, {Deadline::After(0), 200, {}});
  EXPECT_EQ(late.error().code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(late.error().message().find("within 200 ms"), std::string::npos) << late.error();
  ASSERT_EQ(::write(write_end.get(), "7 8\n", 4), 4);
  EXPECT_EQ(*WaitReady(daemon, {Deadline::After(60'000), 60'000, {}}), "7 8");
}

TEST(Connect, UsersFileHasOnlyKnownKeysOfTheRightType) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  ASSERT_TRUE(MakeDirs(folder->File("meshwright")).ok());
  const config::Environment environment =
      [&](const std::string& name) -> std::optional<std::string> {
    if (name == "XDG_CONFIG_HOME") return folder->path();
    return std::nullopt;
  };
  const auto error = [&](const char* text) {
    EXPECT_TRUE(WriteFileAtomic(folder->File("meshwright/config.toml"), text).ok());
    const auto address = ResolveAddress({}, environment);
    return address ? "no error" : address.error().message();
  };
  EXPECT_NE(error("adress = \"h:1\"\n").find("config.toml:1:1: unknown key 'adress' (did you mean"),
            std::string::npos);
  EXPECT_NE(error("address = 7700\n").find("address must be text"), std::string::npos);
  EXPECT_NE(error("address = \"h\"\n").find("write host:port"), std::string::npos);
  EXPECT_EQ(error("address = \"h:1\"\n"), "no error");
  EXPECT_EQ(error(""), "no error");
}

TEST(Connect, AnEmptyTokenFileDoesNotTurnTheTokenOff) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  GlobalArgs global;
  global.token_file = folder->File("token");
  const config::Environment none = [](const std::string&) { return std::nullopt; };
  ASSERT_TRUE(WriteFileAtomic(global.token_file, " \n", 0600).ok());
  const auto empty = LoadToken(global, none);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(empty.error().message().find(global.token_file), std::string::npos);
  ASSERT_TRUE(WriteFileAtomic(global.token_file, "abc\n", 0600).ok());
  EXPECT_EQ(*LoadToken(global, none), "abc");
}

TEST(Connect, AddressPrecedence) {
  auto folder = TempDir::Make();
  ASSERT_TRUE(folder);
  ASSERT_TRUE(MakeDirs(folder->File("meshwright")).ok());
  ASSERT_TRUE(
      WriteFileAtomic(folder->File("meshwright/config.toml"), "address = \"file:1\"\n").ok());
  std::string variable = "env:1";
  const config::Environment environment =
      [&](const std::string& name) -> std::optional<std::string> {
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
  EXPECT_TRUE(*SaysAddress(environment));
  const config::Environment nothing = [](const std::string&) { return std::nullopt; };
  EXPECT_EQ(*ResolveAddress(global, nothing), "127.0.0.1:7700");
  EXPECT_FALSE(*SaysAddress(nothing));
}

TEST(PlanReport, MeshTextParsesOrSaysHowToWriteIt) {
  const auto mesh = report::ParseMesh("data=2,tensor=3");
  ASSERT_TRUE(mesh) << mesh.error();
  EXPECT_EQ(mesh->device_count(), 6);
  EXPECT_EQ(mesh->AxisSize("tensor"), 3);
  for (const char* text : {"", "data", "data=", "data=0", "=2", "data=2x", "a=65536,b=65536"}) {
    EXPECT_EQ(report::ParseMesh(text).error().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(PlanReport, MisfitsAreWhatTheUserCanChange) {
  EXPECT_TRUE(report::IsMisfit(InvalidArgument("x")));
  EXPECT_TRUE(report::IsMisfit(ResourceExhausted("x")));
  EXPECT_FALSE(report::IsMisfit(Internal("x")));
}

TEST(PlanReport, TopologyHasTheDevicesOfReadyWorkers) {
  client::WorkerInfo worker;
  worker.name = "a";
  worker.state = "READY";
  worker.devices = 2;
  client::WorkerInfo lost = worker;
  lost.state = "LOST";
  const auto topology = report::TopologyOf({worker, lost});
  ASSERT_TRUE(topology);
  EXPECT_EQ(topology->devices.size(), 2u);
  EXPECT_EQ(report::TopologyOf({lost}).error().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace meshwright::cli
