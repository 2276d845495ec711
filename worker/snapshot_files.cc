#include "worker/snapshot_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "checkpoint/folder.h"
#include "collective/door.h"

namespace meshwright::worker {
namespace {

constexpr size_t kRequestBytes = 16;
constexpr uint32_t kMostAnswerText = 4096;
constexpr uint32_t kAskSize = ~uint32_t{0};

// Both processes are of machines with this byte order (base/check.h would refuse others).
template <typename T>
T Get(const std::byte* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void Put(T value, std::byte* into) {
  std::memcpy(into, &value, sizeof value);
}

Status AnswerWith(collective::Connection& connection, const std::string& refusal) {
  std::array<std::byte, 4> head{};
  Put(static_cast<uint32_t>(refusal.size()), head.data());
  MW_TRY(connection.Write(head.data(), head.size()));
  return connection.Write(refusal.data(), refusal.size());
}

// One request and its answer.
Status ServeOne(collective::Connection& connection, const FindSlot& find) {
  std::array<std::byte, kRequestBytes> request{};
  MW_TRY(connection.Read(request.data(), request.size()));
  const auto name_bytes = Get<uint32_t>(request.data());
  const auto offset = Get<int64_t>(request.data() + 4);
  const auto bytes = Get<uint32_t>(request.data() + 12);
  if (name_bytes > kMostSlotName || (bytes > kMostSlotBytes && bytes != kAskSize)) {
    return InvalidArgument(fmt::format("a request of {} bytes", bytes));
  }
  std::string name(name_bytes, '\0');
  MW_TRY(connection.Read(name.data(), name.size()));
  const std::span<const std::byte> slot = find(name);
  if (slot.empty()) return AnswerWith(connection, "it does not hold " + name);
  const auto size = static_cast<int64_t>(slot.size());
  const std::array<std::byte, 4> head{};
  if (bytes == kAskSize) {
    MW_TRY(connection.Write(head.data(), head.size()));
    return connection.Write(&size, sizeof size);
  }
  if (offset < 0 || offset > size - static_cast<int64_t>(bytes)) {
    return AnswerWith(connection, fmt::format("{} has {} bytes", name, size));
  }
  MW_TRY(connection.Write(head.data(), head.size()));
  return connection.Write(slot.data() + offset, bytes);
}

}  // namespace

void ServeSlots(collective::Connection& connection, const FindSlot& find) {
  MW_CHECK(connection.valid() && find != nullptr) << "slots are served to nobody";
  while (ServeOne(connection, find).ok()) {
  }
}

SnapshotFiles::SnapshotFiles(std::string cluster_id, std::string manifest,
                             std::vector<proto::SnapshotSource> sources,
                             std::shared_ptr<collective::Tls> tls)
    : cluster_id_(std::move(cluster_id)),
      manifest_(std::move(manifest)),
      sources_(std::move(sources)),
      tls_(std::move(tls)) {}

Result<std::string> SnapshotFiles::ReadAll(const std::string& file) {
  if (file != checkpoint::kManifestName) {
    return Fail(NotFound(fmt::format("snapshots have no file '{}'", file)));
  }
  MW_ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, checkpoint::ParseManifest(manifest_));
  if (manifest.files.size() != sources_.size()) {
    return Fail(DataLoss(
        fmt::format("{} files of snapshots in {} places", manifest.files.size(), sources_.size())));
  }
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < sources_.size(); ++i) {
    const proto::SnapshotSource& source = sources_[i];
    const collective::DoorName door{cluster_id_, source.mesh_gen.value(), source.process_id,
                                    source.secret};
    places_[manifest.files[i].name] = {source.slot,
                                       std::make_unique<SlotReader>(source.address, door, tls_)};
  }
  return manifest_;
}

Status SnapshotFiles::Read(const std::string& file, int64_t offset, std::span<std::byte> into) {
  const MutexLock lock(mutex_);
  const auto place = places_.find(file);
  if (place == places_.end()) return NotFound(fmt::format("nobody holds '{}'", file));
  return place->second.reader->Read(place->second.slot, offset, into).WithContext(file);
}

Status SlotReader::Read(const std::string& slot, int64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const size_t bytes = std::min<size_t>(into.size(), kMostSlotBytes);
    MW_TRY(Ask(slot, offset, static_cast<uint32_t>(bytes), into.subspan(0, bytes)));
    offset += static_cast<int64_t>(bytes);
    into = into.subspan(bytes);
  }
  return OkStatus();
}

Result<int64_t> SlotReader::Size(const std::string& slot) {
  int64_t size = 0;
  MW_TRY(Ask(slot, 0, kAskSize, std::as_writable_bytes(std::span(&size, 1))));
  return size;
}

Status SlotReader::Ask(const std::string& slot, int64_t offset, uint32_t bytes,
                       std::span<std::byte> into) {
  MW_CHECK(into.size() <= kMostSlotBytes) << into.size() << " bytes of a slot at once";
  if (!connection_.valid()) {
    MW_ASSIGN_OR_RETURN(connection_, collective::EnterDoor(address_, door_, kSlotTimeoutMs, tls_));
  }
  Result<std::string> refusal = Exchange(slot, offset, bytes, into);
  if (refusal.has_value()) return refusal->empty() ? OkStatus() : DataLoss(*refusal);
  // What is left of an answer on the way must not be taken for the next one.
  connection_.Reset();
  return refusal.error();
}

Result<std::string> SlotReader::Exchange(const std::string& slot, int64_t offset, uint32_t bytes,
                                         std::span<std::byte> into) {
  std::string request(kRequestBytes, '\0');
  auto* const head = reinterpret_cast<std::byte*>(request.data());
  Put(static_cast<uint32_t>(slot.size()), head);
  Put(offset, head + 4);
  Put(bytes, head + 12);
  request += slot;
  MW_TRY(connection_.Write(request.data(), request.size()));
  std::array<std::byte, 4> answer{};
  MW_TRY(connection_.Read(answer.data(), answer.size()));
  const auto text_bytes = Get<uint32_t>(answer.data());
  if (text_bytes > kMostAnswerText) {
    return Fail(DataLoss(fmt::format("a refusal of {} bytes", text_bytes)));
  }
  std::string text(text_bytes, '\0');
  if (text_bytes == 0) {
    MW_TRY(connection_.Read(into.data(), into.size()));
  } else {
    MW_TRY(connection_.Read(text.data(), text.size()));
  }
  return text;
}

}  // namespace meshwright::worker
