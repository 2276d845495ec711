#include "collective/nccl/split_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace meshwright::collective::nccl {
namespace {

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(T));
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  template <typename T>
  bool Take(T* value) {
    if (rest_.size() < sizeof(T)) return false;
    std::memcpy(value, rest_.data(), sizeof(T));
    rest_.remove_prefix(sizeof(T));
    return true;
  }
  bool Take(std::string* text) {
    uint32_t size = 0;
    if (!Take(&size) || rest_.size() < size) return false;
    *text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  bool Take(std::vector<int>* ranks) {
    uint32_t count = 0;
    if (!Take(&count) || rest_.size() / sizeof(int32_t) < count) return false;
    ranks->resize(count);
    for (int& rank : *ranks) {
      if (!Take(&rank)) return false;
    }
    return true;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool TakeLink(Reader* reader, Link* link) {
  uint8_t kind = 0;
  if (!reader->Take(&kind) || kind > 1) return false;
  link->kind = static_cast<Link::Kind>(kind);
  return reader->Take(&link->name) && reader->Take(&link->ranks) && reader->Take(&link->capacity) &&
         reader->Take(&link->max_message_bytes);
}

std::string Describe(const Link& link) {
  if (link.kind == Link::Kind::kGroup) {
    return fmt::format("group {} of ranks {}", link.name, fmt::join(link.ranks, ","));
  }
  return fmt::format("channel {} from rank {} to rank {}, capacity {} of {} bytes", link.name,
                     link.ranks[0], link.ranks[1], link.capacity, link.max_message_bytes);
}

// A link and who declared it.
struct Claim {
  const Link* link = nullptr;
  std::vector<const Declaration*> by;
};
using Claims = std::map<std::pair<Link::Kind, std::string>, Claim>;

Status CheckAllCame(const Claim& claim, const std::vector<Declaration>& declarations,
                    const RankNamer& name_of) {
  for (const Declaration& declaration : declarations) {
    const bool member =
        std::any_of(declaration.ranks.begin(), declaration.ranks.end(), [&](int rank) {
          const std::vector<int>& ranks = claim.link->ranks;
          return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
        });
    const bool came = std::find(claim.by.begin(), claim.by.end(), &declaration) != claim.by.end();
    if (member && !came) {
      return InvalidArgument(fmt::format("{} was made by {}, not by {}", Describe(*claim.link),
                                         name_of(claim.by.front()->ranks.front()),
                                         name_of(declaration.ranks.front())));
    }
  }
  return OkStatus();
}

// Into the first round that has none of its ranks.
void Place(Part part, std::vector<Round>* rounds) {
  for (Round& round : *rounds) {
    const bool fits = std::none_of(part.ranks.begin(), part.ranks.end(),
                                   [&](int rank) { return round.ColorOf(rank) >= 0; });
    if (!fits) continue;
    round.parts.push_back(std::move(part));
    return;
  }
  rounds->push_back({{std::move(part)}});
}

}  // namespace

std::string EncodeLinks(std::span<const Link> links) {
  std::string bytes;
  for (const Link& link : links) {
    Put(&bytes, static_cast<uint8_t>(link.kind));
    Put(&bytes, static_cast<uint32_t>(link.name.size()));
    bytes += link.name;
    Put(&bytes, static_cast<uint32_t>(link.ranks.size()));
    for (const int rank : link.ranks) Put(&bytes, static_cast<int32_t>(rank));
    Put(&bytes, link.capacity);
    Put(&bytes, link.max_message_bytes);
  }
  return bytes;
}

Result<std::vector<Link>> DecodeLinks(std::string_view bytes) {
  std::vector<Link> links;
  Reader reader(bytes);
  while (!reader.empty()) {
    Link link;
    const bool read = TakeLink(&reader, &link);
    const bool channel = link.kind == Link::Kind::kChannel;
    if (!read || link.ranks.empty() || (channel && link.ranks.size() != 2)) {
      return Fail(
          DataLoss(fmt::format("a peer's list of groups and channels is broken after {} "
                               "entries of its {} bytes",
                               links.size(), bytes.size())));
    }
    links.push_back(std::move(link));
  }
  return links;
}

Result<std::vector<Link>> MergeLinks(const std::vector<Declaration>& declarations,
                                     const RankNamer& name_of) {
  Claims claims;
  for (const Declaration& declaration : declarations) {
    for (const Link& link : declaration.links) {
      Claim& claim = claims[{link.kind, link.name}];
      if (claim.link == nullptr) claim.link = &link;
      if (!(*claim.link == link)) {
        return Fail(InvalidArgument(
            fmt::format("{} is {} on {}, but {} on {}", link.name, Describe(*claim.link),
                        name_of(claim.by.front()->ranks.front()), Describe(link),
                        name_of(declaration.ranks.front()))));
      }
      claim.by.push_back(&declaration);
    }
  }
  std::vector<Link> links;
  for (const auto& [key, claim] : claims) {
    MW_TRY(CheckAllCame(claim, declarations, name_of));
    links.push_back(*claim.link);
  }
  return links;
}

int Round::ColorOf(int rank) const {
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::vector<int>& ranks = parts[i].ranks;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return static_cast<int>(i);
  }
  return -1;
}

int Round::KeyOf(int rank) const {
  const int color = ColorOf(rank);
  if (color < 0) return -1;
  const std::vector<int>& ranks = parts[static_cast<size_t>(color)].ranks;
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

SplitPlan PlanSplits(const std::vector<Link>& links, std::set<std::vector<int>>* known) {
  SplitPlan plan;
  for (const Link& link : links) {
    if (link.kind == Link::Kind::kChannel) {
      Place({link.name, link.ranks}, &plan.channels);
    } else if (link.ranks.size() > 1 && known->insert(link.ranks).second) {
      Place({link.name, link.ranks}, &plan.groups);
    }
  }
  return plan;
}

}  // namespace meshwright::collective::nccl
