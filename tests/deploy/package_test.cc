// Packages: what cpack makes runs from another folder, and says what it needs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"

namespace meshwright::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Package : public ::testing::Test {
 protected:
  // Runs a command of a shell in the test's folder, with nothing of our environment but the PATH
  // of a bare machine; its standard output.
  std::string Shell(const std::string& script) {
    SubprocessOptions options;
    options.args = {"env", "-i",  "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir_.path(), "sh",
                    "-ec", script};
    options.directory = dir_.path();
    const auto run = RunProcess(options, 120'000);
    EXPECT_TRUE(run.has_value()) << run.error();
    if (!run.has_value()) return "";
    EXPECT_TRUE(run->exit.ok()) << script << "\n" << run->stdout_text << run->stderr_text;
    return run->stdout_text;
  }

  void Pack(const std::string& kind) {
    Shell(std::string(MESHWRIGHT_CPACK) + " -G " + kind + " -B " + dir_.File("out") +
          " --config " MESHWRIGHT_BUILD_DIR
          "/CPackConfig.cmake > pack.log 2>&1 || "
          "{ cat pack.log; exit 1; }");
  }

  TempDir dir_ = TempDir::Make("mw-package").value();
};

// A cluster starts, trains the five-line job and stops.
constexpr char kTrain[] =
    "i=0; while [ $i -lt 300 ]; do echo \"the quick brown fox $i\"; i=$((i+1)); done > "
    "my-text.txt\n"
    "cp $P/share/doc/meshwright/examples/my-text.toml .\n"
    "$P/bin/meshwright up --workers 2 --port 0 --metrics-port 0 --profile off > up.log\n"
    "trap '$P/bin/meshwright down > /dev/null' EXIT\n"
    "export MESHWRIGHT_ADDRESS=$(sed -n 's/^address //p' runs/local/cluster.txt)\n"
    "$P/bin/meshwright submit my-text.toml --set training.steps=5\n"
    "$P/bin/meshwright down\n";

TEST_F(Package, TheTarballBringsItsLibrariesAlongAndRunsAnywhere) {
  Pack("TGZ");
  Shell("mkdir elsewhere; tar -xzf out/*.tar.gz -C elsewhere --strip-components=1");
  const std::string prefix = dir_.File("elsewhere");
  EXPECT_FALSE(FileExists(prefix + "/include")) << "headers are for `cmake --install`";
  // All libraries but those of glibc are its own.
  for (const std::string& line : Split(Shell("ldd " + prefix + "/bin/meshwright"), '\n')) {
    const size_t arrow = line.find(" => ");
    if (arrow == std::string::npos) continue;
    const std::string name(Trim(line.substr(0, arrow)));
    const std::string path = line.substr(arrow + 4);
    const bool of_glibc = name.starts_with("libc.so") || name.starts_with("libm.so") ||
                          name.starts_with("libdl.so") || name.starts_with("libpthread.so") ||
                          name.starts_with("librt.so");
    EXPECT_EQ(path.starts_with(prefix), !of_glibc) << line;
  }
  EXPECT_THAT(Shell("P=" + prefix + "\n" + kTrain), HasSubstr("SUCCEEDED after 5 steps"));
  EXPECT_THAT(Shell("bash -n " + prefix +
                    "/share/bash-completion/completions/meshwright && "
                    "grep -c complete " +
                    prefix + "/share/bash-completion/completions/meshwright"),
              Not(HasSubstr("0\n")));
}

TEST_F(Package, TheDebNeedsTheLibrariesOfDebian) {
  Pack("DEB");
  const std::string needs = Shell("dpkg-deb -f out/*.deb Depends");
  EXPECT_THAT(needs, AllOf(HasSubstr("libgrpc++1.51"), HasSubstr("libprotobuf32"),
                           HasSubstr("libdnnl2"), HasSubstr("libc6 (>= 2.")));
  Shell("dpkg-deb -x out/*.deb root");
  EXPECT_FALSE(FileExists(dir_.File("root/usr/lib/meshwright/bundle")));
  EXPECT_THAT(Shell("P=$PWD/root/usr\n" + std::string(kTrain)),
              HasSubstr("SUCCEEDED after 5 steps"));
}

}  // namespace
}  // namespace meshwright::testing
