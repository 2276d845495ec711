#include "checkpoint/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/os_error.h"
#include "checkpoint/cover.h"
#include "checkpoint/folder.h"

namespace meshwright::checkpoint {
namespace {

// A box within a row-major tensor as runs of bytes that are contiguous in both.
class Runs {
 public:
  Runs(const ir::Box& part, const ir::Box& within, int64_t element_bytes)
      : part_(part), within_(within), element_bytes_(element_bytes) {
    inner_dims_ = part.size.size();
    run_elements_ = 1;
    // Trailing dims that the part covers fully, and the first that it does not, make one run.
    while (inner_dims_ > 0) {
      --inner_dims_;
      run_elements_ *= part.size[inner_dims_];
      if (part.size[inner_dims_] != within.size[inner_dims_]) break;
    }
    count_ = 1;
    for (size_t d = 0; d < inner_dims_; ++d) count_ *= part.size[d];
  }

  int64_t count() const { return count_; }
  int64_t run_bytes() const { return run_elements_ * element_bytes_; }
  // Byte of run `index` in the row-major bytes of `within`; REQUIRES index < count().
  int64_t Begin(int64_t index) const {
    int64_t offset = 0;
    int64_t stride = 1;
    for (size_t d = part_.size.size(); d-- > 0;) {
      int64_t at = part_.offset[d] - within_.offset[d];
      if (d < inner_dims_) {
        at += index % part_.size[d];
        index /= part_.size[d];
      }
      offset += at * stride;
      stride *= within_.size[d];
    }
    return offset * element_bytes_;
  }

 private:
  const ir::Box& part_;
  const ir::Box& within_;
  const int64_t element_bytes_;
  size_t inner_dims_ = 0;
  int64_t run_elements_ = 1;
  int64_t count_ = 1;
};

}  // namespace

// ---- FolderSource ----

Result<int> FolderSource::Open(const std::string& file) {
  const MutexLock lock(mutex_);
  UniqueFd& fd = open_[file];
  if (!fd.valid()) {
    const std::string path = path_ + "/" + file;
    fd.Reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return Fail(OsError(errno, "open " + path));
  }
  return fd.get();
}

Status FolderSource::Read(const std::string& file, int64_t offset, std::span<std::byte> into) {
  MW_ASSIGN_OR_RETURN(const int fd, Open(file));
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(fd, into.data() + done, into.size() - done,
                                static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return OsError(errno, fmt::format("read {}/{}", path_, file));
    if (got == 0) {
      return DataLoss(fmt::format("{}/{} ends at byte {}: it was cut off", path_, file,
                                  offset + static_cast<int64_t>(done)));
    }
    done += static_cast<size_t>(got);
  }
  return OkStatus();
}

Result<std::string> FolderSource::ReadAll(const std::string& file) {
  return ReadFile(path_ + "/" + file);
}

// ---- Reader ----

Result<std::unique_ptr<Reader>> Reader::Open(std::unique_ptr<ByteSource> source) {
  MW_ASSIGN_OR_RETURN(const std::string text, source->ReadAll(kManifestName));
  MW_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text));
  return std::unique_ptr<Reader>(new Reader(std::move(source), std::move(manifest)));
}

Result<std::unique_ptr<Reader>> Reader::OpenFolder(const std::string& path) {
  auto reader = Open(std::make_unique<FolderSource>(path));
  if (!reader.has_value()) return Fail(reader.error().WithContext("checkpoint " + path));
  return reader;
}

Result<std::vector<std::byte>> Reader::ReadBox(const std::string& tensor,
                                               const ir::TensorType& type, const ir::Box& box) {
  const ir::Box wanted = Explicit(box, type.dims);
  std::vector<std::byte> dense(static_cast<size_t>(Volume(wanted) * ir::DTypeBytes(type.dtype)));
  MW_TRY(ReadBox(tensor, type, wanted, dense));
  return dense;
}

