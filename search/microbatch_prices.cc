#include "search/microbatch_prices.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace meshwright::search {
namespace {

// The smaller of what is known; 0: nothing is.
template <typename T>
void KeepLess(T value, T& least) {
  if (value > 0 && (least == 0 || value < least)) least = value;
}

}  // namespace

MicrobatchPrice& MicrobatchPrices::Of(const planner::Layout& layout) {
  MicrobatchPrice& price = prices_[{layout.degrees, layout.pipeline, layout.microbatches}];
  price.degrees = layout.degrees;
  price.pipeline = layout.pipeline;
  price.microbatches = layout.microbatches;
  return price;
}

void MicrobatchPrices::AddBound(const planner::Layout& layout, double least_s) {
  if (std::isfinite(least_s) && layout.stage_degrees.empty()) KeepLess(least_s, Of(layout).least_s);
}

void MicrobatchPrices::Add(const LayoutCost& cost) {
  if (!cost.layout.stage_degrees.empty()) return;
  MicrobatchPrice& price = Of(cost.layout);
  if (cost.missing_bytes > 0) return KeepLess(cost.missing_bytes, price.missing_bytes);
  MW_CHECK(cost.step_s > 0 && std::isfinite(cost.step_s)) << "a step of " << cost.step_s << " s";
  KeepLess(cost.step_s, price.step_s);
}

void MicrobatchPrices::Forget(const planner::Layout& layout) {
  prices_.erase({layout.degrees, layout.pipeline, layout.microbatches});
}

std::vector<MicrobatchPrice> MicrobatchPrices::Take() const {
  std::vector<MicrobatchPrice> prices;
  for (const auto& [key, price] : prices_) prices.push_back(price);
  return prices;
}

std::vector<MicrobatchPrice> PricesOf(const planner::Layout& layout,
                                      std::vector<MicrobatchPrice> all,
                                      const std::vector<LayoutCost>& best) {
  if (!layout.stage_degrees.empty()) return {};
  std::erase_if(all, [&](const MicrobatchPrice& price) {
    return price.degrees != layout.degrees || price.pipeline != layout.pipeline;
  });
  for (const LayoutCost& cost : best) {
    const planner::Layout& of = cost.layout;
    const bool same = of.degrees == layout.degrees && of.pipeline == layout.pipeline;
    if (!same || !of.stage_degrees.empty() || cost.is_forecast) continue;
    auto at = std::find_if(all.begin(), all.end(), [&](const MicrobatchPrice& price) {
      return price.microbatches == of.microbatches;
    });
    if (at == all.end()) {
      at = all.insert(all.end(), {of.degrees, of.pipeline, of.microbatches, 0, 0, 0});
    }
    KeepLess(cost.step_s, at->step_s);
  }
  std::sort(all.begin(), all.end(), [](const MicrobatchPrice& a, const MicrobatchPrice& b) {
    return a.microbatches < b.microbatches;
  });
  return all;
}

}  // namespace meshwright::search
