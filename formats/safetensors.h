// Weights in files: the safetensors format and the map between a param and its exported tensor.
//
//   [0,8)      u64 little endian N = header length in bytes
//   [8,8+N)    UTF-8 JSON object, first byte '{', right-padded with spaces to a multiple of 8
//   [8+N,EOF)  tensor bytes, C order, little endian, no holes
//   header  := {"__metadata__":{"format":"pt"}, tensor, ...}
//   tensor  := "name":{"dtype":"F32","shape":[..],"data_offsets":[begin,end]}
//
// A param's logical tensor L relates to the exported tensor E by its attributes: dims permuted by
// export_perm (dim j of the permuted tensor is dim export_perm[j] of L; empty: as is), then
// reshaped to export_shape (empty: as is). A reshape keeps the linear order, so element i of L sits
// at sum_d i_d * stride_d of E: one stride per logical dim says it all. With export_rows the dim
// export_dim of E has so many rows, and L's are each export_step-th from export_row on: several
// params share a tensor of the file. An export_name with "{}" is one of several tensors: each place
// of L's first dim is a tensor of its own, which the other attributes describe.
//
// A param may have a second form by the same attributes with "stored_" in the place of "export_",
// which is read where a file lacks the first one, and never written.
//
// Thread rule: a SafetensorsFile is immutable and shared; SafetensorsWriter's Write* may be called
// from several threads on disjoint elements, Create/Finish from one. Ownership: the file's spans
// live as long as the SafetensorsFile. Source: safetensors/src/tensor.rs (format and the reader's
// rejections).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::formats {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;          // as in the file: "F32", "BF16", "F8_E4M3", ...
  std::optional<ir::DType> dtype;  // nullopt: legal in files, not a type of the graph
  ir::Dims shape;
  int64_t begin_bytes = 0;  // in the data section
  int64_t end_bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  int64_t data_begin_bytes = 0;  // in the file: 8 + N
};

// Parses the first bytes of a file of file_bytes bytes; `prefix` must hold the whole header (or the
// whole file). Safe on any input. Errors: kInvalidArgument saying what is wrong: header longer than
// 100,000,000 bytes or than the file, not JSON, duplicate names, gaps or overlaps, offsets that do
// not match dtype and shape, bytes left over.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> prefix,
                                                 int64_t file_bytes);

// A read-only memory-mapped file.
class SafetensorsFile {
 public:
  // Errors: kNotFound, kPermissionDenied, kInvalidArgument as ParseSafetensorsHeader, all naming
  // the path.
  static Result<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  // A file that is open as `fd`; `name` stands for its path.
  static Result<std::shared_ptr<const SafetensorsFile>> OpenDescriptor(int fd,
                                                                       const std::string& name);
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // The entry, or nullptr.
  const SafetensorsEntry* Find(std::string_view name) const;
  // Bytes of an entry of this file; not necessarily aligned.
  std::span<const std::byte> data(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile(std::string path, MemoryMappedFile map)
      : path_(std::move(path)), map_(std::move(map)) {}
  static Result<std::shared_ptr<const SafetensorsFile>> OfMap(const std::string& path,
                                                              MemoryMappedFile map);
  std::string path_;
  MemoryMappedFile map_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_;
};

struct TensorSpec {
  std::string name;
  ir::TensorType type;
};

// The header bytes [0, 8+N) for these tensors, sorted by the format's rule (dtype descending, then
// name); the sorted tensors with offsets are returned in the header. `metadata` comes beside
// "format". Errors: kInvalidArgument duplicate or non-UTF-8 name, header too long.
struct EncodedHeader {
  std::string bytes;
  SafetensorsHeader header;
};
Result<EncodedHeader> EncodeSafetensorsHeader(
    const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata = {});

// Writes a file tile by tile, in any order. The bytes go to a temporary name next to `path`;
// Finish() makes them durable and renames, so `path` is always absent, the old file, or the
// complete new one. Destroyed before Finish: the temporary is gone.
class SafetensorsWriter {
 public:
  // Reserves the whole file at once. Errors: kResourceExhausted naming path and bytes when the disk
  // is full, kNotFound for a missing folder, kInvalidArgument as EncodeSafetensorsHeader.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(
      const std::string& path, const std::vector<TensorSpec>& tensors,
      const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::string& path() const { return path_; }
  int64_t file_bytes() const { return static_cast<int64_t>(map_bytes_); }

