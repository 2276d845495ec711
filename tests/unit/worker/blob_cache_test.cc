#include "worker/blob_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "base/unique_fd.h"
#include "tests/unit/worker/fake_link.h"

namespace meshwright::worker {
namespace {

const auto kNever = [] { return false; };
constexpr std::chrono::seconds kPatience{30};

class BlobCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<BlobCache> Open() {
    auto cache = BlobCache::Open(dir_.path(), &link_);
    EXPECT_TRUE(cache.has_value()) << cache.error();
    return std::move(*cache);
  }
  int FilesInFolder() const {
    int count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
      ++count;
    }
    return count;
  }

  TempDir dir_ = TempDir::Make().value();
  FakeLink link_;
};

TEST_F(BlobCacheTest, FetchesOnceAndAgainWhenTheCopyWasDeletedOrDamaged) {
  const auto cache = Open();
  const ir::BlobRef blob = link_.Add("some bytes", "data");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cache->Read(blob, kNever).value_or(""), "some bytes");
  EXPECT_EQ(link_.fetches, 1);
  std::filesystem::remove(dir_.File(blob.sha256));
  EXPECT_EQ(cache->Read(blob, kNever).value_or(""), "some bytes");
  EXPECT_EQ(link_.fetches, 2);
  ASSERT_TRUE(WriteFileAtomic(dir_.File(blob.sha256), "other bytes").ok());
  EXPECT_EQ(Open()->Read(blob, kNever).value_or(""), "some bytes") << "found damaged at the start";
  EXPECT_EQ(FilesInFolder(), 1);
}

TEST_F(BlobCacheTest, ASlowDownloadHoldsUpNeitherOtherBlobsNorACancel) {
  const auto cache = Open();
  const ir::BlobRef slow = link_.Add("slow", "slow");
  const ir::BlobRef fast = link_.Add("fast", "fast");
  std::promise<void> begun;
  std::promise<void> go_on;
  std::shared_future<void> released = go_on.get_future().share();
  link_.before_fetch = [&](const std::string& sha256) {
    if (sha256 != slow.sha256) return;
    begun.set_value();
    released.wait_for(kPatience);
  };
  auto first = std::async(std::launch::async, [&] { return cache->Read(slow, kNever); });
  ASSERT_EQ(begun.get_future().wait_for(kPatience), std::future_status::ready);
  auto other = std::async(std::launch::async, [&] { return cache->Read(fast, kNever); });
  const bool free = other.wait_for(kPatience / 3) == std::future_status::ready;
  auto same =
      std::async(std::launch::async, [&] { return cache->Read(slow, [] { return true; }); });
  const bool cancelled = same.wait_for(kPatience / 3) == std::future_status::ready;
  EXPECT_TRUE(free) << "another blob waits for the download";
  EXPECT_TRUE(cancelled) << "a cancelled job waits for the download";
  auto waiter = std::async(std::launch::async, [&] { return cache->Read(slow, kNever); });
  go_on.set_value();
  EXPECT_EQ(other.get().value_or(""), "fast");
  EXPECT_EQ(same.get().error().code(), StatusCode::kCancelled);
  EXPECT_EQ(first.get().value_or(""), "slow");
  EXPECT_EQ(waiter.get().value_or(""), "slow");
  EXPECT_EQ(link_.fetches, 2) << "who waited did not fetch again";
}

TEST_F(BlobCacheTest, AFailedFetchIsTriedAgainByTheNextOne) {
  const auto cache = Open();
  ir::BlobRef blob{Sha256Hex("late"), 4, "late"};
  EXPECT_EQ(cache->Read(blob, kNever).error().code(), StatusCode::kNotFound);
  link_.Add("late", "late");
  EXPECT_EQ(cache->Read(blob, kNever).value_or(""), "late");
  blob.size_bytes = 5;
  std::filesystem::remove(dir_.File(blob.sha256));
  EXPECT_EQ(cache->Read(blob, kNever).error().code(), StatusCode::kDataLoss);
  EXPECT_EQ(FilesInFolder(), 0) << "nothing is left of what failed";
}

