#include "collective/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "collective/cpu/wire.h"

namespace meshwright::collective {
namespace {

constexpr int kMaxChannelCapacity = 1 << 16;
constexpr int64_t kMaxChannelBytes = int64_t{1} << 40;

Status CheckMembers(const FabricOptions& options) {
  if (options.members.empty() || options.local_ranks.empty()) {
    return InvalidArgument(fmt::format("a fabric needs members and local ranks, got {} and {}",
                                       options.members.size(), options.local_ranks.size()));
  }
  const auto count = static_cast<int>(options.members.size());
  const std::set<int> local(options.local_ranks.begin(), options.local_ranks.end());
  if (*local.begin() < 0 || *local.rbegin() >= count ||
      local.size() != options.local_ranks.size()) {
    return InvalidArgument(fmt::format("local_ranks must be distinct and in 0..{}, got {}",
                                       count - 1, fmt::join(options.local_ranks, ",")));
  }
  const uint64_t own = options.members[static_cast<size_t>(*local.begin())].process_id;
  for (int rank = 0; rank < count; ++rank) {
    const bool here = options.members[static_cast<size_t>(rank)].process_id == own;
    if (here != (local.count(rank) > 0)) {
      return InvalidArgument(fmt::format(
          "rank {} has process id {:x}, this process is {:x}: local_ranks must list exactly the "
          "ranks of this process",
          rank, options.members[static_cast<size_t>(rank)].process_id, own));
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckOptions(const FabricOptions& options) {
  MW_TRY(CheckMembers(options));
  if (options.cluster_id.size() > kMaxIdentityBytes || options.secret.size() > kMaxIdentityBytes) {
    return InvalidArgument(fmt::format("cluster_id and secret may have {} bytes, got {} and {}",
                                       kMaxIdentityBytes, options.cluster_id.size(),
                                       options.secret.size()));
  }
  if (options.connect_timeout_ms <= 0 || options.operation_timeout_ms < 0) {
    return InvalidArgument(
        fmt::format("connect_timeout_ms={} must be positive and operation_timeout_ms={} not "
                    "negative",
                    options.connect_timeout_ms, options.operation_timeout_ms));
  }
  return OkStatus();
}

Status CheckGroup(const FabricOptions& options, const std::string& name,
                  const std::vector<int>& ranks) {
  const auto count = static_cast<int>(options.members.size());
  const std::set<int> distinct(ranks.begin(), ranks.end());
  if (ranks.empty() || distinct.size() != ranks.size() || *distinct.begin() < 0 ||
      *distinct.rbegin() >= count) {
    return InvalidArgument(fmt::format("group {}: ranks must be distinct and in 0..{}, got [{}]",
                                       name, count - 1, fmt::join(ranks, ",")));
  }
  if (name.empty() || name.size() > kMaxIdentityBytes / 2) {
    return InvalidArgument(
        fmt::format("a group name has 1 to {} bytes, got {}", kMaxIdentityBytes / 2, name.size()));
  }
  return OkStatus();
}

Status CheckChannel(const FabricOptions& options, const ChannelArguments& channel) {
  const auto count = static_cast<int>(options.members.size());
  const std::vector<int>& local = options.local_ranks;
  const auto exists = [&](int rank) { return rank >= 0 && rank < count; };
  const auto here = [&](int rank) {
    return std::find(local.begin(), local.end(), rank) != local.end();
  };
  const auto& [name, from_rank, to_rank, capacity, max_message_bytes] = channel;
  if (!exists(from_rank) || !exists(to_rank) || !(here(from_rank) || here(to_rank))) {
    return InvalidArgument(
        fmt::format("channel {} from rank {} to rank {}: two ranks in 0..{} are needed, "
                    "one of them of this process",
                    name, from_rank, to_rank, count - 1));
  }
  if (capacity < 1 || capacity > kMaxChannelCapacity || max_message_bytes < 0 ||
      max_message_bytes > kMaxChannelBytes / capacity) {
    return InvalidArgument(fmt::format(
        "channel {}: capacity {} of {} bytes; need 1..{} messages and at most {} bytes in all",
        name, capacity, max_message_bytes, kMaxChannelCapacity, kMaxChannelBytes));
  }
  if (name.empty() || name.size() > kMaxIdentityBytes / 2) {
    return InvalidArgument(fmt::format("a channel name has 1 to {} bytes, got {}",
                                       kMaxIdentityBytes / 2, name.size()));
  }
  return OkStatus();
}

}  // namespace meshwright::collective
