// Reading a checkpoint: any box of any tensor, from the boxes that were written, digests checked.
//
// A box that is wanted is put together of the parts that it shares with stored ones; of these only
// the pieces are read that have elements of it, each checked against its digest before an element
// is used.
//
// Thread rule: a Reader is thread-safe where its source is. Ownership: a Reader owns its source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "checkpoint/manifest.h"

namespace meshwright::checkpoint {

// Where the files of one checkpoint are.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Errors: kDataLoss: the file is shorter; those of where it comes from, with its name.
  virtual Status Read(const std::string& file, int64_t offset, std::span<std::byte> into) = 0;
  // In parts of so many bytes it is read best.
  virtual size_t part_bytes() const { return static_cast<size_t>(kPieceBytes); }
  // A small file, whole. Errors: as above, kNotFound.
  virtual Result<std::string> ReadAll(const std::string& file) = 0;
};

// A folder of the file system; files stay open.
class FolderSource final : public ByteSource {
 public:
  explicit FolderSource(std::string path) : path_(std::move(path)) {}
  Status Read(const std::string& file, int64_t offset, std::span<std::byte> into) override;
  // They are in the cache of a core when their digest is made.
  size_t part_bytes() const override { return size_t{256} << 10; }
  Result<std::string> ReadAll(const std::string& file) override;

 private:
  Result<int> Open(const std::string& file);

  const std::string path_;
  Mutex mutex_;
  std::map<std::string, UniqueFd> open_ MW_GUARDED_BY(mutex_);
};

class Reader {
 public:
  // Reads the manifest. Errors: those of the source and of ParseManifest, naming the file.
  static Result<std::unique_ptr<Reader>> Open(std::unique_ptr<ByteSource> source);
  static Result<std::unique_ptr<Reader>> OpenFolder(const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  Result<std::string> ReadAll(const std::string& file) { return source_->ReadAll(file); }

  // The elements of a box, row-major. Errors: kNotFound naming the tensor; kInvalidArgument naming
  // tensor, wanted and stored type; kDataLoss naming tensor, box and file: bytes are not those that
  // were written.
  Result<std::vector<std::byte>> ReadBox(const std::string& tensor, const ir::TensorType& type,
                                         const ir::Box& box);
  // Into memory of one's own. REQUIRES that it has the size of the box.
  Status ReadBox(const std::string& tensor, const ir::TensorType& type, const ir::Box& box,
                 std::span<std::byte> dense);

  // Reads everything. Errors: as ReadBox.
  Status Verify();

 private:
  Reader(std::unique_ptr<ByteSource> source, Manifest manifest)
      : source_(std::move(source)), manifest_(std::move(manifest)) {}
  Status CopyPart(const StoredTensor& tensor, const StoredBox& stored, const ir::Box& wanted,
                  std::span<std::byte> dense);
  Status ReadPiece(const StoredBox& stored, int64_t piece, std::span<std::byte> into);

  const std::unique_ptr<ByteSource> source_;
  const Manifest manifest_;
};

}  // namespace meshwright::checkpoint
