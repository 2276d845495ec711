// deploy/ssh: workers on the hosts of a file, with an ssh that stays on this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "base/file.h"
#include "tests/e2e/leftovers.h"
#include "tests/e2e/process_cluster.h"

namespace meshwright::testing {
namespace {

TEST(SshHosts, EachGetsAWorkerAndKeepsItUntilTheEnd) {
  ProcessClusterOptions options;
  options.workers = 1;
  auto cluster = ProcessCluster::Start(options).value();
  const TempDir dir = TempDir::Make().value();
  // What ssh does, on this machine.
  const std::string ssh = dir.File("ssh");
  ASSERT_TRUE(WriteFileAtomic(ssh,
                              "#!/bin/bash\nwhile [ \"$1\" = -o ]; do shift 2; done\nshift\n"
                              "exec bash -c \"$*\"\n",
                              0755)
                  .ok());
  const std::string hosts = dir.File("hosts");
  ASSERT_TRUE(WriteFileAtomic(hosts, "# two\n127.0.0.1 --devices 2\nlocalhost\n").ok());
  SubprocessOptions script;
  script.args = {std::string(MESHWRIGHT_SOURCE_DIR) + "/deploy/ssh/meshwright-hosts",
                 hosts,
                 "--address",
                 cluster->address(),
                 "--profile",
                 "off"};
  script.env = {{"MESHWRIGHT_SSH", ssh}, {"MESHWRIGHT_BINARY", MESHWRIGHT_BINARY}};
  script.stderr_to = OutputTo::File(dir.File("log"));
  auto running = Subprocess::Start(script).value();
  const Status ready = cluster->WaitReady(3);
  EXPECT_TRUE(ready.ok()) << ready << ReadFile(dir.File("log")).value_or("");
  ASSERT_TRUE(running->Signal(SIGTERM).ok());
  const auto exit = running->Wait(30'000);
  EXPECT_TRUE(exit.has_value()) << "it does not end";
  EXPECT_TRUE(WaitUntil(
      [&] {
        const auto workers = cluster->client().Workers();
        return workers.has_value() &&
               std::count_if(workers->begin(), workers->end(),
                             [](const auto& worker) { return worker.state == "READY"; }) == 1;
      },
      30'000));
}

}  // namespace
}  // namespace meshwright::testing
