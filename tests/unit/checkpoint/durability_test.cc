// In which order a checkpoint gets to the disk: what a power cut leaves has to be a whole one.
//
// This program's own fsync and renames stand before those of the library, and note what they do.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "tests/unit/checkpoint/random_state.h"

namespace {

struct Noted {
  std::string path;  // that was synced, or the new name
  bool renamed = false;
};

class Notes {
 public:
  void Add(Noted noted) {
    const meshwright::MutexLock lock(mutex_);
    if (on_) all_.push_back(std::move(noted));
  }
  void Begin() {
    const meshwright::MutexLock lock(mutex_);
    on_ = true;
    all_.clear();
  }
  std::vector<Noted> End() {
    const meshwright::MutexLock lock(mutex_);
    on_ = false;
    return std::move(all_);
  }

 private:
  meshwright::Mutex mutex_;
  bool on_ MW_GUARDED_BY(mutex_) = false;
  std::vector<Noted> all_ MW_GUARDED_BY(mutex_);
};

Notes& TheNotes() {
  static Notes notes;
  return notes;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string PathOf(int fd) {
  char path[4096];
  const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path);
  return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

}  // namespace

// Nothing that tests write has to outlive a power cut.
extern "C" int fsync(int fd) {
  TheNotes().Add({PathOf(fd)});
  return 0;
}

extern "C" int rename(const char* from, const char* to) noexcept {
  TheNotes().Add({to, true});
  return Next<int(const char*, const char*)>("rename")(from, to);
}

extern "C" int renameat2(int from_dir, const char* from, int to_dir, const char* to,
                         unsigned int flags) noexcept {
  TheNotes().Add({to, true});
  return Next<int(int, const char*, int, const char*, unsigned int)>("renameat2")(
      from_dir, from, to_dir, to, flags);
}

namespace meshwright::checkpoint {
namespace {

// Where something is noted first; the end: nowhere.
size_t Find(const std::vector<Noted>& notes, const std::string& path, bool renamed) {
  const auto at = std::find_if(notes.begin(), notes.end(), [&](const Noted& noted) {
    return noted.path == path && noted.renamed == renamed;
  });
  return static_cast<size_t>(at - notes.begin());
}

bool IsSyncedBehind(const std::vector<Noted>& notes, size_t place, const std::string& path) {
  return std::any_of(notes.begin() + static_cast<ptrdiff_t>(place), notes.end(),
                     [&](const Noted& noted) { return !noted.renamed && noted.path == path; });
}

Manifest WriteOne(const std::string& temporary) {
  const ir::TensorType type{ir::DType::kI32, {4, 6}};
  const ir::Box box = Explicit({}, type.dims);
  const std::vector<std::byte> bytes = ElementsOf(type.dims, box, 1);
  const std::vector<ShardImage> images =
      MakeShards(0, {{"w", type, ir::MemoryKind::kWeights, box, bytes},
                     {"w.m", type, ir::MemoryKind::kOptimizer, box, bytes}})
          .value();
  Shards shards;
  for (const ShardImage& image : images) {
    EXPECT_TRUE(WriteShard(temporary, image).ok());
    AddShard(shards, image);
  }
  Manifest manifest;
  manifest.step = 3;
  EXPECT_TRUE(AddShards(manifest, shards).ok());
  return manifest;
}

TEST(Durability, EverythingOfACheckpointIsOnTheDiskBeforeItHasItsName) {
  const TempDir dir = TempDir::Make().value();
  const std::string folder = dir.path();
  const std::string temporary = folder + "/" + TemporaryName(3, 1);
  TheNotes().Begin();
  const Manifest manifest = WriteOne(temporary);
  ASSERT_TRUE(Commit(folder, TemporaryName(3, 1), manifest, {{kJobName, "the job"}}).ok());
  const std::vector<Noted> notes = TheNotes().End();

  const size_t named = Find(notes, folder + "/step-00000003", true);
  ASSERT_LT(named, notes.size());
  ASSERT_EQ(manifest.files.size(), 2u);
  for (const StoredFile& file : manifest.files) {
    const std::string path = temporary + "/" + file.name;
    const size_t synced = Find(notes, path, false);
    EXPECT_LT(synced, named) << path;
    EXPECT_LT(Find(notes, path.substr(0, path.rfind('/')), false), named) << path;
  }
  const size_t manifest_named = Find(notes, temporary + "/" + kManifestName, true);
  EXPECT_LT(manifest_named, named);
  EXPECT_LT(Find(notes, temporary + "/" + kJobName, true), manifest_named);
  const std::vector<Noted> before(notes.begin(), notes.begin() + static_cast<ptrdiff_t>(named));
  EXPECT_TRUE(IsSyncedBehind(before, manifest_named, temporary));
  // The name itself, before anyone hears of it, and before `latest` says it.
  EXPECT_TRUE(IsSyncedBehind(notes, named, folder));
  EXPECT_GT(Find(notes, folder + "/latest", true), named);
}

TEST(Durability, ACheckpointLosesItsNameBeforeItsFiles) {
  const TempDir dir = TempDir::Make().value();
  const std::string folder = dir.path();
  const Manifest manifest = WriteOne(folder + "/" + TemporaryName(3, 1));
  ASSERT_TRUE(Commit(folder, TemporaryName(3, 1), manifest, {}).ok());
  TheNotes().Begin();
  ASSERT_TRUE(Remove(folder, 3).ok());
  const std::vector<Noted> notes = TheNotes().End();
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(notes[0].renamed);
  EXPECT_EQ(notes[1].path, folder);
}

}  // namespace
}  // namespace meshwright::checkpoint
