// Loading NCCL, its log, and how its errors read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "collective/nccl/library.h"
#include "collective/nccl/log.h"
#include "tests/emulated/nccl.h"

namespace meshwright::collective::nccl {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class NcclLog : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("NCCL_DEBUG");
    ::unsetenv("NCCL_DEBUG_FILE");
  }
  void TearDown() override { SetUp(); }
};

TEST_F(NcclLog, GoesToAFileOfTheProcessUnlessTheUserSaidOtherwise) {
  const std::string path = ConfigureLog("/tmp/logs");
  EXPECT_EQ(path, "/tmp/logs/meshwright-nccl-" + std::to_string(::getpid()) + ".log");
  EXPECT_STREQ(std::getenv("NCCL_DEBUG_FILE"), path.c_str());
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "WARN");
}

TEST_F(NcclLog, KeepsTheUsersChoiceAndFindsItsFile) {
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_FILE", "/tmp/mine.%p", 1);
  EXPECT_EQ(ConfigureLog("/tmp/logs"), "/tmp/mine." + std::to_string(::getpid()));
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
}

TEST_F(NcclLog, TailHasWholeLinesOfTheEnd) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("nccl_tail_" + std::to_string(::getpid()));
  std::ofstream(path) << "first line that is long\nsecond\n\nthird\n";
  EXPECT_EQ(LogTail(path), "first line that is long | second | third");
  EXPECT_EQ(LogTail(path, 20), "second | third");
  std::filesystem::remove(path);
  EXPECT_EQ(LogTail(path), "");
}

TEST(NcclError, QuotesWhatNcclSaysAndItsLog) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("nccl_error_" + std::to_string(::getpid()));
  std::ofstream(path) << "NCCL WARN socketStartConnect: no route to host\n";
  emulated::EmulatedNetwork network;
  emulated::EmulatedNccl library(network);
  library.FailAsync(Code::kSuccess);  // sets the last error's text
  library.set_log_path(path);
  const Status status = ErrorOf(library, Code::kSystemError, "rank 1 (worker-1): all_reduce");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("rank 1 (worker-1): all_reduce: ncclSystemError (unhandled system "
                              "error"),
                    HasSubstr("NCCL says: emulated asynchronous failure"), HasSubstr(path),
                    EndsWith("no route to host")));
  std::filesystem::remove(path);
}

TEST(NcclError, PeersDeathIsNotThisWorkersFault) {
  emulated::EmulatedNetwork network;
  emulated::EmulatedNccl library(network);
  EXPECT_EQ(ErrorOf(library, Code::kRemoteError, "x").blame(), Blame::kPeerVictim);
  EXPECT_EQ(ErrorOf(library, Code::kInvalidUsage, "x").code(), StatusCode::kInternal);
}

TEST(OpenLibrary, SaysWhatToInstallWhenThereIsNone) {
  const auto library = OpenLibrary("/nowhere/libnccl.so.2");
  ASSERT_FALSE(library.has_value());
  EXPECT_EQ(library.error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(library.error().message(),
              AllOf(HasSubstr("/nowhere/libnccl.so.2"), HasSubstr("cannot open shared object file"),
                    HasSubstr("libnccl2")));
}

TEST(OpenLibrary, RefusesALibraryThatIsNotNccl) {
  const auto library = OpenLibrary("libc.so.6");
  ASSERT_FALSE(library.has_value());
  EXPECT_THAT(library.error().message(), HasSubstr("libc.so.6 has no ncclGetVersion"));
}

// Where a NCCL is installed; it needs no GPU for this.
TEST(OpenLibrary, LoadsTheSystemsNccl) {
  auto library = OpenLibrary();
  if (!library.has_value()) library = OpenLibrary("/usr/local/cuda/lib/libnccl.so.2");
  if (!library.has_value()) GTEST_SKIP() << library.error();
  int version = 0;
  EXPECT_EQ((*library)->GetVersion(&version), Code::kSuccess);
  EXPECT_GE(version, kOldestVersion);
  EXPECT_THAT((*library)->GetErrorString(Code::kSystemError), HasSubstr("system error"));
  EXPECT_NE((*library)->log_path(), "");
}

TEST(NcclConfig, SaysOnlyWhatWasAskedFor) {
  const Config plain = ConfigOf({});
  EXPECT_EQ(plain.blocking, 0);
  EXPECT_EQ(plain.split_share, 0);
  EXPECT_EQ(plain.max_ctas, kUndefined);
  const Config small = ConfigOf({.split_share = true, .max_ctas = 4});
  EXPECT_EQ(small.split_share, 1);
  EXPECT_EQ(small.max_ctas, 4);
  EXPECT_EQ(small.min_ctas, kUndefined);
}

TEST(NcclEnvironment, SwitchesDoNotSumUnlessTheUserSaysSo) {
  constexpr const char* kSwitches = "NCCL_NVLS_ENABLE";
  ::unsetenv(kSwitches);
  DisableSwitchSums();
  EXPECT_STREQ(std::getenv(kSwitches), "0");
  ::setenv(kSwitches, "2", 1);
  DisableSwitchSums();
  EXPECT_STREQ(std::getenv(kSwitches), "2");
  ::unsetenv(kSwitches);
}

TEST(NcclVersion, ReadsAsPeopleWriteIt) { EXPECT_EQ(VersionText(22809), "2.28.9"); }

}  // namespace
}  // namespace meshwright::collective::nccl
