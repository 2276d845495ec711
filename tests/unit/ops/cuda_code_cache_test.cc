#include "ops/cuda/code_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace meshwright::ops::cuda {
namespace {

// Its binaries are what they were made of.
class CountingCompiler final : public Compiler {
 public:
  std::string Version() const override { return version; }
  Result<std::string> Compile(const SourceCode& code) override {
    ++compiled;
    if (code.text == "wrong") return Fail(InvalidArgument("wrong: expected a declaration"));
    return version + code.architecture + code.text;
  }
  device::cuda::Code Load(std::string_view binary, ModuleHandle* module) override {
    if (refuses == binary) return 200;
    *module = new std::string(binary);
    ++loaded;
    return device::cuda::kSuccess;
  }
  device::cuda::Code Unload(ModuleHandle module) override {
    delete static_cast<std::string*>(module);
    --loaded;
    return device::cuda::kSuccess;
  }
  device::cuda::Code Find(ModuleHandle module, const char* kernel,
                          FunctionHandle* function) override {
    *function = module;
    return std::string(kernel) == "missing" ? 500 : device::cuda::kSuccess;
  }
  device::cuda::Code Launch(FunctionHandle, const KernelCall&,
                            device::cuda::StreamHandle) override {
    return device::cuda::kSuccess;
  }

  std::string version = "counting 1";
  std::string refuses;
  std::atomic<int> compiled{0};
  std::atomic<int> loaded{0};
};

class CodeCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    auto made = TempDir::Make("code-cache");
    ASSERT_TRUE(made) << made.error();
    folder_.emplace(*std::move(made));
  }
  CodeCacheOptions options() const { return {.directory = folder_->File("cache")}; }
  // What a fresh process gets.
  Result<std::shared_ptr<const KernelCode>> GetAnew(const SourceCode& code) {
    return CodeCache(compiler_, options()).Get(code);
  }

  const SourceCode code_{"kernel text", "sm_90", {"-O3"}};
  std::optional<TempDir> folder_;
  CountingCompiler compiler_;
};

TEST_F(CodeCacheTest, SecondProcessCompilesNothing) {
  ASSERT_TRUE(GetAnew(code_));
  ASSERT_TRUE(GetAnew(code_));
  EXPECT_EQ(compiler_.compiled, 1);
  EXPECT_EQ(compiler_.loaded, 0);
}

TEST_F(CodeCacheTest, KeyHasEverythingThatABinaryDependsOn) {
  const std::vector<SourceCode> others = {{"kernel text ", "sm_90", {"-O3"}},
                                          {"kernel text", "sm_80", {"-O3"}},
                                          {"kernel text", "sm_90", {}},
                                          {"kernel text", "sm_90", {"-O", "3"}},
                                          {"-O3", "sm_90", {"kernel text"}}};
  CodeCache cache(compiler_, options());
  for (const SourceCode& other : others) EXPECT_NE(cache.PathOf(other), cache.PathOf(code_));
  const std::string before = cache.PathOf(code_);
  compiler_.version = "counting 2";
  EXPECT_NE(CodeCache(compiler_, options()).PathOf(code_), before);
}

TEST_F(CodeCacheTest, DamagedEntriesAreCompiledAnewAndReplaced) {
  const std::string path = CodeCache(compiler_, options()).PathOf(code_);
  ASSERT_TRUE(GetAnew(code_));
  const Result<std::string> good = ReadFile(path);
  ASSERT_TRUE(good);
  std::string flipped = *good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  const std::vector<std::string> damaged = {
      "",      "meshwright-code 1 ", good->substr(0, good->size() - 1), *good + "x",
      flipped, "\n" + *good};
  int compiled = compiler_.compiled;
  for (const std::string& entry : damaged) {
    ASSERT_TRUE(WriteFileAtomic(path, entry).ok());
    ASSERT_TRUE(GetAnew(code_));
    EXPECT_EQ(compiler_.compiled, ++compiled) << "entry of " << entry.size() << " bytes";
    EXPECT_EQ(*ReadFile(path), *good);
  }
}

// As after an update of the driver.
TEST_F(CodeCacheTest, EntryThatCannotBeLoadedIsCompiledAnew) {
  ASSERT_TRUE(GetAnew(code_));
  compiler_.refuses = "counting 1sm_90kernel text";
  const auto refused = GetAnew(code_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(compiler_.compiled, 2);
  EXPECT_NE(refused.error().message().find("sm_90"), std::string::npos);
}

TEST_F(CodeCacheTest, ThreadsThatMissTogetherShareOneModule) {
  CodeCache cache(compiler_, options());
  std::vector<std::shared_ptr<const KernelCode>> found(8);
  std::vector<std::thread> threads;
  for (auto& place : found) {
    threads.emplace_back([&cache, &place, this] {
      const auto code = cache.Get(code_);
      if (code) place = *code;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& code : found) {
    ASSERT_NE(code, nullptr);
    EXPECT_EQ(code, found[0]);
  }
  EXPECT_EQ(compiler_.loaded, 1);
}

TEST_F(CodeCacheTest, DiskThatCannotBeWrittenIsSaidOnceAndCostsNoKernel) {
  ASSERT_TRUE(WriteFileAtomic(folder_->File("file"), "not a folder").ok());
  std::vector<std::string> lines;
  SetLogSink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  CodeCache cache(compiler_, {.directory = folder_->File("file/cache")});
  EXPECT_TRUE(cache.Get(code_));
  EXPECT_TRUE(cache.Get({"another", "sm_90", {}}));
  SetLogSink(nullptr);
  EXPECT_EQ(compiler_.compiled, 2);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("MESHWRIGHT_CACHE_DIR"), std::string::npos);
}

TEST_F(CodeCacheTest, WithoutADiskNothingIsWritten) {
  CodeCache cache(compiler_, {.directory = folder_->File("cache"), .use_disk = false});
  ASSERT_TRUE(cache.Get(code_));
  EXPECT_EQ(cache.PathOf(code_), "");
  EXPECT_FALSE(FileExists(folder_->File("cache")));
}

TEST_F(CodeCacheTest, ErrorsAreThoseOfTheCompilerAndAreNotKept) {
  const auto wrong = GetAnew({"wrong", "sm_90", {}});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message().find("expected a declaration"), std::string::npos);
  EXPECT_FALSE(GetAnew({"wrong", "sm_90", {}}));
  EXPECT_EQ(compiler_.compiled, 2);
  const auto code = GetAnew(code_);
  ASSERT_TRUE(code);
  EXPECT_TRUE((*code)->Find("there"));
  const auto missing = (*code)->Find("missing");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("'missing'"), std::string::npos);
}

}  // namespace
}  // namespace meshwright::ops::cuda
