// What a user of the library does: install, build a program of one's own against the installed
// package, start a cluster with the installed binary and train.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "tests/e2e/leftovers.h"
#include "tests/e2e/process_cluster.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

class Install : public ::testing::Test {
 protected:
  // Runs a command that must succeed; its standard output.
  std::string Run(const std::vector<std::string>& args,
                  const std::vector<std::pair<std::string, std::string>>& env = {},
                  int64_t timeout_ms = 60'000) {
    SubprocessOptions options;
    options.args = args;
    options.env = env;
    options.directory = dir_.path();
    options.death_signal = SIGKILL;
    const auto run = RunProcess(options, timeout_ms);
    EXPECT_TRUE(run.has_value()) << run.error();
    if (!run.has_value()) return "";
    EXPECT_TRUE(run->exit.ok()) << Join(args, " ") << ": " << run->exit.ToString() << "\n"
                                << run->stdout_text << run->stderr_text;
    return run->stdout_text;
  }

  TempDir dir_ = TempDir::Make("mw-install").value();
  Leftovers leftovers_;
};

// The numbers after `word`, in the order of the lines.
std::vector<double> NumbersAfter(const std::string& text, const std::string& word) {
  std::vector<double> numbers;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    numbers.push_back(std::atof(text.c_str() + at + word.size()));
  }
  return numbers;
}

TEST_F(Install, ProgramsOfOnesOwnBuildAgainstThePackageAndTrain) {
  const std::string prefix = dir_.File("prefix");
  const std::string build = dir_.File("build");
  Run({MESHWRIGHT_CMAKE, "--install", MESHWRIGHT_BUILD_DIR, "--prefix", prefix});
  Run({MESHWRIGHT_CMAKE, "-G", "Ninja", "-S", MESHWRIGHT_SOURCE_DIR "/examples", "-B", build,
       "-DCMAKE_PREFIX_PATH=" + prefix});
  // It must be the package under the prefix, not one that the machine has.
  const std::string cache = ReadFile(build + "/CMakeCache.txt").value_or("");
  ASSERT_THAT(cache, HasSubstr("meshwright_DIR:PATH=" + prefix));
  Run({MESHWRIGHT_CMAKE, "--build", build}, {}, 200'000);

  const std::string text = dir_.File("text.txt");
  ASSERT_TRUE(WriteFileAtomic(text, SampleText(60'000)).ok());
  const std::string binary = prefix + "/bin/meshwright";
  // Workers of one of them: with its host actors they are all that `meshwright worker` is.
  const std::string worker = build + "/policy_gradient/policy_gradient_worker";
  Run({binary, "up", "--workers", "2", "--worker-binary", worker, "--dir", "run", "--port", "0",
       "--metrics-port", "0"});
  leftovers_.Note();
  EXPECT_GT(leftovers_.noted(), 0u);
  const std::string cluster = ReadFile(dir_.File("run/cluster.txt")).value_or("");
  const size_t at = cluster.find("address ");
  ASSERT_NE(at, std::string::npos) << cluster;
  const std::string address = Split(cluster.substr(at + 8), '\n')[0];
  const auto run = [&](const std::string& example, const std::vector<std::string>& args) {
    std::vector<std::string> command = {build + "/" + example + "/" + example};
    command.insert(command.end(), args.begin(), args.end());
    return Run(command, {{"MESHWRIGHT_ADDRESS", address}});
  };
  const std::string output = run("train_mlp_lm", {text, "2", "60"});
  EXPECT_THAT(output, HasSubstr("SUCCEEDED"));
  const std::vector<double> losses = NumbersAfter(output, "  loss ");
  const std::vector<double> last = NumbersAfter(output, "final loss ");
  ASSERT_GE(losses.size(), 3u) << output;
  ASSERT_EQ(last.size(), 1u) << output;
  EXPECT_LT(last[0], losses[0] - 1) << output;
  // That these learn is shown by tests/e2e/control.
  EXPECT_THAT(run("image_classifier", {"2"}), HasSubstr("accuracy on new images: "));
  EXPECT_THAT(run("maml", {"2"}), HasSubstr("after training : error on new tasks "));
  EXPECT_THAT(run("policy_gradient", {"2"}), HasSubstr("the pole stood "));
  const std::string table = dir_.File("table.csv");
  ASSERT_TRUE(WriteFileAtomic(table, "a,b,class\n1,2,0\n2,1,1\n1,3,0\n3,1,1\n2,3,0\n").ok());
  EXPECT_THAT(run("tabular_classifier", {table, "2"}), HasSubstr("rows not trained on: "));
  Run({binary, "down", "--dir", "run"});
  EXPECT_EQ(leftovers_.Find(), "");
}

// README has the build tree's bin/ on the PATH, beside which CMake looks for packages.
TEST_F(Install, TheBuildTreeIsAPackage) {
  const std::string build = dir_.File("build");
  const char* path = std::getenv("PATH");
  Run({MESHWRIGHT_CMAKE, "-G", "Ninja", "-S", MESHWRIGHT_SOURCE_DIR "/examples/train_mlp_lm", "-B",
       build},
      {{"PATH", std::string(MESHWRIGHT_BUILD_DIR) + "/bin:" + (path == nullptr ? "" : path)}});
  const std::string cache = ReadFile(build + "/CMakeCache.txt").value_or("");
  ASSERT_THAT(cache, HasSubstr("meshwright_DIR:PATH=" MESHWRIGHT_BUILD_DIR "\n"));
  Run({MESHWRIGHT_CMAKE, "--build", build});
  EXPECT_TRUE(FileExists(build + "/train_mlp_lm"));
}

TEST_F(Install, AWorkerWithActorsOfOnesOwnBuildsAgainstThePackage) {
  const std::string prefix = dir_.File("prefix");
  const std::string build = dir_.File("build");
  Run({MESHWRIGHT_CMAKE, "--install", MESHWRIGHT_BUILD_DIR, "--prefix", prefix});
  Run({MESHWRIGHT_CMAKE, "-G", "Ninja", "-S", MESHWRIGHT_SOURCE_DIR "/tests/e2e/actor_worker", "-B",
       build, "-DCMAKE_PREFIX_PATH=" + prefix});
  const std::string cache = ReadFile(build + "/CMakeCache.txt").value_or("");
  ASSERT_THAT(cache, HasSubstr("meshwright_DIR:PATH=" + prefix));
  Run({MESHWRIGHT_CMAKE, "--build", build});
  EXPECT_THAT(Run({build + "/actor_worker", "--help"}), HasSubstr("--threads-per-device"));
}

}  // namespace
}  // namespace meshwright::testing
