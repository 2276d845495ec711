// Snapshots: the state of a worker's devices in memory that outlives the process which computes.
//
// The memory belongs to the worker's supervisor; the executor of a mesh writes into it after a
// step, and dies as it likes. There are two slots, written in turn, so that one of them is whole at
// any moment. A slot holds the boxes of its layout one after the other, then a footer: the step,
// and the digest of every piece. The footer is written last and wiped first; a slot without one is
// torn.
//
//   [ header | layout | slot 0: footer, digests, data | slot 1: the same ]
//
// Thread rule: a SnapshotArea is used by one thread at a time, in every process that has it, but
// for Place and Seal between Begin and Finish: each box by one thread. Who reads another process's
// area reads slots whose writer is gone or is writing the other slot, or compares digests.
// Ownership: owns its mapping and its descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "checkpoint/digest.h"
#include "checkpoint/manifest.h"
#include "ir/graph.h"
#include "ir/program.h"

namespace meshwright::checkpoint {

// Where a box lies in the data of a slot.
struct SnapshotBox {
  std::string tensor;
  ir::TensorType type;  // of the whole tensor
  ir::MemoryKind kind = ir::MemoryKind::kWeights;
  ir::Box box;  // explicit
  int64_t begin_bytes = 0;
  int64_t bytes() const;
  friend bool operator==(const SnapshotBox&, const SnapshotBox&) = default;
};

class SnapshotLayout {
 public:
  // Behind what is there.
  void Add(std::string tensor, ir::TensorType type, ir::MemoryKind kind, ir::Box box);
  const std::vector<SnapshotBox>& boxes() const { return boxes_; }
  int64_t data_bytes() const { return data_bytes_; }
  int64_t pieces() const { return pieces_; }  // of all boxes
  friend bool operator==(const SnapshotLayout&, const SnapshotLayout&) = default;

 private:
  std::vector<SnapshotBox> boxes_;
  int64_t data_bytes_ = 0;
  int64_t pieces_ = 0;
};

// A layout as text. Errors: kDataLoss: it is none.
std::string FormatLayout(const SnapshotLayout& layout);
Result<SnapshotLayout> ParseLayout(std::string_view text);

// A slot that is whole. Views of the area's memory.
struct Snapshot {
  int64_t step = 0;                 // steps that are done
  std::span<const Digest> digests;  // of the pieces of the boxes, in their order
  std::span<const std::byte> data;
};

class SnapshotArea {
 public:
  // Memory without a layout yet. Errors: kResourceExhausted.
  static Result<SnapshotArea> Create();
  // Over such memory that nobody has given a layout yet, by its descriptor.
  static SnapshotArea Over(UniqueFd fd);
  // That of another process. Errors: kDataLoss: no area, or one that is not whole.
  static Result<SnapshotArea> Open(UniqueFd fd);
  SnapshotArea(SnapshotArea&& other) noexcept;
  SnapshotArea& operator=(SnapshotArea&& other) noexcept;
  ~SnapshotArea();

  int fd() const { return fd_.get(); }
  int64_t bytes() const { return bytes_; }
  const SnapshotLayout& layout() const { return layout_; }

  // Takes the memory that the layout needs; both slots are torn. Errors: kResourceExhausted naming
  // the bytes.
  Status SetLayout(const SnapshotLayout& layout);

  // ---- REQUIRES a layout ----
  // Wipes the older slot's footer; then every box is to be placed and sealed.
  void Begin();
  // Where the bytes of box number `box` of the slot that is being written go.
  std::span<std::byte> Place(size_t box);
  // Its pieces first ... last - 1 are there: computes their digests.
  void Seal(size_t box, int64_t first, int64_t last);
  // The slot is whole.
  void Finish(int64_t step);

  // Whole slots, the newest first.
  std::vector<Snapshot> Whole() const;
  // The slot of this step, for a reader who has its digests from elsewhere: they are not checked
  // here.
  std::optional<Snapshot> OfStep(int64_t step) const;

 private:
  struct Header;
  struct Footer;
  SnapshotArea() = default;
  Status Map(int64_t bytes);
  Status ReadLayout();
  Footer& FooterOf(int slot) const;
  std::span<Digest> DigestsOf(int slot) const;
  std::byte* DataOf(int slot) const;

  UniqueFd fd_;
  std::byte* map_ = nullptr;
  int64_t bytes_ = 0;
  SnapshotLayout layout_;
  std::vector<int64_t> first_piece_;  // by box
  int64_t slot_begin_ = 0;            // of slot 0
  int64_t slot_bytes_ = 0;
  int64_t data_begin_ = 0;  // within a slot
  int writing_ = -1;
};

// The memory of Create(): processes can share it.
Result<UniqueFd> MakeSnapshotMemory();

// Box number `box` of the slot that is being written.
void CopyBox(SnapshotArea& area, size_t box, std::span<const std::byte> bytes);

// What an area's slot adds to a manifest: boxes in the file `name`.
Shards ShardsOf(const SnapshotLayout& layout, const Snapshot& snapshot, const std::string& name);

}  // namespace meshwright::checkpoint
