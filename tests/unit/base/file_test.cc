#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/os_error.h"

namespace meshwright {
namespace {

int64_t EntriesIn(const std::string& folder) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(WriteFileAtomic, ReplacesTheContentsAndLeavesNoTemporary) {
  const TempDir folder = TempDir::Make().value();
  const std::string path = folder.File("plan.txt");
  ASSERT_TRUE(WriteFileAtomic(path, "first").ok());
  ASSERT_TRUE(WriteFileAtomic(path, std::string("sec\0nd", 6)).ok());
  EXPECT_EQ(ReadFile(path).value(), std::string("sec\0nd", 6));
  EXPECT_EQ(FileSize(path).value(), 6);
  EXPECT_EQ(EntriesIn(folder.path()), 1);
}

TEST(WriteFileAtomic, HonoursTheMode) {
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("secret"), "token", 0600).ok());
  struct stat info {};
  ASSERT_EQ(stat(folder.File("secret").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(WriteFileAtomic, NamesAFolderThatIsNotThere) {
  const TempDir folder = TempDir::Make().value();
  const Status status = WriteFileAtomic(folder.File("none/file"), "x");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("none/file"), std::string::npos) << status;
}

TEST(WriteFileAtomic, KeepsTheOldContentsWhenTheDiskIsFull) {
  const TempDir folder = TempDir::Make().value();
  const std::string path = folder.File("state");
  ASSERT_TRUE(WriteFileAtomic(path, "old").ok());
  // A limit on file size fails in the middle of the write, as a full disk does.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteFileAtomic(path, std::string(1 << 20, 'n'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find(path), std::string::npos) << status;
  EXPECT_EQ(ReadFile(path).value(), "old");
  EXPECT_EQ(EntriesIn(folder.path()), 1) << "the temporary file is removed";
}

TEST(WriteFileAtomic, ConcurrentWritersLeaveOneWholeVersion) {
  const TempDir folder = TempDir::Make().value();
  const std::string path = folder.File("state");
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(WriteFileAtomic(path, std::string(10'000, letter)).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = ReadFile(path).value();
  EXPECT_EQ(text, std::string(10'000, text[0]));
}

TEST(AppendFile, AddsToTheEnd) {
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(AppendFile(folder.File("log"), "a\n").ok());
  ASSERT_TRUE(AppendFile(folder.File("log"), "b\n").ok());
  EXPECT_EQ(ReadFile(folder.File("log")).value(), "a\nb\n");
}

TEST(AppendFile, SaysThatTheDeviceIsFullAndWhich) {
  const Status status = AppendFile("/dev/full", "x");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos) << status;
}

TEST(ReadFile, ReadsFilesWhoseSizeIsNotKnown) {
  const Result<std::string> text = ReadFile("/proc/self/status");
  ASSERT_TRUE(text.has_value());
  EXPECT_NE(text->find("VmRSS"), std::string::npos);
}

TEST(ReadFile, NamesWhatIsMissingOrAFolder) {
  const TempDir folder = TempDir::Make().value();
  EXPECT_EQ(ReadFile(folder.File("none")).error().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(folder.path()).error().code(), StatusCode::kInvalidArgument);
}

TEST(MemoryMappedFile, ShowsTheBytes) {
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("data"), "tokens").ok());
  MemoryMappedFile mapped = MemoryMappedFile::Open(folder.File("data")).value();
  const MemoryMappedFile moved = std::move(mapped);
  EXPECT_EQ(moved.text(), "tokens");
  EXPECT_EQ(moved.bytes(), 6);
}

TEST(MemoryMappedFile, TakesEmptyFilesAndRefusesFolders) {
  const TempDir folder = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(folder.File("empty"), "").ok());
  EXPECT_EQ(MemoryMappedFile::Open(folder.File("empty")).value().text(), "");
  EXPECT_EQ(MemoryMappedFile::Open(folder.path()).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MemoryMappedFile::Open(folder.File("none")).error().code(), StatusCode::kNotFound);
}

TEST(MakeDirs, MakesParentsAndAcceptsWhatIsThere) {
  const TempDir folder = TempDir::Make().value();
  EXPECT_TRUE(MakeDirs(folder.File("a/b/c")).ok());
  EXPECT_TRUE(MakeDirs(folder.File("a/b/c")).ok());
  EXPECT_TRUE(FileExists(folder.File("a/b/c")));
  ASSERT_TRUE(WriteFileAtomic(folder.File("file"), "").ok());
  EXPECT_FALSE(MakeDirs(folder.File("file/sub")).ok());
}

TEST(TempDir, GoesWithAllItHolds) {
  std::string path;
  {
    const TempDir folder = TempDir::Make("test").value();
    path = folder.path();
    ASSERT_TRUE(MakeDirs(folder.File("deep")).ok());
    ASSERT_TRUE(WriteFileAtomic(folder.File("deep/file"), "x").ok());
    EXPECT_TRUE(FileExists(path));
  }
  EXPECT_FALSE(FileExists(path));
}

TEST(TempDir, StaysWhenKept) {
  std::string path;
  {
    TempDir folder = TempDir::Make().value();
    path = folder.Keep();
  }
  EXPECT_TRUE(FileExists(path));
  EXPECT_TRUE(RemoveAll(path).ok());
  EXPECT_TRUE(RemoveAll(path).ok()) << "nothing to remove is fine";
}

TEST(OsError, TellsTheCallerWhatToDo) {
  EXPECT_EQ(OsError(ENOSPC, "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(OsError(EADDRINUSE, "x").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(OsError(ECONNREFUSED, "x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(OsError(ENOENT, "open /x").message(), "open /x: No such file or directory");
}

}  // namespace
}  // namespace meshwright
