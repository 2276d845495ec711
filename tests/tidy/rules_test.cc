// Each house rule fails on a small tree that breaks it, and passes on one that does not.
#include "tests/tidy/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "tests/tidy/scopes.h"

namespace meshwright::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BlankCommentsAndLiterals, KeepsCodeAndLineNumbers) {
  EXPECT_EQ(BlankCommentsAndLiterals("a // rand()\nb"), "a          \nb");
  EXPECT_EQ(BlankCommentsAndLiterals("a /* x\ny */ b"), "a     \n     b");
  EXPECT_EQ(BlankCommentsAndLiterals("f(\"\\\"rand\", 'x', 1'000)"), "f(        ,    , 1'000)");
  EXPECT_EQ(BlankCommentsAndLiterals("R\"x(a\")\")x\" b"), "            b");
  EXPECT_EQ(BlankCommentsAndLiterals("#include \"a/b.h\""), "#include \"a/b.h\"");
}

TEST(ContainsWord, LooksAtTheEdges) {
  EXPECT_TRUE(ContainsWord("x = rand();", "rand("));
  EXPECT_FALSE(ContainsWord("x = operand();", "rand("));
  EXPECT_FALSE(ContainsWord("std::this_thread::id", "std::thread"));
  EXPECT_TRUE(ContainsWord("[=] { }", "[=]"));
}

TEST(CheckEdges, SeesAForbiddenInclude) {
  const SourceTree tree = MakeTree({
      {"worker/a.cc", "#include \"base/status.h\"\n#include \"planner/plan.h\"\n"},
      {"cli/a.cc", "#include \"planner/plan.h\"\n"},
      {"ir/a.cc", "// #include \"planner/plan.h\"\n#include <vector>\n"},
  });
  EXPECT_THAT(CheckEdges(tree),
              ElementsAre(HasSubstr("worker/a.cc:2: worker may not include planner/plan.h")));
}

TEST(CheckEdges, NobodyIncludesTheOuterRooms) {
  EXPECT_THAT(CheckEdges(MakeTree({{"worker/a.cc", "#include \"cli/args.h\"\n"}})),
              ElementsAre(HasSubstr("cli/args.h")));
  EXPECT_THAT(CheckEdges(MakeTree({{"base/a.cc", "#  include \"tests/x.h\"\n"}})),
              ElementsAre(HasSubstr("tests/x.h")));
}

TEST(CheckPublicHeaders, WantsThemAmongThemselves) {
  const SourceTree tree = MakeTree({{"client/a.h", "#include \"ir/b.h\"\n#include <map>\n"},
                                    {"ir/b.h", "#include \"ir/c.h\"\n"},
                                    {"ir/c.h", ""}});
  EXPECT_THAT(CheckPublicHeaders(tree, {"client/a.h", "ir/b.h", "ir/c.h"}), IsEmpty());
  EXPECT_THAT(CheckPublicHeaders(tree, {"client/a.h", "ir/b.h"}),
              ElementsAre(HasSubstr("ir/b.h:1: is installed, but ir/c.h is not")));
  EXPECT_THAT(CheckPublicHeaders(tree, {"ir/d.h"}), ElementsAre(HasSubstr("does not exist")));
}

TEST(CheckTableHasNoCycle, SeesOne) {
  EXPECT_THAT(CheckTableHasNoCycle({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}),
              ElementsAre(HasSubstr("b -> c -> b")));
  EXPECT_THAT(CheckTableHasNoCycle({{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}}), IsEmpty());
}

TEST(CheckNoIncludeCycles, SeesOneInsideARoom) {
  const SourceTree tree = MakeTree({{"ir/a.h", "#include \"ir/b.h\"\n"},
                                    {"ir/b.h", "#include \"ir/c.h\"\n"},
                                    {"ir/c.h", "#include \"ir/a.h\"\n"}});
  EXPECT_THAT(CheckNoIncludeCycles(tree), ElementsAre(HasSubstr("ir/a.h -> ir/b.h -> ir/c.h")));
}

TEST(CheckFences, SeesALibraryOutsideItsFence) {
  const std::map<std::string, std::string> breaches = {
      {"worker/agent.cc", "#include <grpcpp/grpcpp.h>\n"},
      {"client/client.cc", "#include \"proto/meshwright.pb.h\"\n"},
      {"collective/cpu/pipe.cc", "#include <boost/asio/ip/tcp.hpp>\n"},
      {"controller/core.cc", "#include <sqlite3.h>\n"},
      {"ops/reference/dot.cc", "#include <dnnl.hpp>\n"},
      {"ops/kernel.cc", "#include <hwy/highway.h>\n"},
      {"base/text.cc", "#include <spdlog/spdlog.h>\n"},
      {"worker/report.cc", "#include <prometheus/counter.h>\n"},
      {"device/cpu/device.cc", "#include <cuda_runtime.h>\n"},
  };
  EXPECT_EQ(CheckFences(MakeTree(breaches)).size(), breaches.size());
}

