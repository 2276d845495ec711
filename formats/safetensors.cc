#include "formats/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/os_error.h"

static_assert(std::endian::native == std::endian::little, "the format is little endian");

namespace meshwright::formats {
namespace {

Status SystemError(std::string_view what, const std::string& path, int error) {
  return OsError(error, fmt::format("{} {}", what, path));
}

}  // namespace

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  MW_ASSIGN_OR_RETURN(MemoryMappedFile map, MemoryMappedFile::Open(path));
  return OfMap(path, std::move(map));
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::OpenDescriptor(
    int fd, const std::string& name) {
  auto map = MemoryMappedFile::Open(fmt::format("/proc/self/fd/{}", fd));
  if (!map.has_value()) return Fail(map.error().WithContext(name));
  return OfMap(name, std::move(*map));
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::OfMap(const std::string& path,
                                                                      MemoryMappedFile map) {
  std::shared_ptr<SafetensorsFile> file(new SafetensorsFile(path, std::move(map)));
  const std::span bytes(file->map_.data(), static_cast<size_t>(file->map_.bytes()));
  Result<SafetensorsHeader> header = ParseSafetensorsHeader(bytes, file->map_.bytes());
  if (!header) return Fail(header.error().WithContext(path + " is no valid safetensors file"));
  file->header_ = std::move(*header);
  for (size_t i = 0; i < file->header_.entries.size(); ++i) {
    file->index_.emplace(file->header_.entries[i].name, i);
  }
  return std::shared_ptr<const SafetensorsFile>(std::move(file));
}

const SafetensorsEntry* SafetensorsFile::Find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &header_.entries[it->second];
}

std::span<const std::byte> SafetensorsFile::data(const SafetensorsEntry& entry) const {
  MW_CHECK(entry.begin_bytes >= 0 && entry.begin_bytes <= entry.end_bytes &&
           header_.data_begin_bytes + entry.end_bytes <= map_.bytes())
      << "'" << entry.name << "' is no tensor of " << path_;
  return {map_.data() + header_.data_begin_bytes + entry.begin_bytes,
          static_cast<size_t>(entry.end_bytes - entry.begin_bytes)};
}

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    const std::string& path, const std::vector<TensorSpec>& tensors,
    const std::map<std::string, std::string>& metadata) {
  MW_ASSIGN_OR_RETURN(EncodedHeader encoded, EncodeSafetensorsHeader(tensors, metadata));
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter());
  writer->path_ = path;
  std::string temporary = path + ".XXXXXX";
  writer->fd_.Reset(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!writer->fd_.valid()) return Fail(SystemError("create", path, errno));
  writer->temporary_path_ = temporary;
  writer->header_ = std::move(encoded.header);
  const auto& entries = writer->header_.entries;
  const int64_t data_bytes = entries.empty() ? 0 : entries.back().end_bytes;
  const int64_t file_bytes = writer->header_.data_begin_bytes + data_bytes;
  MW_CHECK(static_cast<int64_t>(encoded.bytes.size()) == writer->header_.data_begin_bytes)
      << "the header of " << path << " ends before its data";
  // Blocks are reserved now: a full disk is an error here, not a SIGBUS at a later write through
  // the map.
  if (const int error = ::posix_fallocate(writer->fd_.get(), 0, file_bytes); error != 0) {
    return Fail(SystemError(fmt::format("reserve {} bytes for", file_bytes), path, error));
  }
  if (::fchmod(writer->fd_.get(), 0644) != 0) return Fail(SystemError("chmod", path, errno));
  void* map = ::mmap(nullptr, static_cast<size_t>(file_bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                     writer->fd_.get(), 0);
  if (map == MAP_FAILED) return Fail(SystemError("map", path, errno));
  writer->map_ = static_cast<std::byte*>(map);
  writer->map_bytes_ = static_cast<size_t>(file_bytes);
  std::memcpy(writer->map_, encoded.bytes.data(), encoded.bytes.size());
  for (size_t i = 0; i < entries.size(); ++i) writer->index_.emplace(entries[i].name, i);
  writer->written_bytes_ = std::make_unique<std::atomic<int64_t>[]>(entries.size());
  return writer;
}

