// RowBlocks: the rows of one stream that a host actor makes, asked for ahead of the steps that read
// them.
//
// The rows of a step are cut into blocks of what a device reads at once. Who reads a row first asks
// for its block and waits; from then on the same block of the next kAhead steps is asked for, so
// that later steps find theirs. At most kInFlight questions are under way, those that somebody
// waits for first. Blocks of steps that are over are let go.
//
// Thread rule: thread-safe. Ownership: what the callbacks use outlives it. Before it is destroyed
// it is closed, and then all that it has asked is answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "actor/rows.h"
#include "base/mutex.h"
#include "base/result.h"
#include "data/stream.h"
#include "ir/data_spec.h"

namespace meshwright::worker {

struct RowBlocksOptions {
  uint64_t seed = 0;
  int64_t batch = 1;     // rows of a step, of the whole job
  int64_t block = 1;     // rows asked for at once
  int64_t sequence = 1;  // of a stream of tokens, as below
  int64_t vocabulary = 0;
};

class RowBlocks {
 public:
  static constexpr int64_t kAhead = 2;  // steps
  static constexpr size_t kInFlight = 8;

  using Done = std::function<void(Result<actor::Rows>)>;
  // Each question is answered exactly once, by its deadline at the latest, from any thread.
  using Ask = std::function<void(const actor::RowsAsked&, Done)>;

  // cancelled: asked every now and then while somebody waits.
  RowBlocks(const ir::DataStream& stream, const RowBlocksOptions& options, Ask ask,
            std::function<bool()> cancelled);
  // Asks for nothing more.
  void Close();

  // The row as its feed reads it; sample: step * batch + row. Errors, with the stream and the rows:
  // the actor's; kInvalidArgument: no such field, rows of other bytes than asked for, a value that
  // the feed's type does not hold, a token outside of the vocabulary; kFailedPrecondition: nothing
  // to validate with; kCancelled.
  Status Read(const ir::FeedName& feed, int64_t sample, const data::RowBuffer& row);

 private:
  // (validation, step, block of it)
  using Key = std::tuple<bool, int64_t, int64_t>;
  using Answer = Result<std::shared_ptr<const actor::Rows>>;
  struct Entry {
    bool asked = false;    // else it is in wanted_
    bool touched = false;  // somebody has read it: the next steps' were asked for
    std::optional<Answer> rows;
  };
  struct Field {
    ir::DataField field;
    int64_t row_bytes = 0;
  };

  Result<size_t> FieldOf(const ir::FeedName& feed) const;
  actor::RowsAsked Asked(const Key& key) const;
  // Whether there is such a block: there is none behind the last row to validate with.
  bool Exists(const Key& key) const;
  Answer Wait(const Key& key);
  void AskAhead(const Key& key);
  void AskFor(const Key& key);
  void Pump();
  void OnRows(const Key& key, Result<actor::Rows> rows);
  Status CheckRows(const actor::RowsAsked& asked, const actor::Rows& rows) const;
  Status Convert(const Field& field, std::string_view bytes, const data::RowBuffer& row) const;

  const ir::DataStream stream_;
  const RowBlocksOptions options_;
  const Ask ask_;
  const std::function<bool()> cancelled_;
  std::vector<Field> fields_;
  Mutex mutex_;
  CondVar changed_;
  std::map<Key, Entry> entries_ MW_GUARDED_BY(mutex_);
  std::deque<Key> wanted_ MW_GUARDED_BY(mutex_);  // ahead, and not yet asked for
  size_t in_flight_ MW_GUARDED_BY(mutex_) = 0;
  bool closed_ MW_GUARDED_BY(mutex_) = false;
};

}  // namespace meshwright::worker