Status Reader::ReadBox(const std::string& tensor, const ir::TensorType& type, const ir::Box& box,
                       std::span<std::byte> dense) {
  const auto it = manifest_.tensors.find(tensor);
  if (it == manifest_.tensors.end()) {
    return NotFound(fmt::format("the checkpoint has no tensor '{}'", tensor));
  }
  const StoredTensor& stored = it->second;
  if (stored.type != type) {
    return InvalidArgument(fmt::format("tensor '{}' is {} in the checkpoint, {} in the job", tensor,
                                       stored.type.ToString(), type.ToString()));
  }
  const ir::Box wanted = Explicit(box, type.dims);
  MW_CHECK(static_cast<int64_t>(dense.size()) == Volume(wanted) * ir::DTypeBytes(type.dtype))
      << "a box of " << tensor << " into " << dense.size() << " bytes";
  for (const StoredBox& part : stored.boxes) {
    if (IsEmpty(Intersection(wanted, part.box))) continue;
    MW_TRY(CopyPart(stored, part, wanted, dense)
               .WithContext(fmt::format("tensor '{}', box {}, {}", tensor, ToText(part.box),
                                        manifest_.files[static_cast<size_t>(part.file)].name)));
  }
  return OkStatus();
}

// What `stored` has of `wanted`, piece by piece of the stored box, in the order of its bytes.
Status Reader::CopyPart(const StoredTensor& tensor, const StoredBox& stored, const ir::Box& wanted,
                        std::span<std::byte> dense) {
  const int64_t element_bytes = ir::DTypeBytes(tensor.type.dtype);
  const int64_t box_bytes = Volume(stored.box) * element_bytes;
  const ir::Box part = Intersection(wanted, stored.box);
  // Of two ways to cut the part into runs the finer one is contiguous in both.
  const Runs in_stored(part, stored.box, element_bytes);
  const Runs in_wanted(part, wanted, element_bytes);
  const int64_t run_bytes = std::min(in_stored.run_bytes(), in_wanted.run_bytes());
  const int64_t per_stored = in_stored.run_bytes() / run_bytes;
  const int64_t per_wanted = in_wanted.run_bytes() / run_bytes;
  std::vector<std::byte> buffer;
  int64_t loaded = -1;
  const int64_t runs = in_stored.count() * per_stored;
  for (int64_t run = 0; run < runs; ++run) {
    int64_t from = in_stored.Begin(run / per_stored) + run % per_stored * run_bytes;
    int64_t to = in_wanted.Begin(run / per_wanted) + run % per_wanted * run_bytes;
    int64_t left = run_bytes;
    while (left > 0) {
      const int64_t piece = from / kPieceBytes;
      const int64_t in_piece = from - piece * kPieceBytes;
      const int64_t piece_bytes = std::min(kPieceBytes, box_bytes - piece * kPieceBytes);
      const int64_t bytes = std::min(left, piece_bytes - in_piece);
      const auto place = dense.subspan(static_cast<size_t>(to), static_cast<size_t>(bytes));
      if (bytes == piece_bytes) {
        MW_TRY(ReadPiece(stored, piece, place));  // where it belongs, without a copy
      } else {
        buffer.resize(static_cast<size_t>(piece_bytes));
        if (piece != loaded) MW_TRY(ReadPiece(stored, piece, buffer));
        loaded = piece;
        std::memcpy(place.data(), buffer.data() + in_piece, place.size());
      }
      from += bytes;
      to += bytes;
      left -= bytes;
    }
  }
  return OkStatus();
}

Status Reader::ReadPiece(const StoredBox& stored, int64_t piece, std::span<std::byte> into) {
  const int64_t begin = stored.begin_bytes + piece * kPieceBytes;
  const std::string& file = manifest_.files[static_cast<size_t>(stored.file)].name;
  DigestStream digest;
  const size_t most = source_->part_bytes();
  for (size_t at = 0; at < into.size(); at += most) {
    const auto part = into.subspan(at, std::min(most, into.size() - at));
    MW_TRY(source_->Read(file, begin + static_cast<int64_t>(at), part));
    digest.Add(part);
  }
  if (digest.End() == stored.digests[static_cast<size_t>(piece)]) return OkStatus();
  return DataLoss(fmt::format("bytes {} to {} are not those that were written", begin,
                              begin + static_cast<int64_t>(into.size())));
}

Status Reader::Verify() {
  std::vector<std::byte> dense;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const StoredBox& box : tensor.boxes) {
      dense.resize(static_cast<size_t>(Volume(box.box) * ir::DTypeBytes(tensor.type.dtype)));
      MW_TRY(ReadBox(name, tensor.type, box.box, dense));
    }
  }
  return OkStatus();
}

}  // namespace meshwright::checkpoint
