// The manifest: what a checkpoint holds, as one JSON file that is written last.
//
//   {"digest": "..", "format": "meshwright-checkpoint/1",
//    "step": 120, "seed": 0, "job": {"id": 7, "name": "gpt-bytes"}, "layout": "..",
//    "saved_unix_ms": .., "cause": "interval",
//    "files": [{"name": "sharded/shard-00001-model-00001-of-00001.safetensors", "bytes": ..}, ..],
//    "tensors": {"transformer.wte.weight": {"dtype": "f32", "shape": [256,128], "kind": "weights",
//       "boxes": [{"at": [0,0], "size": [256,128], "file": 0, "begin": 512, "digests": [".."]}]}}}
//
// Boxes are of logical tensors, never of ranks, and the shapes are those of the whole: a missing
// file is a hole in a cover, whatever wrote it. "digest" is that of the text without it. A step is
// the number of steps that were taken: the next one to run, from which everything else (the
// position in the data, schedules, dropout) follows.
//
// Thread rule: values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/digest.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::checkpoint {

struct StoredBox {
  ir::Box box;              // explicit
  int32_t file = 0;         // index in Manifest::files
  int64_t begin_bytes = 0;  // in that file
  std::vector<Digest> digests;
  friend bool operator==(const StoredBox&, const StoredBox&) = default;
};

struct StoredTensor {
  ir::TensorType type;  // of the whole tensor
  ir::MemoryKind kind = ir::MemoryKind::kWeights;
  std::vector<StoredBox> boxes;
  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

struct StoredFile {
  std::string name;  // below the folder of the checkpoint
  int64_t bytes = 0;
  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

struct Manifest {
  int64_t step = 0;
  uint64_t seed = 0;
  int64_t job_id = 0;
  std::string job_name;
  std::string layout;  // for people
  int64_t saved_unix_ms = 0;
  std::string cause;  // why it was saved: "interval", "end", "best", "best-end", ...
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string FormatManifest(const Manifest& manifest);
// The manifest of a text, checked by CheckManifest. Safe on any input. Errors: kDataLoss saying
// what is wrong.
Result<Manifest> ParseManifest(std::string_view text);

// That every tensor has an exact cover with all digests, within its files. Errors: kDataLoss naming
// tensor and box.
Status CheckManifest(const Manifest& manifest);

int64_t StateBytes(const Manifest& manifest);

// What one worker has written: its files, and the tensors with its boxes of them.
struct Shards {
  std::vector<StoredFile> files;
  std::map<std::string, StoredTensor> tensors;
  friend bool operator==(const Shards&, const Shards&) = default;
};
std::string FormatShards(const Shards& shards);
// Errors: kDataLoss saying what is wrong. What they cover is checked with the manifest.
Result<Shards> ParseShards(std::string_view text);
// Adds them to a manifest. Errors: kDataLoss naming a tensor that has another type there, or a file
// that is there.
Status AddShards(Manifest& manifest, const Shards& shards);

}  // namespace meshwright::checkpoint