TEST(CheckFences, AllowsEachLibraryBehindItsFence) {
  EXPECT_THAT(CheckFences(MakeTree({
                  {"worker/grpc/session.cc", "#include <grpcpp/grpcpp.h>\n"},
                  {"proto/convert.cc", "#include \"proto/meshwright.pb.h\"\n"},
                  {"collective/cpu/tcp_link.cc", "#include <boost/asio/ip/tcp.hpp>\n"},
                  {"controller/store_sqlite.cc", "#include <sqlite3.h>\n"},
                  {"ops/cpu/matmul.cc", "#include <dnnl.hpp>\n"},
                  {"base/log.cc", "#include <spdlog/logger.h>\n"},
                  {"base/metrics_server.cc", "#include <civetweb.h>\n"},
                  {"tests/x.cc", "#include <grpcpp/grpcpp.h>\n"},
              })),
              IsEmpty());
}

TEST(CheckIncludesAreRootRelative, SeesShortAndRelativePaths) {
  const SourceTree tree = MakeTree({{"ir/a.h", ""},
                                    {"ir/b.h", "#include \"ir/a.h\"\n"},
                                    {"ir/c.h", "#include \"a.h\"\n"},
                                    {"ops/cpu/e.cc", "#include \"hwy/highway.h\"\n"},
                                    {"ir/d.h", "#include \"../ir/a.h\"\n"},
                                    {"examples/x/x.h", ""},
                                    {"examples/x/main.cc", "#include \"x.h\"\n"},
                                    {"examples/y/main.cc", "#include \"x.h\"\n"}});
  EXPECT_THAT(
      CheckIncludesAreRootRelative(tree),
      ElementsAre(HasSubstr("examples/y/main.cc:1"), HasSubstr("ir/c.h:1"), HasSubstr("ir/d.h:1")));
}

TEST(CheckOwnHeaderComesFirst, SeesLateAndMissingOnes) {
  const SourceTree tree = MakeTree({{"ir/a.h", ""},
                                    {"ir/a.cc", "#include \"ir/a.h\"\n#include <string>\n"},
                                    {"ir/b.h", ""},
                                    {"ir/b.cc", "#include <string>\n#include \"ir/b.h\"\n"},
                                    {"ir/c.h", ""},
                                    {"ir/c.cc", ""},
                                    {"ir/d.cc", "#include <string>\n"},
                                    {"examples/x/x.h", ""},
                                    {"examples/x/x.cc", "#include \"x.h\"\n"}});
  EXPECT_THAT(CheckOwnHeaderComesFirst(tree),
              ElementsAre(HasSubstr("ir/b.cc:1"), HasSubstr("ir/c.cc:1")));
}

std::string ManyLines(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += "//\n";
  return text;
}

TEST(CheckSizes, SeesLongFilesHeadersAndLines) {
  const SourceTree tree = MakeTree({
      {"ir/a.cc", ManyLines(600)},
      {"ir/b.cc", ManyLines(601)},
      {"ir/c.h", ManyLines(300)},
      {"ir/d.h", ManyLines(301)},
      {"ir/e.cc", std::string(100, 'x') + "\n" + std::string(101, 'x') + "\n"},
      {"ir/f.cc", "// " + std::string(96, 'x') + "é\n"},
  });
  EXPECT_THAT(CheckSizes(tree), ElementsAre(HasSubstr("ir/b.cc: 601"), HasSubstr("ir/d.h: 301"),
                                            HasSubstr("ir/e.cc:2: 101 columns")));
}

std::string FunctionOf(size_t lines, const std::string& signature) {
  std::string text = signature + " {\n";
  for (size_t i = 0; i + 1 < lines; ++i) text += "  x();\n";
  return text + "}\n";
}

