#include "worker/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/sha256.h"

namespace meshwright::worker {
namespace {

std::string FormatAxes(const std::vector<ir::MeshAxis>& axes) {
  std::string text;
  for (const ir::MeshAxis& axis : axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name, axis.size);
  }
  return text;
}

// Positions of the named axes in the program's mesh.
Result<std::vector<size_t>> FindAxes(const ir::Program& program,
                                     const std::vector<std::string>& names) {
  std::vector<size_t> found;
  for (const std::string& name : names) {
    size_t i = 0;
    while (i < program.axes.size() && program.axes[i].name != name) ++i;
    if (i == program.axes.size()) {
      return Fail(InvalidArgument(fmt::format("axis '{}' is not an axis of the stage's mesh [{}]",
                                              name, FormatAxes(program.axes))));
    }
    if (std::find(found.begin(), found.end(), i) != found.end()) {
      return Fail(InvalidArgument(fmt::format("axis '{}' is listed twice", name)));
    }
    found.push_back(i);
  }
  return found;
}

int RankAt(const ir::Program& program, const std::vector<int64_t>& coords) {
  MW_CHECK(coords.size() == program.axes.size()) << coords.size() << " coordinates";
  int64_t position = 0;
  for (size_t i = 0; i < coords.size(); ++i) position = position * program.axes[i].size + coords[i];
  return program.mesh_devices[static_cast<size_t>(position)].value();
}

std::vector<int> RanksOver(const ir::Program& program, const std::vector<size_t>& axes) {
  int64_t count = 1;
  for (size_t axis : axes) count *= program.axes[axis].size;
  std::vector<int> ranks;
  for (int64_t member = 0; member < count; ++member) {
    std::vector<int64_t> coords = program.coords;
    int64_t rest = member;
    for (size_t i = axes.size(); i-- > 0;) {
      MW_CHECK(program.axes[axes[i]].size >= 1) << "axis " << program.axes[axes[i]].name;
      coords[axes[i]] = rest % program.axes[axes[i]].size;
      rest /= program.axes[axes[i]].size;
    }
    ranks.push_back(RankAt(program, coords));
  }
  return ranks;
}

// A fabric takes 128 bytes.
std::string GroupName(const ir::Program& program, const std::string& label,
                      const std::vector<int>& ranks) {
  constexpr size_t kMaxNameBytes = 120;
  constexpr size_t kMaxLabelBytes = 40;
  std::string name =
      fmt::format("{}/{}/{}", FormatAxes(program.axes), label, fmt::join(ranks, "-"));
  if (name.size() <= kMaxNameBytes) return name;
  return fmt::format("{}/{}x{}/{}", label.substr(0, kMaxLabelBytes), ranks[0], ranks.size(),
                     Sha256Hex(name).substr(0, 32));
}

}  // namespace

Result<GroupRef> Links::GroupOf(const ir::Program& program, const std::vector<std::string>& axes) {
  MW_ASSIGN_OR_RETURN(const std::vector<size_t> indices, FindAxes(program, axes));
  const std::vector<int> ranks = RanksOver(program, indices);
  if (ranks.size() == 1) return GroupRef{};
  const std::string label = fmt::format("{}", fmt::join(axes, ","));
  const std::string name = GroupName(program, label, ranks);
  auto it = groups_.find(name);
  if (it == groups_.end()) {
    GroupEntry entry{label, {}};
    MW_ASSIGN_OR_RETURN(entry.members, fabric_.MakeGroup(name, ranks));
    it = groups_.emplace(name, std::move(entry)).first;
  }
  const auto member = it->second.members.find(program.device.value());
  if (member == it->second.members.end()) {
    return Fail(Internal(
        fmt::format("group {} has no end for local rank {}", name, program.device.value())));
  }
  return GroupRef{member->second, static_cast<int64_t>(ranks.size())};
}

Result<collective::Channel*> Links::ChannelOf(const ir::Program& program,
                                              const ir::ChannelEnd& end) {
  const int self = program.device.value();
  const int peer = end.peer.value();
  ChannelEntry want{end.outgoing ? self : peer,
                    end.outgoing ? peer : self,
                    end.capacity,
                    end.max_message_bytes,
                    {}};
  auto it = channels_.find(end.name);
  if (it == channels_.end()) {
    MW_ASSIGN_OR_RETURN(want.ends, fabric_.MakeChannel(end.name, want.from, want.to, want.capacity,
                                                       want.max_message_bytes));
    it = channels_.emplace(end.name, want).first;
  }
  const ChannelEntry& made = it->second;
  if (made.from != want.from || made.to != want.to || made.capacity != want.capacity ||
      made.max_message_bytes != want.max_message_bytes) {
    return Fail(InvalidArgument(fmt::format(
        "channel '{}' is {}->{} capacity {} bytes {} here and {}->{} capacity {} bytes {} at its "
        "other end or in another program; both ends must agree and names must be unique",
        end.name, want.from, want.to, want.capacity, want.max_message_bytes, made.from, made.to,
        made.capacity, made.max_message_bytes)));
  }
  collective::Channel* channel = end.outgoing ? made.ends.sender : made.ends.receiver;
  if (channel == nullptr) {
    return Fail(Internal(fmt::format("channel '{}' has no end for local rank {}", end.name, self)));
  }
  return channel;
}

std::vector<CollectiveStat> Links::Stats(int rank) const {
  std::map<std::pair<std::string, collective::Kind>, collective::Counters> sums;
  const auto add = [&](const std::string& axes, collective::Kind kind,
                       const collective::Counters& counters) {
    if (counters.calls == 0) return;
    collective::Counters& sum = sums[{axes, kind}];
    sum.calls += counters.calls;
    sum.bytes += counters.bytes;
    sum.seconds += counters.seconds;
  };
  for (const auto& [name, entry] : groups_) {
    const auto member = entry.members.find(rank);
    if (member == entry.members.end()) continue;
    for (int kind = 0; kind < collective::kKindCount; ++kind) {
      const auto k = static_cast<collective::Kind>(kind);
      add(entry.axes, k, member->second->counters(k));
    }
  }
  for (const auto& [name, entry] : channels_) {
    if (entry.from == rank && entry.ends.sender) {
      add("pipeline", collective::Kind::kSendRecv, entry.ends.sender->counters());
    }
    if (entry.to == rank && entry.ends.receiver) {
      add("pipeline", collective::Kind::kSendRecv, entry.ends.receiver->counters());
    }
  }
  std::vector<CollectiveStat> stats;
  for (const auto& [key, counters] : sums)
    stats.push_back({key.first, key.second, fabric_.backend(), counters});
  return stats;
}

}  // namespace meshwright::worker
