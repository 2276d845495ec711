// Assembles model.safetensors from the tiles that workers send, one file per mesh generation.
//
// Tiles come in logical layout and go to their place in the exported tensor. The file has its final
// name only when every element of every tensor was written; dropped before that, nothing is left.
// Thread rule: thread-safe; tiles of one generation may come from several threads.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "ir/graph.h"
#include "proto/messages.h"

namespace meshwright::controller {

class WeightsSink {
 public:
  // One tensor per param of `loss` that is a weight. Errors: kResourceExhausted naming path and
  // bytes.
  Status Open(MeshGeneration mesh_gen, const std::string& path,
              std::shared_ptr<const ir::Graph> loss);
  // Bytes that the data of a tile with this head must have. Errors: kNotFound for an unknown
  // generation or param, kInvalidArgument for a box that leaves the weight or another dtype.
  Result<int64_t> ExpectedBytes(const proto::WeightTile& head);
  // Errors: those of ExpectedBytes, kInvalidArgument for another number of bytes.
  Status Write(const proto::WeightTile& tile);
  // Errors: kFailedPrecondition naming an incomplete tensor, kNotFound, those of writing.
  Status Finish(MeshGeneration mesh_gen);
  void Discard(MeshGeneration mesh_gen);

 private:
  struct File;
  Result<std::shared_ptr<File>> Find(MeshGeneration mesh_gen);
  static Result<int64_t> ExpectedBytesIn(const File& file, const proto::WeightTile& head);

  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<File>> files_ MW_GUARDED_BY(mutex_);
};

}  // namespace meshwright::controller
