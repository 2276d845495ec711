#include "ir/sequence_order.h"

#include <algorithm>

#include "base/check.h"

namespace meshwright::ir {

SequenceOrder SequenceOrder::FromAttrs(const Attrs& attrs) { return {attrs.Int("zigzag", 1)}; }

void SequenceOrder::ToAttrs(Attrs& attrs) const {
  if (!plain()) attrs.Set("zigzag", parts);
}

std::vector<TokenRun> RunsAt(const SequenceOrder& order, int64_t tokens, int64_t begin,
                             int64_t count) {
  MW_CHECK(order.Divides(tokens) && begin >= 0 && begin + count <= tokens)
      << "places " << begin << " to " << begin + count << " of " << tokens << " in " << order.parts
      << " parts";
  if (order.plain()) return {{0, begin, count}};
  const int64_t chunk = tokens / (2 * order.parts);
  std::vector<TokenRun> runs;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t block = at / (2 * chunk);
    const bool first = at % (2 * chunk) < chunk;
    const int64_t start = first ? block * chunk : (2 * order.parts - 1 - block) * chunk;
    const int64_t within = at % chunk;
    const int64_t length = std::min(chunk - within, begin + count - at);
    TokenRun run{at - begin, start + within, length};
    if (!runs.empty() && runs.back().position + runs.back().count == run.position) {
      runs.back().count += length;
    } else {
      runs.push_back(run);
    }
    at += length;
  }
  return runs;
}

}  // namespace meshwright::ir
