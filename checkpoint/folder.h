// Checkpoints in a folder of the file system.
//
//   FOLDER/step-00000120/manifest.json       written last: without it there is no checkpoint
//                        sharded/, state/    shards (checkpoint/shard.h)
//                        job                 the request, to go on from the folder alone
//   FOLDER/step-00000140.tmp-5-2/            being written, or left by a crash
//   FOLDER/latest                            one line: "step-00000120"
//   FOLDER/best                              the same, of the newest whose cause begins with "best"
//
// A checkpoint is there whole or not at all: everything is written below a temporary name and made
// durable, the manifest last, then the folder gets its name, in one step also where one of that
// name is replaced. `latest` is a help for people; who loads looks at the folders.
//
// Thread rule: thread-safe on distinct checkpoints; Commit and Prune of one folder by one process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shard.h"

namespace meshwright::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kJobName = "job";

std::string StepName(int64_t step);                      // "step-00000120"
std::string TemporaryName(int64_t step, uint64_t save);  // "step-00000120.tmp-SAVE"
bool IsTemporaryName(std::string_view name);             // one that TemporaryName begins
// The step of a complete checkpoint's name; nothing: another name.
std::optional<int64_t> StepOfName(std::string_view name);

// Steps of the checkpoints in a folder, newest first; without one: none. Errors: of reading it.
Result<std::vector<int64_t>> ListSteps(const std::string& folder);

// Whether it is a name that shards have: "sharded/..." or "state/...", one file below one folder.
bool IsShardName(std::string_view name);

// One file below the temporary folder, whose bytes come in pieces. Dropped before Finish() it stays
// half written, below a temporary name. Thread rule: one thread.
class ShardWriter {
 public:
  // Makes folder and file, and takes the room for it. Errors: kInvalidArgument: another name than a
  // shard has; kResourceExhausted naming path and bytes: the disk is full; those of the system.
  static Result<ShardWriter> Create(const std::string& temporary, const std::string& name,
                                    int64_t bytes);
  // Errors: kInvalidArgument: more than was said; those of the system.
  Status Append(std::string_view bytes);
  // What has come so far is durable: who writes for others does it now and then, so that little is
  // left to Finish(), and who is faster than the disk waits.
  Status Sync();
  // Durable on return. Errors: kDataLoss: fewer bytes came than was said; those of the system.
  Status Finish();

 private:
  ShardWriter(UniqueFd fd, std::string path, int64_t bytes)
      : fd_(std::move(fd)), path_(std::move(path)), bytes_(bytes) {}

  UniqueFd fd_;
  std::string path_;
  int64_t bytes_ = 0;
  int64_t written_ = 0;
};

// Writes one file below the temporary folder, which is made; durable on return. Errors: those of
// ShardWriter.
Status WriteShard(const std::string& temporary, const ShardImage& image);

// Makes it a checkpoint. `files`: small ones to write beside the manifest, by name. Asked for
// again, when nobody heard that it was done, it finds that it is. Errors: kDataLoss naming a file
// that is not there in its size (it was written elsewhere: the folder is not shared); those of
// CheckManifest and of the system. before_manifest: writes what else is to be in the folder, below
// its temporary path; its errors.
Status Commit(const std::string& folder, const std::string& temporary_name,
              const Manifest& manifest, const std::map<std::string, std::string>& files,
              const std::function<Status(const std::string& temporary)>& before_manifest = {});

// The steps that are not among the newest `keep` (0: all are), but for the one that `best` names:
// what is to be removed.
Result<std::vector<int64_t>> StepsBeyond(const std::string& folder, int64_t keep);

// Keeps the newest `keep` (0: all) and the best, and removes temporary folders but `busy`. Errors:
// of the system.
Status Prune(const std::string& folder, int64_t keep, const std::string& busy);

// Removes one, first its name. Errors: kNotFound.
Status Remove(const std::string& folder, int64_t step);

}  // namespace meshwright::checkpoint
