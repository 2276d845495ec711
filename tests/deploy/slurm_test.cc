// The batch script of deploy/slurm: that the binary has what it asks for, and a Slurm of one node.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>

#include "base/file.h"
#include "tests/deploy/tools.h"

namespace meshwright::testing {
namespace {

using ::testing::HasSubstr;

TEST(SlurmScript, IsReadByBash) {
  const Answer answer = Ask({"bash", "-n", DeployPath("slurm/meshwright.sbatch")});
  EXPECT_TRUE(answer.ok) << answer.text;
}

TEST(SlurmScript, AsksSlurmForASignalAndForAnotherStart) {
  const std::string script = DeployFile("slurm/meshwright.sbatch");
  EXPECT_THAT(script, HasSubstr("#SBATCH --signal=B:USR1@120\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --requeue\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --no-kill\n"));
}

// The words of one call of the binary, from its command on to the end of the statement.
std::string CallOf(const std::string& script, const std::string& command) {
  std::string all;
  const std::regex call("\"\\$binary\" " + command + "(.*(\\\\\n.*)*)");
  for (auto it = std::sregex_iterator(script.begin(), script.end(), call);
       it != std::sregex_iterator(); ++it) {
    all += it->str(1) + "\n";
  }
  return all;
}

TEST(SlurmScript, UsesOptionsThatThereAre) {
  const std::string script = DeployFile("slurm/meshwright.sbatch");
  for (const std::string& command : {std::string("controller"), std::string("worker"),
                                     std::string("submit"), std::string("pause")}) {
    const std::string words = CallOf(script, command);
    EXPECT_THAT(OptionsIn(words), ::testing::Not(::testing::IsEmpty())) << command;
    EXPECT_THAT(UnknownOptions(command, words), ::testing::IsEmpty()) << command;
  }
}

constexpr const char* kJob = R"([job]
name = "on-slurm"
[training]
dataset_path = "{}"
dataset_format = "bytes"
global_batch_size = 8
seq_len = 64
steps = 600
[model]
name = "gpt2"
vocab_size = 256
dim = 64
n_layers = 4
n_heads = 4
[checkpoint]
interval = 50
[metrics]
log_freq = 1
)";

TEST(SlurmScript, GivesItsNodeBackAndTheJobGoesOnWhereItWas) {
  MW_NEEDS("slurmctld", "slurmd", "sbatch", "munged");
  const TempDir folder = TempDir::Make().value();
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "the workers of a mesh, line " + std::to_string(i) + "\n";
  ASSERT_TRUE(WriteFileAtomic(folder.File("text"), text).ok());
  ASSERT_TRUE(
      WriteFileAtomic(folder.File("job.toml"), fmt::format(fmt::runtime(kJob), folder.File("text")))
          .ok());
  const int port = 20'000 + getpid() % 5'000 * 2;
  const Answer answer = Ask(
      {MESHWRIGHT_SOURCE_DIR "/tests/deploy/one_node_slurm.sh", folder.path(), std::to_string(port),
       MESHWRIGHT_BINARY, DeployPath("slurm/meshwright.sbatch"), folder.File("job.toml")},
      {}, 110'000);
  EXPECT_TRUE(answer.ok) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("back into the queue"));
  EXPECT_THAT(answer.text, HasSubstr("is paused after step"));
  EXPECT_THAT(answer.text, HasSubstr("start 2: job 1 goes on"));
  EXPECT_THAT(answer.text, HasSubstr("resumed: goes on after step"));
  EXPECT_THAT(answer.text, HasSubstr("SUCCEEDED after 600 steps"));
}

}  // namespace
}  // namespace meshwright::testing