TEST(CheckFunctionLength, SeesLongFunctionsButNotLongClasses) {
  const SourceTree tree = MakeTree({
      {"ir/a.cc", FunctionOf(70, "void F()")},
      {"ir/b.cc", FunctionOf(71, "void F()")},
      {"ir/c.cc", FunctionOf(71, "Result<int> Long(int a,\n                 int b)")},
      {"ir/d.cc", FunctionOf(300, "class X")},
      {"ir/e.cc", FunctionOf(300, "namespace meshwright")},
      {"ir/f.cc", "namespace x {\nnamespace {\n\n" + FunctionOf(71, "int F(int a)") + "}\n}\n"},
  });
  EXPECT_THAT(CheckFunctionLength(tree),
              ElementsAre(HasSubstr("ir/b.cc:1"), HasSubstr("ir/c.cc:2"), HasSubstr("ir/f.cc:4")));
}

TEST(CheckFunctionLength, SeesMembersInsideClasses) {
  const SourceTree tree = MakeTree({
      {"ir/a.cc", "class A {\n public:\n" + FunctionOf(70, "  int F() const") + "};\n"},
      {"ir/b.cc", "class B final : public A {\n" + FunctionOf(71, "  int F() override") + "};\n"},
      {"ir/c.h",
       "struct C {\n  struct D {\n" + FunctionOf(71, "  D(int x) : x{x}, y(1)") + "  };\n};\n"},
      {"ir/d.cc", FunctionOf(71, "template <typename T>\nvoid A::Inner<T>::G(Options o = {})")},
      {"ir/e.cc", "class E {\n  int x{1};\n  void F() {\n    auto f = [] {\n" +
                      std::string(71, '\n') + "    };\n  }\n};\n"},
  });
  EXPECT_THAT(CheckFunctionLength(tree),
              ElementsAre(HasSubstr("ir/b.cc:2: function F"), HasSubstr("ir/c.h:3: function D"),
                          HasSubstr("ir/d.cc:2: function G"), HasSubstr("ir/e.cc:3: function F")));
}

TEST(FindScopes, KnowsClassesAndTheirMethods) {
  const Scopes scopes = FindScopes(ParseSource(
      "struct A {\n  A();\n  ~A();\n  A(const A&) = delete;\n  int F() const { return 1; }\n"
      "  friend bool operator==(const A&, const A&);\n  template <typename T>\n"
      "  T G(T x);\n  std::function<void(int)> f = nullptr;\n"
      "  int x MW_GUARDED_BY(m) = 0;\n  enum class E { kX };\n"
      "  class B {\n    void H() MW_REQUIRES(m);\n  };\n};\n"
      "#if X\nvoid A::B::H() {\n#else\nvoid A::B::H() {\n#endif\n}\n"
      "struct stat Find(int x) {\n  return {};\n}\n"));
  ASSERT_EQ(scopes.classes.size(), 2u);
  EXPECT_EQ(scopes.classes[0].name, "A");
  EXPECT_EQ(scopes.classes[0].methods, 2);
  EXPECT_EQ(scopes.classes[1].name, "A::B");
  EXPECT_EQ(scopes.classes[1].methods, 1);
  EXPECT_EQ(scopes.functions.back().name, "Find");
  EXPECT_EQ(scopes.functions.back().owner, "");
  EXPECT_EQ(scopes.functions[1].owner, "A::B");
  EXPECT_TRUE(scopes.functions[1].outside);
}

std::string Methods(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "  int F" + std::to_string(i) + "();\n";
  return text;
}

TEST(CheckClassSizes, CountsBodiesAndMembersOutside) {
  const SourceTree tree = MakeTree({
      {"ir/a.h", "class A {\n" + Methods(20) + "};\n"},
      {"ir/b.h", "class B {\n" + Methods(15) + " private:\n" + Methods(6) + "};\n"},
      {"ir/c.h", "class C {\n  void F();\n};\n"},
      {"ir/c.cc", FunctionOf(70, "void C::F()") + FunctionOf(70, "void C::G()")},
      {"ir/c_more.cc", FunctionOf(60, "void C::H()")},
      {"mesh/c.cc", "class C {\n};\n" + FunctionOf(100, "void C::H()")},
  });
  EXPECT_THAT(CheckClassSizes(tree, {}),
              ElementsAre(HasSubstr("ir/b.h B: 24 lines and 21 methods"),
                          HasSubstr("ir/c.h C: 206 lines and 1 methods")));
  EXPECT_THAT(CheckClassSizes(tree, {"ir/b.h B 50 25", "ir/c.h C 250 5"}), IsEmpty());
  EXPECT_THAT(CheckClassSizes(tree, {"ir/b.h B 50 30", "ir/c.h C 250 5", "ir/a.h A 50 25"}),
              ElementsAre(HasSubstr("ir/b.h B: 24 lines"), HasSubstr("ir/a.h A 50 25: no class"),
                          HasSubstr("ir/b.h B 50 30: no class")));
}

