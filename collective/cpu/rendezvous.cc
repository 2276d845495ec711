#include "collective/cpu/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::collective {
namespace {

std::string Describe(const ManifestEntry& entry) {
  return fmt::format("{} from rank {} to rank {} with {} slots of {} bytes", entry.name,
                     entry.from_rank, entry.to_rank, entry.shape.slots, entry.shape.slot_bytes);
}

Status OneSided(const ManifestEntry& entry, const std::string& has, const std::string& has_not) {
  return InvalidArgument(
      fmt::format("{} made {}, {} did not; make the same groups and channels on all their members",
                  has, Describe(entry), has_not));
}

}  // namespace

std::vector<ManifestEntry> ListPipes(std::vector<PipeSpec>& pipes) {
  std::sort(pipes.begin(), pipes.end(),
            [](const PipeSpec& a, const PipeSpec& b) { return a.entry.key < b.entry.key; });
  std::vector<ManifestEntry> entries;
  for (const PipeSpec& pipe : pipes) {
    entries.push_back(pipe.entry);
  }
  return entries;
}

Status ComparePipes(const std::vector<ManifestEntry>& own, const std::vector<ManifestEntry>& peer,
                    const std::string& peer_name) {
  for (size_t i = 0; i < std::max(own.size(), peer.size()); ++i) {
    const bool own_extra = i >= peer.size() || (i < own.size() && own[i].key < peer[i].key);
    if (own_extra) {
      return OneSided(own[i], "this process", peer_name);
    }
    if (i >= own.size() || peer[i].key < own[i].key) {
      return OneSided(peer[i], peer_name, "this process");
    }
    if (!(own[i] == peer[i])) {
      return InvalidArgument(fmt::format("this process has {}, {} has {}", Describe(own[i]),
                                         peer_name, Describe(peer[i])));
    }
  }
  return OkStatus();
}

int64_t SharedRegionBytes(const std::vector<ManifestEntry>& entries) {
  int64_t bytes = 0;
  for (const ManifestEntry& entry : entries) {
    bytes += SlotRing::Bytes(entry.shape);
  }
  return bytes;
}

std::vector<SlotRing> LayOutRings(const Region& region, const std::vector<ManifestEntry>& entries) {
  MW_CHECK(region.bytes() >= SharedRegionBytes(entries));
  std::vector<SlotRing> rings;
  std::byte* next = region.data();
  for (const ManifestEntry& entry : entries) {
    rings.emplace_back(next, entry.shape);
    next += SlotRing::Bytes(entry.shape);
  }
  return rings;
}

}  // namespace meshwright::collective
