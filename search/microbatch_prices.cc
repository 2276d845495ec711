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

std::vector<MicrobatchPrice> MicrobatchPrices::Take() const {
  std::vector<MicrobatchPrice> prices;
  for (const auto& [key, price] : prices_) prices.push_back(price);
  return prices;
}

std::vector<MicrobatchPrice> PricesOf(const planner::Layout& layout,
                                      const std::vector<MicrobatchPrice>& all) {
  std::vector<MicrobatchPrice> own;
  if (!layout.stage_degrees.empty()) return own;
  for (const MicrobatchPrice& price : all) {
    if (price.degrees == layout.degrees && price.pipeline == layout.pipeline) own.push_back(price);
  }
  std::sort(own.begin(), own.end(), [](const MicrobatchPrice& a, const MicrobatchPrice& b) {
    return a.microbatches < b.microbatches;
  });
  return own;
}

}  // namespace meshwright::search
