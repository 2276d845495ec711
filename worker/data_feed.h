// What feed nodes of a mesh read: the job's data, from files below the worker's roots, from blobs,
// and from host actors.
//
// Thread rule: thread-safe. Ownership: cache and roots outlive the feed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "data/roots.h"
#include "data/source.h"
#include "ir/program.h"
#include "ops/kernel.h"
#include "worker/actor_feed.h"
#include "worker/blobs.h"

namespace meshwright::worker {

// Where a worker has the files of jobs.
struct FilePlaces {
  Blobs* blobs = nullptr;
  const data::Roots* roots = nullptr;  // null: none
  std::function<bool()> cancelled;     // asked while a blob is fetched
};

// A file of a job, open. Errors: those of data::Roots and BlobCache.
Result<UniqueFd> OpenJobFile(const FilePlaces& places, const ir::FileRef& file);

// The types in which programs read the data, by source.
using FeedTypes = std::map<std::string, ir::DType, std::less<>>;
// Of all feeds but those that launches bring. Errors: kInvalidArgument: programs read one field as
// two types.
Result<FeedTypes> FeedTypesOf(const std::vector<ir::Program>& programs,
                              const std::vector<std::string>& staged);

class DataFeed final : public ops::FeedSource {
 public:
  // Fetches the blobs of the data, and verifies what is read in place.
  // Errors: those of data::Source and OpenJobFile.
  static Result<std::unique_ptr<DataFeed>> Open(const ir::DataSpec& data,
                                                const data::StreamOptions& options, FeedTypes types,
                                                const FilePlaces& places);
  // The streams that host actors make. Before anything is read.
  void SetActors(std::unique_ptr<ActorFeed> actors) { actors_ = std::move(actors); }

  // Errors: those of data::Source and ActorFeed; kInvalidArgument: a source whose type it was not
  // told.
  Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) override;

 private:
  DataFeed(std::unique_ptr<data::Source> source, FeedTypes types)
      : source_(std::move(source)), types_(std::move(types)) {}

  const std::unique_ptr<data::Source> source_;  // null: no stream has files
  std::unique_ptr<ActorFeed> actors_;           // null: none has an actor
  const FeedTypes types_;
};

}  // namespace meshwright::worker
