// Slots of snapshots as files of a checkpoint: read from the memory of workers, over their data
// ports (collective/door.h).
//
//   request   u32 bytes of the slot's name, i64 offset, u32 bytes (all ones: the size), name
//   answer    u32 0, the bytes or the size as i64   or   u32 bytes of a text, which says why not
//
// Integers are little endian. Who reads compares the digests that it has from the controller: a
// slot may be written anew meanwhile.
//
// Thread rule: SnapshotFiles is thread-safe; ServeSlots blocks until the reader closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "checkpoint/reader.h"
#include "collective/door.h"
#include "proto/state_messages.h"

namespace meshwright::worker {

// Of one request.
inline constexpr uint32_t kMostSlotBytes = 16 << 20;
inline constexpr uint32_t kMostSlotName = 1024;
// For a worker's memory to answer; then it counts as gone.
inline constexpr int64_t kSlotTimeoutMs = 5'000;

// The bytes of a slot; empty: there is none of this name.
using FindSlot = std::function<std::span<const std::byte>(const std::string& name)>;
// Answers requests of a connection. What is found lives until it returns.
void ServeSlots(collective::Connection& connection, const FindSlot& find);

// Reads what one worker has of one mesh; connects when it is first needed.
//
// Thread rule: one thread.
class SlotReader {
 public:
  // tls: as of the worker's data port; null: plain.
  SlotReader(std::string address, collective::DoorName door, std::shared_ptr<collective::Tls> tls)
      : address_(std::move(address)), door_(std::move(door)), tls_(std::move(tls)) {}

  // Errors: kDataLoss: it is not there; kUnavailable: nobody answers.
  Status Read(const std::string& slot, int64_t offset, std::span<std::byte> into);
  Result<int64_t> Size(const std::string& slot);

 private:
  Status Ask(const std::string& slot, int64_t offset, uint32_t bytes, std::span<std::byte> into);
  // Why it is refused; "": `into` has the answer.
  Result<std::string> Exchange(const std::string& slot, int64_t offset, uint32_t bytes,
                               std::span<std::byte> into);

  const std::string address_;
  const collective::DoorName door_;
  const std::shared_ptr<collective::Tls> tls_;
  collective::Connection connection_;
};

// The files of a manifest of snapshots.
class SnapshotFiles final : public checkpoint::ByteSource {
 public:
  // sources: of the manifest's files, in their order. tls: as of the workers' data ports.
  SnapshotFiles(std::string cluster_id, std::string manifest,
                std::vector<proto::SnapshotSource> sources, std::shared_ptr<collective::Tls> tls);

  Status Read(const std::string& file, int64_t offset, std::span<std::byte> into) override;
  Result<std::string> ReadAll(const std::string& file) override;

 private:
  struct Place {
    std::string slot;
    std::unique_ptr<SlotReader> reader;
  };

  const std::string cluster_id_;
  const std::string manifest_;
  const std::vector<proto::SnapshotSource> sources_;
  const std::shared_ptr<collective::Tls> tls_;
  Mutex mutex_;
  std::map<std::string, Place> places_ MW_GUARDED_BY(mutex_);  // by file
};

}  // namespace meshwright::worker
