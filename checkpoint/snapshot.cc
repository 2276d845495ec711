#include "checkpoint/snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/os_error.h"
#include "checkpoint/cover.h"

namespace meshwright::checkpoint {
namespace {

constexpr uint64_t kMagic = 0x31544f485350414dULL;  // "MAPSHOT1"
constexpr int64_t kPage = 4096;
constexpr const char* kFileName = "memory";

int64_t RoundUp(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

// Both are read by other processes of the same binary and machine only.
struct SnapshotArea::Header {
  uint64_t magic;
  int64_t bytes;         // of the whole area
  int64_t layout_bytes;  // of its text, behind the header
};

struct SnapshotArea::Footer {
  std::atomic<int64_t> step;  // below 0: the slot is torn
  Digest digests;             // of the step and of the digests that follow
};

// ---- SnapshotLayout ----

int64_t SnapshotBox::bytes() const { return Volume(box) * ir::DTypeBytes(type.dtype); }

void SnapshotLayout::Add(std::string tensor, ir::TensorType type, ir::MemoryKind kind,
                         ir::Box box) {
  SnapshotBox added{std::move(tensor), std::move(type), kind, std::move(box), data_bytes_};
  data_bytes_ += added.bytes();
  pieces_ += PieceCount(added.bytes());
  boxes_.push_back(std::move(added));
}

// As shards of one file without digests: the text form that there is.
std::string FormatLayout(const SnapshotLayout& layout) {
  Shards shards;
  shards.files.push_back({kFileName, layout.data_bytes()});
  for (const SnapshotBox& box : layout.boxes()) {
    StoredTensor& tensor = shards.tensors[box.tensor];
    tensor.type = box.type;
    tensor.kind = box.kind;
    tensor.boxes.push_back({box.box, 0, box.begin_bytes, {}});
  }
  return FormatShards(shards);
}

Result<SnapshotLayout> ParseLayout(std::string_view text) {
  MW_ASSIGN_OR_RETURN(const Shards shards, ParseShards(text));
  std::vector<SnapshotBox> boxes;
  for (const auto& [name, tensor] : shards.tensors) {
    for (const StoredBox& stored : tensor.boxes) {
      boxes.push_back({name, tensor.type, tensor.kind, stored.box, stored.begin_bytes});
    }
  }
  std::sort(boxes.begin(), boxes.end(), [](const SnapshotBox& a, const SnapshotBox& b) {
    return a.begin_bytes < b.begin_bytes;
  });
  SnapshotLayout layout;
  for (SnapshotBox& box : boxes) {
    if (box.begin_bytes != layout.data_bytes()) {
      return Fail(DataLoss(fmt::format("box {} of '{}' does not lie behind the one before it",
                                       ToText(box.box), box.tensor)));
    }
    layout.Add(std::move(box.tensor), std::move(box.type), box.kind, std::move(box.box));
  }
  return layout;
}

// ---- SnapshotArea ----

Result<UniqueFd> MakeSnapshotMemory() {
  UniqueFd fd(::memfd_create("meshwright-snapshot", MFD_CLOEXEC));
  if (!fd.valid()) return Fail(OsError(errno, "create memory for snapshots"));
  return fd;
}

Result<SnapshotArea> SnapshotArea::Create() {
  MW_ASSIGN_OR_RETURN(UniqueFd fd, MakeSnapshotMemory());
  return Over(std::move(fd));
}

SnapshotArea SnapshotArea::Over(UniqueFd fd) {
  SnapshotArea area;
  area.fd_ = std::move(fd);
  return area;
}

Result<SnapshotArea> SnapshotArea::Open(UniqueFd fd) {
  SnapshotArea area;
  area.fd_ = std::move(fd);
  struct stat info {};
  if (::fstat(area.fd_.get(), &info) != 0) return Fail(OsError(errno, "snapshot memory"));
  if (info.st_size < kPage) return Fail(DataLoss("the snapshot memory has no layout"));
  MW_TRY(area.Map(info.st_size));
  MW_TRY(area.ReadLayout());
  return area;
}

SnapshotArea::SnapshotArea(SnapshotArea&& other) noexcept { *this = std::move(other); }

SnapshotArea& SnapshotArea::operator=(SnapshotArea&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(map_, other.map_);
  std::swap(bytes_, other.bytes_);
  std::swap(layout_, other.layout_);
  std::swap(first_piece_, other.first_piece_);
  std::swap(slot_begin_, other.slot_begin_);
  std::swap(slot_bytes_, other.slot_bytes_);
  std::swap(data_begin_, other.data_begin_);
  std::swap(writing_, other.writing_);
  return *this;
}

SnapshotArea::~SnapshotArea() {
  if (map_ != nullptr) ::munmap(map_, static_cast<size_t>(bytes_));
}

Status SnapshotArea::Map(int64_t bytes) {
  void* map =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (map == MAP_FAILED) return OsError(errno, fmt::format("map {} bytes for snapshots", bytes));
  map_ = static_cast<std::byte*>(map);
  bytes_ = bytes;
  return OkStatus();
}

Status SnapshotArea::SetLayout(const SnapshotLayout& layout) {
  MW_CHECK(map_ == nullptr) << "the snapshot memory has a layout";
  const std::string text = FormatLayout(layout);
  layout_ = layout;
  slot_begin_ = RoundUp(static_cast<int64_t>(sizeof(Header) + text.size()));
  data_begin_ = RoundUp(static_cast<int64_t>(sizeof(Footer)) +
                        layout.pieces() * static_cast<int64_t>(sizeof(Digest)));
  slot_bytes_ = data_begin_ + RoundUp(layout.data_bytes());
  const int64_t bytes = slot_begin_ + 2 * slot_bytes_;
  if (::ftruncate(fd_.get(), bytes) != 0) {
    return OsError(errno, fmt::format("take {} bytes for snapshots", bytes));
  }
  MW_TRY(Map(bytes));
  std::memcpy(map_ + sizeof(Header), text.data(), text.size());
  for (const int slot : {0, 1}) FooterOf(slot).step = -1;
  const Header header{kMagic, bytes, static_cast<int64_t>(text.size())};
  std::memcpy(map_, &header, sizeof header);
  return ReadLayout();
}

Status SnapshotArea::ReadLayout() {
  Header header{};
  std::memcpy(&header, map_, sizeof header);
  const auto after_header = bytes_ - static_cast<int64_t>(sizeof header);
  if (header.magic != kMagic || header.bytes != bytes_ || header.layout_bytes < 0 ||
      header.layout_bytes > after_header) {
    return DataLoss("the snapshot memory has no layout");
  }
  const std::string_view text(reinterpret_cast<const char*>(map_) + sizeof header,
                              static_cast<size_t>(header.layout_bytes));
  MW_ASSIGN_OR_RETURN(layout_, ParseLayout(text));
  slot_begin_ = RoundUp(static_cast<int64_t>(sizeof(Header)) + header.layout_bytes);
  data_begin_ = RoundUp(static_cast<int64_t>(sizeof(Footer)) +
                        layout_.pieces() * static_cast<int64_t>(sizeof(Digest)));
  slot_bytes_ = data_begin_ + RoundUp(layout_.data_bytes());
  if (slot_begin_ + 2 * slot_bytes_ != bytes_) {
    return DataLoss("the snapshot memory is not as large as its layout");
  }
  first_piece_.clear();
  int64_t piece = 0;
  for (const SnapshotBox& box : layout_.boxes()) {
    first_piece_.push_back(piece);
    piece += PieceCount(box.bytes());
  }
  return OkStatus();
}

SnapshotArea::Footer& SnapshotArea::FooterOf(int slot) const {
  return *reinterpret_cast<Footer*>(map_ + slot_begin_ + slot * slot_bytes_);
}

std::span<Digest> SnapshotArea::DigestsOf(int slot) const {
  auto* const begin = map_ + slot_begin_ + slot * slot_bytes_ + sizeof(Footer);
  return {reinterpret_cast<Digest*>(begin), static_cast<size_t>(layout_.pieces())};
}

std::byte* SnapshotArea::DataOf(int slot) const {
  return map_ + slot_begin_ + slot * slot_bytes_ + data_begin_;
}

namespace {

Digest FooterDigest(int64_t step, std::span<const Digest> digests) {
  Digest digest = DigestOf(std::as_bytes(digests));
  digest.low ^= static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15ULL;
  return digest;
}

}  // namespace

void SnapshotArea::Begin() {
  MW_CHECK(map_ != nullptr) << "a snapshot without a layout";
  writing_ = FooterOf(0).step <= FooterOf(1).step ? 0 : 1;
  FooterOf(writing_).step = -1;
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

std::span<std::byte> SnapshotArea::Place(size_t box) {
  MW_CHECK(writing_ >= 0 && box < layout_.boxes().size()) << "box " << box << " of a snapshot";
  const SnapshotBox& place = layout_.boxes()[box];
  return {DataOf(writing_) + place.begin_bytes, static_cast<size_t>(place.bytes())};
}

void SnapshotArea::Seal(size_t box, int64_t first, int64_t last) {
  const std::span<const std::byte> bytes = Place(box);
  const std::span<Digest> digests = DigestsOf(writing_);
  MW_CHECK(first >= 0 && first <= last && last <= PieceCount(static_cast<int64_t>(bytes.size())))
      << "pieces " << first << " to " << last << " of box " << box;
  constexpr auto kPiece = static_cast<size_t>(kPieceBytes);
  for (auto piece = static_cast<size_t>(first); piece < static_cast<size_t>(last); ++piece) {
    const size_t begin = piece * kPiece;
    digests[static_cast<size_t>(first_piece_[box]) + piece] =
        DigestOf(bytes.subspan(begin, std::min(kPiece, bytes.size() - begin)));
  }
}

void SnapshotArea::Finish(int64_t step) {
  MW_CHECK(writing_ >= 0 && step >= 0) << "the snapshot of step " << step;
  Footer& footer = FooterOf(writing_);
  footer.digests = FooterDigest(step, DigestsOf(writing_));
  std::atomic_thread_fence(std::memory_order_seq_cst);
  footer.step = step;
  writing_ = -1;
}

std::vector<Snapshot> SnapshotArea::Whole() const {
  std::vector<Snapshot> whole;
  if (map_ == nullptr) return whole;
  for (const int slot : {0, 1}) {
    const Footer& footer = FooterOf(slot);
    const int64_t step = footer.step;
    if (step < 0 || footer.digests != FooterDigest(step, DigestsOf(slot))) continue;
    whole.push_back(
        {step, DigestsOf(slot), {DataOf(slot), static_cast<size_t>(layout_.data_bytes())}});
  }
  std::sort(whole.begin(), whole.end(),
            [](const Snapshot& a, const Snapshot& b) { return a.step > b.step; });
  return whole;
}

std::optional<Snapshot> SnapshotArea::OfStep(int64_t step) const {
  if (map_ == nullptr || step < 0) return std::nullopt;
  for (const int slot : {0, 1}) {
    if (FooterOf(slot).step != step) continue;
    return Snapshot{
        step, DigestsOf(slot), {DataOf(slot), static_cast<size_t>(layout_.data_bytes())}};
  }
  return std::nullopt;
}

void CopyBox(SnapshotArea& area, size_t box, std::span<const std::byte> bytes) {
  const std::span<std::byte> place = area.Place(box);
  MW_CHECK(bytes.size() == place.size())
      << bytes.size() << " bytes for box " << box << " of " << place.size();
  constexpr auto kPiece = static_cast<size_t>(kPieceBytes);
  // Digests while the bytes are in the cache.
  for (size_t begin = 0; begin < bytes.size(); begin += kPiece) {
    std::memcpy(place.data() + begin, bytes.data() + begin, std::min(kPiece, bytes.size() - begin));
    const auto piece = static_cast<int64_t>(begin / kPiece);
    area.Seal(box, piece, piece + 1);
  }
}

Shards ShardsOf(const SnapshotLayout& layout, const Snapshot& snapshot, const std::string& name) {
  Shards shards;
  shards.files.push_back({name, layout.data_bytes()});
  size_t piece = 0;
  for (const SnapshotBox& box : layout.boxes()) {
    StoredTensor& tensor = shards.tensors[box.tensor];
    tensor.type = box.type;
    tensor.kind = box.kind;
    const auto count = static_cast<size_t>(PieceCount(box.bytes()));
    const auto begin = snapshot.digests.begin() + static_cast<ptrdiff_t>(piece);
    tensor.boxes.push_back(
        {box.box, 0, box.begin_bytes, {begin, begin + static_cast<ptrdiff_t>(count)}});
    piece += count;
  }
  return shards;
}

}  // namespace meshwright::checkpoint
