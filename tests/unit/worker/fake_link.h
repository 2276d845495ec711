// A controller that is a map of blobs, and that can be told to hesitate, fail or throw.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/sha256.h"
#include "worker/link.h"

namespace meshwright::worker {

class FakeLink final : public ControllerLink {
 public:
  ir::BlobRef Add(const std::string& bytes, const std::string& name) {
    std::scoped_lock lock(mutex_);
    const std::string hash = Sha256Hex(bytes);
    blobs_[hash] = bytes;
    return {hash, static_cast<int64_t>(bytes.size()), name};
  }

  Result<std::unique_ptr<Session>> OpenSession(int64_t) override {
    return Fail(Unimplemented("no sessions here"));
  }

  Status FetchBlob(const std::string& sha256, int64_t offset, const CancelCheck& cancelled,
                   const ChunkSink& sink) override {
    ++fetches;
    if (before_fetch) before_fetch(sha256);
    if (cancelled()) return Cancelled("cancelled");
    std::string bytes;
    {
      std::scoped_lock lock(mutex_);
      const auto it = blobs_.find(sha256);
      if (it == blobs_.end()) return NotFound("no such blob");
      bytes = it->second.substr(static_cast<size_t>(offset));
    }
    return sink(bytes);
  }

  Status PutTiles(const CancelCheck& cancelled, const TileSource& next) override {
    if (before_put) before_put();
    while (true) {
      if (cancelled()) return Cancelled("cancelled");
      MW_ASSIGN_OR_RETURN(const auto tile, next());
      if (!tile) return OkStatus();
      ++tiles;
    }
  }

  Status PutShard(const CancelCheck& cancelled, const proto::ShardHead& head,
                  const std::vector<std::string_view>& parts) override {
    if (cancelled()) return Cancelled("cancelled");
    MW_TRY(files_error);
    std::string bytes;
    for (const std::string_view part : parts) bytes += part;
    std::scoped_lock lock(mutex_);
    files[head.folder + "/" + head.temporary + "/" + head.name] = bytes;
    return OkStatus();
  }

  Status ReadFile(const CancelCheck& cancelled, const proto::FileRange& range,
                  const ChunkSink& sink) override {
    if (cancelled()) return Cancelled("cancelled");
    MW_TRY(files_error);
    std::scoped_lock lock(mutex_);
    const auto file = files.find(range.checkpoint + "/" + range.name);
    if (file == files.end()) return NotFound("no such file");
    const auto count = range.count < 0 ? std::string::npos : static_cast<size_t>(range.count);
    return sink(file->second.substr(static_cast<size_t>(range.offset), count));
  }

  void CancelBulk() override {}

  std::map<std::string, std::string> files;  // of checkpoints, by path
  Status files_error;                        // of reading and writing them

  std::function<void(const std::string& sha256)> before_fetch;
  std::function<void()> before_put;
  std::atomic<int> fetches{0};
  std::atomic<int> tiles{0};  // that were sent

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> blobs_;
};

}  // namespace meshwright::worker
