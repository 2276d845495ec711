// MarkedFeed: a feed that says in a device's mark when it is asked for rows, which may be long in
// coming from a disk or a host actor.
//
// Thread rule: as the feed that it hands on to. Ownership: feed and mark outlive it.
#pragma once

#include "ops/kernel.h"
#include "worker/mesh_record.h"

namespace meshwright::worker {

class MarkedFeed final : public ops::FeedSource {
 public:
  // mark null: nobody asks.
  MarkedFeed(ops::FeedSource* feed, DeviceMark* mark) : feed_(feed), mark_(mark) {}
  // What devices read from; null where there is no feed.
  ops::FeedSource* source() { return feed_ == nullptr || mark_ == nullptr ? feed_ : this; }

  Status ReadRow(const std::string& source, int64_t sample, std::span<std::byte> row) override {
    mark_->Reads(true);
    Status status = feed_->ReadRow(source, sample, row);
    mark_->Reads(false);
    return status;
  }

 private:
  ops::FeedSource* const feed_;
  DeviceMark* const mark_;
};

}  // namespace meshwright::worker