TEST(CheckIdCasts, SeesThem) {
  const SourceTree tree = MakeTree({
      {"ir/a.cc", "x[static_cast<size_t>(graph.value(id).producer.value())];\n"},
      {"ir/b.cc", "x[static_cast<size_t>(n)] = y[static_cast<size_t>(id.value())];\n"},
      {"ir/c.cc", "// static_cast<size_t>(id.value())\nx[id.index()];\n"},
      {"ir/d.cc", "x[static_cast<size_t>(id.value() + 1)];\n"},
  });
  EXPECT_THAT(CheckIdCasts(tree), ElementsAre(HasSubstr("ir/a.cc:1"), HasSubstr("ir/b.cc:1")));
}

TEST(CheckJsonInts, SeesThem) {
  const SourceTree tree = MakeTree({
      {"ir/a.cc", "x = j.get<int64_t>();\ny = j.at(0)->get<size_t>();\n"},
      {"ir/b.cc", "x = j.value(\"k\", 0);\ny = j.value(\"k\", int64_t{-1});\nj.get_to(z);\n"},
      {"ir/c.cc", "x = std::get<int64_t>(v);\ny = j.get<double>();\nf(a.value(), 0);\n"},
      {"ir/d.cc", "x = j.value(\"k\", false);\n// j.get<int>()\nj.get<std::vector<int>>();\n"},
      {"tests/e.cc", "j.get<int>();\n"},
      {"base/json_int.h", "j.template get<uint64_t>();\n"},
  });
  EXPECT_THAT(CheckJsonInts(tree),
              ElementsAre(HasSubstr("ir/a.cc:1"), HasSubstr("ir/a.cc:2"), HasSubstr("ir/b.cc:1"),
                          HasSubstr("ir/b.cc:2"), HasSubstr("ir/b.cc:3"), HasSubstr("ir/d.cc:3")));
}

TEST(CheckDensityOfChecks, CountsPerRoom) {
  const SourceTree tree = MakeTree({
      {"ir/a.cc", "MW_CHECK(a) << x;\nb();\n\n// MW_CHECK(no code)\n"},
      {"ir/b.h", "int c;\nint d;\n"},
      {"mesh/a.cc", "MW_DCHECK(a);\n"},
  });
  EXPECT_THAT(CheckDensityOfChecks(tree, {{"ir", 250}, {"mesh", 1000}}), IsEmpty());
  EXPECT_THAT(CheckDensityOfChecks(tree, {{"ir", 251}, {"none", 1}}),
              ElementsAre(HasSubstr("ir: 1 MW_CHECKs in 4 lines"), HasSubstr("none: 0")));
}

TEST(CheckCitations, SeesFilesThatAreNotThere) {
  const SourceTree tree = MakeTree({
      {"ir/a.h", "// As in ir/b.cc, b.cc and docs/c.md.\nint x;  // see ir/d.cc\n"},
      {"ir/b.cc", "// \"room/file.cc\" is an example; *.cu a pattern.\nf(\"// ir/none.cc\");\n"},
      {"ir/e.cc", "// Source: design thing.md 2.7.\n// (design: 6.2).\n"},
  });
  EXPECT_THAT(
      CheckCitations(tree, {"ir/a.h", "ir/b.cc", "docs/c.md"}),
      ElementsAre(HasSubstr("ir/a.h:2: cites ir/d.cc"), HasSubstr("ir/e.cc:1: cites thing.md"),
                  HasSubstr("ir/e.cc:1: cites a design"), HasSubstr("ir/e.cc:2")));
}

TEST(CheckCommentsEnd, WantsSentences) {
  const SourceTree tree = MakeTree({
      {"ir/a.h",
       "// One line\n// and its end.\nint x;  // free here\n// ---- Title ----\n"
       "int w;\n//   a command\nint v;\n"},
      {"ir/b.h", "int y;\n// No end\nint z;\n"},
  });
  EXPECT_THAT(CheckCommentsEnd(tree), ElementsAre(HasSubstr("ir/b.h:2")));
}