TEST_F(BlobCacheTest, RemovesThePartsOfDeadWritersOnly) {
  const std::string hash(64, 'a');
  const std::string dead = dir_.File(hash + ".part-4242");
  const std::string alive = dir_.File(hash + ".part-XyZ123");
  for (const std::string& path : {dead, alive, dir_.File(hash)}) {
    ASSERT_TRUE(WriteFileAtomic(path, "half").ok());
  }
  const UniqueFd writer(::open(alive.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(writer.get(), LOCK_EX | LOCK_NB), 0);
  const auto cache = Open();
  EXPECT_FALSE(FileExists(dead));
  EXPECT_TRUE(FileExists(alive)) << "a worker that shares the folder writes it";
  EXPECT_TRUE(FileExists(dir_.File(hash)));
}

// From now on flock() fails in this thread, as on a file system that has no locks.
bool ForbidLocks() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {4, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(BlobCacheTest, AFolderWithoutLocksIsAnErrorAndNoEndlessLoop) {
  const auto cache = Open();
  const ir::BlobRef blob = link_.Add("some bytes", "data");
  const auto fetch = [&] {
    ::alarm(20);
    if (!ForbidLocks()) {
      std::fputs("lock: no filter here", stderr);
      std::_Exit(3);
    }
    const auto read = cache->Read(blob, kNever);
    std::fputs(read.has_value() ? "no error" : read.error().message().c_str(), stderr);
    std::_Exit(3);
  };
  EXPECT_EXIT(fetch(), ::testing::ExitedWithCode(3), "lock");
  EXPECT_EQ(FilesInFolder(), 0) << "the part is removed";
}

TEST_F(BlobCacheTest, TheFilesOfTwoWritersNeverMix) {
  // Two workers that share the folder fetch the same blob at the same time.
  const auto a = Open();
  const auto b = Open();
  const ir::BlobRef blob = link_.Add(std::string(1 << 20, 'x'), "big");
  std::promise<void> begun;
  std::promise<void> go_on;
  std::shared_future<void> released = go_on.get_future().share();
  std::atomic<int> entered{0};
  link_.before_fetch = [&](const std::string&) {
    if (++entered == 2) begun.set_value();
    released.wait_for(kPatience);
  };
  auto first = std::async(std::launch::async, [&] { return a->Path(blob, kNever); });
  auto second = std::async(std::launch::async, [&] { return b->Path(blob, kNever); });
  ASSERT_EQ(begun.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(FilesInFolder(), 2) << "each has a file of its own";
  const auto third = Open();
  EXPECT_EQ(FilesInFolder(), 2) << "and a third that starts leaves them alone";
  go_on.set_value();
  EXPECT_TRUE(first.get().has_value());
  EXPECT_TRUE(second.get().has_value());
  EXPECT_EQ(FilesInFolder(), 1);
  EXPECT_EQ(Sha256File(dir_.File(blob.sha256)).value_or(""), blob.sha256);
}

TEST_F(BlobCacheTest, ATemporaryFolderThatWasCleanedAwayIsMadeAgain) {
  const auto cache = BlobCache::Open("", &link_).value();
  const auto first = cache->Path(link_.Add("one", "one"), kNever);
  ASSERT_TRUE(first.has_value()) << first.error();
  const auto folder = std::filesystem::path(*first).parent_path();
  std::filesystem::remove_all(folder);
  EXPECT_EQ(cache->Read(link_.Add("one", "one"), kNever).value_or(""), "one");
  EXPECT_EQ(cache->Read(link_.Add("two", "two"), kNever).value_or(""), "two");
  EXPECT_TRUE(FileExists(folder.string() + "/lock"));
  EXPECT_TRUE(cache->DiskStatus().ok()) << cache->DiskStatus();
}

TEST_F(BlobCacheTest, FoldersOfKilledWorkersGoWhenTheNextOneStarts) {
  const char* const before = std::getenv("TMPDIR");
  const std::string old = before == nullptr ? "" : before;
  ASSERT_EQ(::setenv("TMPDIR", dir_.path().c_str(), 1), 0);
  for (const char* name : {"meshwright-worker-dead", "meshwright-worker-alive",
                           "meshwright-worker-young", "meshwright-other"}) {
    ASSERT_TRUE(MakeDirs(dir_.File(name)).ok());
    ASSERT_TRUE(WriteFileAtomic(dir_.File(name) + std::string("/data"), "data").ok());
    if (std::string(name) == "meshwright-worker-young") continue;
    ASSERT_TRUE(WriteFileAtomic(dir_.File(name) + std::string("/lock"), "").ok());
  }
  const UniqueFd held(::open(dir_.File("meshwright-worker-alive/lock").c_str(), O_RDWR));
  ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  {
    const auto cache = BlobCache::Open("", &link_).value();
    const auto other = BlobCache::Open("", &link_).value();
    EXPECT_EQ(FilesInFolder(), 5) << "two of them are of these two";
  }
  EXPECT_FALSE(FileExists(dir_.File("meshwright-worker-dead")));
  EXPECT_EQ(FilesInFolder(), 3);
  if (before == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", old.c_str(), 1);
  }
}

TEST_F(BlobCacheTest, SaysThatTheDiskDoesNotWorkUntilItDoes) {
  const std::string folder = dir_.File("cache");
  const auto cache = BlobCache::Open(folder, &link_).value();
  EXPECT_TRUE(cache->DiskStatus().ok());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(WriteFileAtomic(folder, "a file is where the folder was").ok());
  EXPECT_FALSE(cache->Read(link_.Add("one", "one"), kNever).has_value());
  EXPECT_FALSE(cache->DiskStatus().ok());
  EXPECT_FALSE(cache->ProbeDisk().ok());
  // What the controller does not have is not the disk's fault.
  std::filesystem::remove(folder);
  EXPECT_TRUE(cache->ProbeDisk().ok()) << cache->DiskStatus();
  EXPECT_FALSE(cache->Read({std::string(64, 'a'), 1, "none"}, kNever).has_value());
  EXPECT_TRUE(cache->DiskStatus().ok()) << cache->DiskStatus();
  EXPECT_EQ(cache->Read(link_.Add("one", "one"), kNever).value_or(""), "one");
}

}  // namespace
}  // namespace meshwright::worker
