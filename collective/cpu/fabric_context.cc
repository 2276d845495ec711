#include "collective/cpu/fabric_context.h"

#include <fmt/format.h>

namespace meshwright::collective {

std::string FabricContext::RankName(int rank) const {
  return fmt::format("rank {} ({})", rank, options.members[static_cast<size_t>(rank)].worker);
}

std::string FabricContext::RanksName(const std::vector<int>& ranks) const {
  if (ranks.size() == 1) {
    return RankName(ranks[0]);
  }
  return fmt::format("ranks {} ({})", fmt::join(ranks, ","),
                     options.members[static_cast<size_t>(ranks[0])].worker);
}

}  // namespace meshwright::collective