SafetensorsWriter::~SafetensorsWriter() {
  if (map_ != nullptr) ::munmap(map_, map_bytes_);
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

Result<size_t> SafetensorsWriter::IndexOf(std::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) {
    return Fail(NotFound(fmt::format("{} has no tensor '{}'", path_, name)));
  }
  return it->second;
}

std::byte* SafetensorsWriter::data(size_t index) const {
  MW_CHECK(index < header_.entries.size()) << "tensor " << index << " of " << path_;
  return map_ + header_.data_begin_bytes + header_.entries[index].begin_bytes;
}

Status SafetensorsWriter::Write(std::string_view name, int64_t element_offset,
                                std::span<const std::byte> bytes) {
  MW_ASSIGN_OR_RETURN(const size_t index, IndexOf(name));
  const int64_t element_bytes = ir::DTypeBytes(*header_.entries[index].dtype);
  const auto count = static_cast<int64_t>(bytes.size()) / element_bytes;
  if (count * element_bytes != static_cast<int64_t>(bytes.size())) {
    return InvalidArgument(fmt::format("tensor '{}': {} bytes are not whole elements of {} bytes",
                                       name, bytes.size(), element_bytes));
  }
  return WriteStrided(name, {element_offset, {count}, {1}}, bytes);
}

Status SafetensorsWriter::WriteBox(std::string_view name, const ir::Box& box,
                                   std::span<const std::byte> bytes) {
  MW_ASSIGN_OR_RETURN(const size_t index, IndexOf(name));
  const ir::Dims& shape = header_.entries[index].shape;
  if (box.offset.empty() && box.size.empty()) return Write(name, 0, bytes);
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) {
    return InvalidArgument(fmt::format("tensor '{}' [{}]: a box of rank {}", name,
                                       fmt::join(shape, ","), box.size.size()));
  }
  StridedBox strided{0, box.size, std::vector<int64_t>(shape.size())};
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (box.offset[d] < 0 || box.size[d] < 0 || box.offset[d] > shape[d] - box.size[d]) {
      return OutOfRange(fmt::format("tensor '{}' [{}]: box [{}:{}] leaves it", name,
                                    fmt::join(shape, ","), fmt::join(box.offset, ","),
                                    fmt::join(box.size, ",")));
    }
    strided.strides[d] = stride;
    strided.base += box.offset[d] * stride;
    stride *= shape[d];
  }
  return WriteStrided(name, strided, bytes);
}

Status SafetensorsWriter::Finish() {
  if (temporary_path_.empty()) return FailedPrecondition(path_ + " is already finished");
  for (size_t i = 0; i < header_.entries.size(); ++i) {
    const SafetensorsEntry& entry = header_.entries[i];
    const int64_t written = written_bytes_[i].load();
    if (written < entry.end_bytes - entry.begin_bytes) {
      return FailedPrecondition(fmt::format("{}: {} of {} bytes of tensor '{}' were written", path_,
                                            written, entry.end_bytes - entry.begin_bytes,
                                            entry.name));
    }
  }
  if (::msync(map_, map_bytes_, MS_SYNC) != 0) return SystemError("sync", path_, errno);
  if (::fsync(fd_.get()) != 0) return SystemError("sync", path_, errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return SystemError("rename to", path_, errno);
  }
  temporary_path_.clear();
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  const UniqueFd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_fd.valid()) return SystemError("open", folder, errno);
  // The rename is durable once its folder is.
  if (::fsync(folder_fd.get()) != 0) return SystemError("sync", folder, errno);
  return OkStatus();
}

}  // namespace meshwright::formats
