// What a search knows of numbers of microbatches: why a plan has the one that it has.
//
// A layout that is given up has no price. What is known then is what it takes at least, for it was
// given up since something else takes less.
//
// Thread rule: a value; not shared between threads.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "planner/layout.h"
#include "search/layout_cost.h"

namespace meshwright::search {

struct MicrobatchPrice {
  planner::Degrees degrees;
  int64_t pipeline = 1;
  int64_t microbatches = 1;
  double step_s = 0;          // the estimate of the fastest that fits of those that are priced
  double least_s = 0;         // others take no less; 0: there are no others
  int64_t missing_bytes = 0;  // where there is neither: of what fits nearly, what a device lacks

  bool operator==(const MicrobatchPrice& other) const = default;
};

class MicrobatchPrices {
 public:
  // Of a layout that is not priced, since it takes no less than this.
  void AddBound(const planner::Layout& layout, double least_s);
  // Of one that is priced. REQUIRES: it was not given up.
  void Add(const LayoutCost& cost);

  // Of what was not looked at as a whole nothing is known.
  void Forget(const planner::Layout& layout);

  std::vector<MicrobatchPrice> Take() const;

 private:
  MicrobatchPrice& Of(const planner::Layout& layout);

  std::map<std::tuple<planner::Degrees, int64_t, int64_t>, MicrobatchPrice> prices_;
};

// Those of the layout's degrees, from few to many. `best`: layouts that fit; some may have been
// found by another search than `all`.
std::vector<MicrobatchPrice> PricesOf(const planner::Layout& layout,
                                      std::vector<MicrobatchPrice> all,
                                      const std::vector<LayoutCost>& best);

}  // namespace meshwright::search