TEST(CheckHeaderComments, WantsAPurposeAndAGuard) {
  const SourceTree tree = MakeTree({
      {"ir/a.h", "// A: what it is.\n#pragma once\n"},
      {"ir/b.h", "#pragma once\n"},
      {"ir/c.h", "// C.\n"},
      {"ir/d.cc", "#include <vector>\n"},
  });
  EXPECT_THAT(CheckHeaderComments(tree),
              ElementsAre(HasSubstr("ir/b.h:1"), HasSubstr("ir/c.h: no #pragma once")));
}

TEST(CheckBannedCalls, SeesEachOfThem) {
  for (const char* line : {"std::this_thread::sleep_for(1ms);", "usleep(3);", "int x = rand();",
                           "out << std::endl;", "auto f = [=] { return x; };", "std::thread t(f);",
                           "std::jthread t(f);", "using namespace std;"}) {
    EXPECT_EQ(CheckBannedCalls(MakeTree({{"planner/a.cc", line}})).size(), 1u) << line;
    EXPECT_THAT(CheckBannedCalls(MakeTree({{"tests/unit/a.cc", line}})), IsEmpty()) << line;
    EXPECT_THAT(CheckBannedCalls(MakeTree({{"planner/a.cc", std::string("// ") + line}})),
                IsEmpty())
        << line;
  }
}

TEST(CheckLocks, SeesThoseThatClangDoesNot) {
  for (const char* line :
       {"std::mutex mutex_;", "mutable std::recursive_mutex m;", "std::condition_variable wake_;",
        "const std::lock_guard lock(mutex_);", "std::unique_lock<std::timed_mutex> lock(m);"}) {
    EXPECT_THAT(CheckLocks(MakeTree({{"worker/a.cc", line}}), {}), Not(IsEmpty())) << line;
    EXPECT_THAT(CheckLocks(MakeTree({{"worker/a.cc", line}}), {"worker/a.cc"}), IsEmpty()) << line;
    EXPECT_THAT(CheckLocks(MakeTree({{"tests/unit/a.cc", line}}), {}), IsEmpty()) << line;
  }
  EXPECT_THAT(CheckLocks(MakeTree({{"worker/a.cc", "const MutexLock lock(mutex_);"}}), {}),
              IsEmpty());
}

TEST(CheckLocks, WantsFilesWithoutThemOffTheList) {
  EXPECT_THAT(CheckLocks(MakeTree({{"worker/a.cc", "Mutex mutex_;"}}), {"worker/a.cc"}),
              ElementsAre(HasSubstr("take it off the list")));
}

TEST(CheckBannedCalls, LetsThreadsStartWhereTheyAreOwned) {
  EXPECT_THAT(CheckBannedCalls(MakeTree({{"base/executor.cc", "std::thread t;"},
                                         {"collective/cpu/tcp.cc", "std::thread t;"},
                                         {"worker/actor.h", "std::thread t;"}})),
              IsEmpty());
}

TEST(CheckMentionedPaths, SeesPathsThatDoNotExist) {
  const TempDir root = TempDir::Make().value();
  ASSERT_TRUE(MakeDirs(root.File("base")).ok());
  ASSERT_TRUE(WriteFileAtomic(root.File("base/status.h"), "").ok());
  ASSERT_TRUE(WriteFileAtomic(root.File("base/status.cc"), "").ok());
  EXPECT_THAT(CheckMentionedPaths("see `base/`, `base/status.{h,cc}`, `base/stat*`, `std::map`,\n"
                                  "`/metrics` and `a b/c`\n```\n`not/looked/at`\n```\n",
                                  root.path()),
              IsEmpty());
  EXPECT_THAT(CheckMentionedPaths("`base/result.h`\n`base/status.{h,cpp}` `base/x*` `gone.md`\n",
                                  root.path()),
              ElementsAre(HasSubstr("line 1: base/result.h"), HasSubstr("base/status.cpp"),
                          HasSubstr("base/x*"), HasSubstr("gone.md")));
}

TEST(LoadSourceTree, PassesOverBuildFoldersAndHiddenOnes) {
  const TempDir root = TempDir::Make().value();
  for (const char* folder : {"base", "build/x", ".git", "runs", "third_party/y"}) {
    ASSERT_TRUE(MakeDirs(root.File(folder)).ok());
    ASSERT_TRUE(WriteFileAtomic(root.File(std::string(folder) + "/a.cc"), "").ok());
  }
  const SourceTree tree = LoadSourceTree(root.path()).value();
  EXPECT_EQ(tree.size(), 1u);
  EXPECT_EQ(tree.count("base/a.cc"), 1u);
  EXPECT_FALSE(LoadSourceTree(root.File("none")).has_value());
}

}  // namespace
}  // namespace meshwright::tidy
