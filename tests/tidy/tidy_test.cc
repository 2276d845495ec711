// The house rules, run on the project's own sources. Each rule is shown to fail in rules_test.cc.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <toml++/toml.h>
#include <filesystem>

#include "base/file.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "tests/tidy/rules.h"

namespace meshwright::tidy {
namespace {

const std::string kRoot = MESHWRIGHT_SOURCE_DIR;

const SourceTree& Tree() {
  static const SourceTree tree = LoadSourceTree(kRoot).value();
  return tree;
}

void ExpectNone(const Violations& violations) {
  EXPECT_TRUE(violations.empty()) << Join(violations, "\n");
}

TEST(Tidy, TheTreeIsThere) {
  EXPECT_GT(Tree().size(), 20u);
  EXPECT_EQ(Tree().count("base/status.h"), 1u);
  for (const auto& [path, file] : Tree()) EXPECT_NE(RoomOf(path), "build") << path;
}

TEST(Tidy, RoomsIncludeOnlyWhatTheirEdgesAllow) { ExpectNone(CheckEdges(Tree())); }

TEST(Tidy, RoomsHaveNoCycle) { ExpectNone(CheckTableHasNoCycle(AllowedEdges())); }

TEST(Tidy, HeadersHaveNoCycle) { ExpectNone(CheckNoIncludeCycles(Tree())); }

TEST(Tidy, ThirdPartyHeadersStayBehindTheirFences) { ExpectNone(CheckFences(Tree())); }

TEST(Tidy, PublicHeadersIncludePublicHeaders) {
  std::set<std::string> headers;
  for (const std::string& line :
       Split(ReadFile(kRoot + "/cmake/PublicHeaders.cmake").value(), '\n')) {
    if (Trim(line).ends_with(".h")) headers.emplace(Trim(line));
  }
  EXPECT_EQ(headers.count("client/client.h"), 1u);
  ExpectNone(CheckPublicHeaders(Tree(), headers));
}

TEST(Tidy, IncludesAreRootRelative) { ExpectNone(CheckIncludesAreRootRelative(Tree())); }

TEST(Tidy, OwnHeaderComesFirst) { ExpectNone(CheckOwnHeaderComesFirst(Tree())); }

TEST(Tidy, FilesAndLinesAreShort) { ExpectNone(CheckSizes(Tree())); }

TEST(Tidy, FunctionsAreShort) { ExpectNone(CheckFunctionLength(Tree())); }

// The entries of a list of what stands against a rule: tests/tidy/allowed/. '#' starts a comment.
std::vector<std::string> Allowed(const std::string& name) {
  std::vector<std::string> entries;
  for (const std::string& line :
       Split(ReadFile(kRoot + "/tests/tidy/allowed/" + name).value(), '\n')) {
    if (!Trim(line).empty() && Trim(line)[0] != '#') entries.emplace_back(Trim(line));
  }
  return entries;
}

TEST(Tidy, ClassesAreSmall) { ExpectNone(CheckClassSizes(Tree(), Allowed("large_classes.txt"))); }

TEST(Tidy, WholeNumbersOfJsonAreChecked) { ExpectNone(CheckJsonInts(Tree())); }

TEST(Tidy, IdsAreIndicesWithoutCasts) { ExpectNone(CheckIdCasts(Tree())); }

// Lines "room number": MW_CHECKs in 1000 lines of code. The numbers may only rise.
TEST(Tidy, RoomsCheckTheirInvariants) {
  std::map<std::string, int> least;
  for (const std::string& entry : Allowed("least_checks.txt")) {
    const std::vector<std::string> words = Split(entry, ' ');
    ASSERT_EQ(words.size(), 2u) << entry;
    least[words[0]] = std::stoi(words[1]);
  }
  EXPECT_GE(least.size(), 12u);
  ExpectNone(CheckDensityOfChecks(Tree(), least));
}

TEST(Tidy, CommentsCiteWhatIsThere) {
  std::set<std::string> files;
  for (const auto& [path, file] : Tree()) files.insert(path);
  for (const char* folder : {"docs", "cmake", "proto"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "/" + folder)) {
      files.insert(std::filesystem::relative(entry.path(), kRoot).string());
    }
  }
  ExpectNone(CheckCitations(Tree(), files));
}

TEST(Tidy, CommentsAreSentences) { ExpectNone(CheckCommentsEnd(Tree())); }

TEST(Tidy, HeadersSayWhatTheyAreFor) { ExpectNone(CheckHeaderComments(Tree())); }

TEST(Tidy, NoBannedCalls) { ExpectNone(CheckBannedCalls(Tree())); }

TEST(Tidy, LocksAreThoseThatClangChecks) { ExpectNone(CheckLocks(Tree(), FilesWithOwnLocks())); }

// The command of clang-format 14; "" when it is not installed.
std::string FindClangFormat() {
  for (const char* name : {"clang-format-14", "clang-format"}) {
    SubprocessOptions options;
    options.args = {name, "--version"};
    const Result<ProcessOutput> output = RunProcess(options, 30'000);
    if (output.has_value() && output->stdout_text.find("version 14.") != std::string::npos) {
      return name;
    }
  }
  return "";
}

Result<ProcessOutput> CheckFormat(const std::string& formatter, std::vector<std::string> paths) {
  SubprocessOptions options;
  options.args = {formatter, "--dry-run", "--Werror", "--ferror-limit=1", "--style=file"};
  options.args.insert(options.args.end(), paths.begin(), paths.end());
  options.directory = kRoot;
  return RunProcess(options, 100'000);
}

TEST(Tidy, SourcesAreFormatted) {
  const std::string formatter = FindClangFormat();
  if (formatter.empty()) GTEST_SKIP() << "clang-format 14 is not installed";
  std::vector<std::string> paths;
  for (const auto& [path, file] : Tree()) paths.push_back(path);
  const ProcessOutput output = CheckFormat(formatter, paths).value();
  EXPECT_TRUE(output.exit.ok()) << "run tools/check-format.sh --fix\n" << output.stderr_text;
}

TEST(Tidy, FormatCheckSeesBadFormatting) {
  const std::string formatter = FindClangFormat();
  if (formatter.empty()) GTEST_SKIP() << "clang-format 14 is not installed";
  const TempDir folder = TempDir::Make().value();
  const std::string style = ReadFile(kRoot + "/.clang-format").value();
  ASSERT_TRUE(WriteFileAtomic(folder.File(".clang-format"), style).ok());
  ASSERT_TRUE(WriteFileAtomic(folder.File("good.cc"), "int Twice(int x) { return 2 * x; }\n").ok());
  ASSERT_TRUE(WriteFileAtomic(folder.File("bad.cc"), "int  Twice( int x ){return 2*x;}\n").ok());
  EXPECT_TRUE(CheckFormat(formatter, {folder.File("good.cc")}).value().exit.ok());
  EXPECT_FALSE(CheckFormat(formatter, {folder.File("bad.cc")}).value().exit.ok());
}

TEST(Tidy, DocumentsMentionOnlyWhatExists) {
  std::vector<std::string> documents = {"README.md"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot + "/docs")) {
    if (entry.path().extension() == ".md") {
      documents.push_back(std::filesystem::relative(entry.path(), kRoot).string());
    }
  }
  EXPECT_THAT(documents, ::testing::IsSupersetOf({"docs/TOUR.md", "docs/cli.md"}));
  for (const std::string& name : documents) {
    SCOPED_TRACE(name);
    const Result<std::string> text = ReadFile(kRoot + "/" + name);
    ASSERT_TRUE(text.has_value()) << text.error();
    ExpectNone(CheckMentionedPaths(*text, kRoot));
  }
}

TEST(Tidy, TheGlossaryDefinesTheCoreWords) {
  const Result<std::string> glossary = ReadFile(kRoot + "/docs/GLOSSARY.md");
  ASSERT_TRUE(glossary.has_value()) << glossary.error();
  for (const char* word :
       {"job", "step", "microbatch", "stage", "mesh", "shard", "program", "slot"}) {
    EXPECT_TRUE(ContainsWord(*glossary, word)) << word;
  }
}

// docs/TOUR.md prints the table of edges that is checked, a line "| room | what it may include |"
// each.
TEST(Tidy, TheTourAgreesWithTheTableOfEdges) {
  const Result<std::string> tour = ReadFile(kRoot + "/docs/TOUR.md");
  ASSERT_TRUE(tour.has_value()) << tour.error();
  for (const auto& [room, allowed] : AllowedEdges()) {
    const std::string line = allowed.empty()
                                 ? fmt::format("| `{}` | nothing |", room)
                                 : fmt::format("| `{}` | {} |", room, fmt::join(allowed, ", "));
    EXPECT_NE(tour->find(line), std::string::npos) << "docs/TOUR.md lacks: " << line;
  }
}

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// What tools/mutants changes is still there to be changed.
TEST(Tidy, MutantsAreOfTextsThatAreThereOnce) {
  const toml::table list = toml::parse(ReadFile(kRoot + "/tests/mutants.toml").value());
  const toml::array* const mutants = list["mutant"].as_array();
  ASSERT_NE(mutants, nullptr);
  EXPECT_GE(mutants->size(), 12u);
  for (const toml::node& node : *mutants) {
    const toml::table& mutant = *node.as_table();
    const std::string file = mutant["file"].value_or(std::string());
    const Result<std::string> text = ReadFile(kRoot + "/" + file);
    ASSERT_TRUE(text.has_value()) << text.error();
    EXPECT_EQ(CountOf(mutant["from"].value_or(std::string("?")), *text), 1u)
        << file << ": " << mutant["rule"].value_or("");
  }
}

}  // namespace
}  // namespace meshwright::tidy
