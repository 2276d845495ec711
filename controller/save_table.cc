#include "controller/save_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace meshwright::controller {

void SaveTable::Begin(SaveRequest request, size_t members, bool again) {
  MW_CHECK(!busy()) << "save " << request.save << " begins in save " << request_->save;
  manifest_ = request.head;
  written_.assign(members, false);
  committing_ = false;
  seconds_ = {};
  again_ = again;
  request_ = std::move(request);
}

Result<std::optional<proto::CommitCheckpoint>> SaveTable::On(size_t member,
                                                             const proto::StateSaved& m,
                                                             MeshGeneration mesh_gen) {
  const bool news = IsCurrent(m.save) && member < written_.size() && !written_[member];
  if (!news || committing_) return std::optional<proto::CommitCheckpoint>();
  written_[member] = true;
  seconds_.copy = std::max(seconds_.copy, m.copy_seconds);
  seconds_.write = std::max(seconds_.write, m.write_seconds);
  Status status = m.error.ToStatus();
  if (status.ok()) {
    auto shards = checkpoint::ParseShards(m.shards);
    status = shards.has_value() ? checkpoint::AddShards(manifest_, *shards) : shards.error();
  }
  const bool all = std::find(written_.begin(), written_.end(), false) == written_.end();
  if (status.ok() && all) status = checkpoint::CheckManifest(manifest_);
  if (!status.ok()) {
    Abandon();
    return Fail(status);
  }
  if (!all) return std::optional<proto::CommitCheckpoint>();
  committing_ = true;
  commit_ = {mesh_gen,
             request_->save,
             request_->folder,
             request_->temporary,
             checkpoint::FormatManifest(manifest_),
             request_->job,
             request_->keep,
             request_->export_dtype};
  return std::optional(commit_);
}

Result<std::optional<int64_t>> SaveTable::On(const proto::CheckpointCommitted& m) {
  if (!IsCurrent(m.save) || !committing()) return std::optional<int64_t>();
  const int64_t step = request_->step;
  Abandon();
  const Status status = m.error.ToStatus();
  if (!status.ok()) return Fail(status);
  return std::optional(step);
}

}  // namespace meshwright::controller
