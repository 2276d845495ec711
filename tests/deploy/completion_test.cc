// Completion as zsh and fish do it: what their users get behind what they have typed. bash is asked
// in tests/e2e/terminal_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "tests/deploy/tools.h"

namespace meshwright::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

class Shells : public ::testing::Test {
 protected:
  std::string Say(std::vector<std::string> args) {
    const std::string folder(
        std::string_view(MESHWRIGHT_BINARY).substr(0, std::string(MESHWRIGHT_BINARY).rfind('/')));
    const Answer answer = Ask(std::move(args), {{"HOME", home_.path()},
                                                {"ZDOTDIR", home_.path()},
                                                {"XDG_CONFIG_HOME", home_.path()},
                                                {"TERM", "xterm"},
                                                {"PATH", folder + ":/usr/bin:/bin"}});
    EXPECT_TRUE(answer.ok) << answer.text;
    return answer.text;
  }

  TempDir home_ = TempDir::Make().value();
};

TEST_F(Shells, FishOffersCommandsWithTheirMeaningAndKeysAndFiles) {
  MW_NEEDS("fish");
  const auto offered = [this](const std::string& line) {
    std::vector<std::string> lines =
        Split(Say({"fish", "--no-config", "-c",
                   "meshwright completion fish | source; complete -C '" + line + "'"}),
              '\n');
    std::erase(lines, "");
    return lines;
  };
  EXPECT_THAT(offered("meshwright sub"),
              ElementsAre("submit\tSubmit a job and follow it to its end"));
  EXPECT_THAT(offered("meshwright submit --set training.dtype=b"),
              ElementsAre("training.dtype=bfloat16"));
  EXPECT_THAT(offered("meshwright completion "), IsSupersetOf({"bash", "zsh", "fish"}));
  const std::string job = home_.File("mine.toml");
  ASSERT_TRUE(WriteFileAtomic(job, "").ok());
  EXPECT_THAT(offered("meshwright submit " + home_.File("mi")), ElementsAre(job));
}

// A zsh at a terminal of its own, for which completion is a file in a folder of $fpath.
TEST_F(Shells, ZshCompletesAtItsPrompt) {
  MW_NEEDS("zsh");
  ASSERT_TRUE(
      WriteFileAtomic(home_.File("_meshwright"), Say({MESHWRIGHT_BINARY, "completion", "zsh"}))
          .ok());
  ASSERT_TRUE(WriteFileAtomic(home_.File("mine.toml"), "").ok());
  // A key tells what stands at the prompt, as the terminal only shows what has been added to it.
  const std::string script =
      "zmodload zsh/zpty; cd $HOME\n"
      "zpty -b z zsh -f -i\n"
      "zpty -w z \"fpath=($HOME \\$fpath); autoload -U compinit; compinit -u -D; "
      "tell() { print -r \\\"<\\$BUFFER>\\\" }; zle -N tell; bindkey '^X' tell; PS1=REA''DY\"\n"
      "zpty -r z out '*READY*'\n"
      "typed() { zpty -n -w z $'\\x15'\"$1\"$'\\t\\x18'; zpty -r z out '*<meshwright*>*'\n"
      "  out=${out##*<}; print -r -- \"${out%%>*}\"; }\n"
      "typed 'meshwright sub'\n"
      "typed 'meshwright submit --set training.dtype=b'\n"
      "typed 'meshwright submit mi'\n"
      "zpty -d z\n";
  EXPECT_EQ(Say({"zsh", "-f", "-c", script}),
            "meshwright submit \nmeshwright submit --set training.dtype=bfloat16 \n"
            "meshwright submit mine.toml \n");
}

}  // namespace
}  // namespace meshwright::testing