  // `bytes` go to elements [element_offset, ...) of the tensor. Errors: kNotFound unknown name,
  // kOutOfRange.
  Status Write(std::string_view name, int64_t element_offset, std::span<const std::byte> bytes);
  // A box of the exported tensor; `bytes` holds it in C order.
  Status WriteBox(std::string_view name, const ir::Box& box, std::span<const std::byte> bytes);
  // Elements of a strided box: index (i_0..) of `sizes` goes to element base + sum i_d *
  // strides[d].
  struct StridedBox {
    int64_t base = 0;
    ir::Dims sizes;
    std::vector<int64_t> strides;
  };
  Status WriteStrided(std::string_view name, const StridedBox& box,
                      std::span<const std::byte> bytes);

  // Errors: kFailedPrecondition naming a tensor that is not completely written; kDataLoss when the
  // disk reports an error.
  Status Finish();

 private:
  SafetensorsWriter() = default;
  Result<size_t> IndexOf(std::string_view name) const;
  std::byte* data(size_t index) const;

  std::string path_;
  std::string temporary_path_;
  SafetensorsHeader header_;
  std::map<std::string, size_t, std::less<>> index_;
  std::unique_ptr<std::atomic<int64_t>[]> written_bytes_;  // per tensor
  UniqueFd fd_;
  std::byte* map_ = nullptr;
  size_t map_bytes_ = 0;
};

// Where a param's elements are in its exported tensor.
struct ExportLayout {
  std::string name;              // export_name, or the param's name
  ir::TensorType type;           // of the exported tensor
  std::vector<int64_t> strides;  // per logical dim, in elements of the exported tensor
  bool whole = true;             // no other param has a part of the tensor
  int64_t base = 0;              // where the param's first element is, in elements of the tensor
  // Tensors of this type, one for each place of the first logical dim, whose stride is 0; "{}" in
  // the name stands for the place. 0: one tensor.
  int64_t parts = 0;

  // REQUIRES part < max(parts, 1).
  std::string NameOf(int64_t part) const;
  int64_t tensors() const { return parts > 0 ? parts : 1; }
};

// Errors: kInvalidArgument naming the param when export_perm is no permutation, export_shape has
// other elements, or its rows are not those of export_rows.
Result<ExportLayout> ExportLayoutOf(const ir::Node& param, const ir::TensorType& logical);
// The exported tensor's type alone.
Result<ir::TensorType> ExportType(const ir::Node& param, const ir::TensorType& logical);

// The tensors of a file, each once, in the order of their first params. Errors: kInvalidArgument
// naming a tensor that two params want in two types.
Result<std::vector<TensorSpec>> TensorsOf(const std::vector<ExportLayout>& layouts);

// Writes a box of the logical tensor; `bytes` is the box in C order (a device's tile). A default
// Box is the whole tensor.
Status WriteLogicalTile(SafetensorsWriter& writer, const ir::Node& param,
                        const ir::TensorType& logical, const ir::Box& box,
                        std::span<const std::byte> bytes);

// Reads a box of the logical tensor in C order. Float types of the file are converted (f16, bf16
// and fp8 widen, f64 to f32 rounds). The tensor may also be stored without the first component of
// its name
// ("wte.weight" for "transformer.wte.weight"). Errors: kNotFound, kInvalidArgument naming tensor,
// wanted and found shape.
Result<std::vector<std::byte>> ReadLogicalTile(const SafetensorsFile& file, const ir::Node& param,
                                               const ir::TensorType& logical, const ir::Box& box);
// The same, to where the caller has room for it. Errors: also kInvalidArgument: `into` is not of
// the tile's size.
Status ReadLogicalTile(const SafetensorsFile& file, const ir::Node& param,
                       const ir::TensorType& logical, const ir::Box& box,
                       std::span<std::byte> into);

// Whether the param keeps what it is initialised with where a file of weights lacks it.
bool MayBeDrawn(const ir::Node& param);

// Whether the file has every param of the graph in a form that ReadLogicalTile takes, or lacks one
// that may be drawn. Errors: as there, for the first param that does not fit.
Status CheckWeights(const SafetensorsFile& file, const ir::Graph& graph);

}  // namespace meshwright::formats
