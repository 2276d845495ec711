#include "rehearsal/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
namespace meshwright::rehearsal {
namespace {

constexpr size_t kShownTensors = 8;
constexpr double kNone = std::numeric_limits<double>::infinity();

ir::Dims IndexOf(size_t flat, const ir::Dims& dims) {
  ir::Dims index(dims.size(), 0);
  for (size_t d = dims.size(); d-- > 0;) {
    const auto size = static_cast<size_t>(dims[d]);
    index[d] = static_cast<int64_t>(flat % size);
    flat /= size;
  }
  return index;
}

// Not a number is as far away as can be.
double ShareOf(double difference, double scale) {
  const double share = std::abs(difference) / scale;
  return std::isnan(share) ? kNone : share;
}

double ScaleOf(const LogicalTensor& tensor) {
  double scale = std::numeric_limits<double>::min();
  for (const double value : tensor.values) scale = std::max(scale, std::abs(value));
  return scale;
}

// The largest difference of a block, and the first one above the tolerance.
struct BlockAnswer {
  double largest = 0;
  std::optional<Difference> first;
};

BlockAnswer CompareBlock(const StateBlock& block, const LogicalTensor& expected, double scale,
                         double tolerance) {
  BlockAnswer answer;
  if (block.dims != expected.dims) {
    answer.largest = kNone;
    answer.first = Difference{block.name, block.rank, block.box, {}, 0, 0, kNone};
    return answer;
  }
  MW_CHECK(scale > 0) << "the scale of " << block.name;
  ForEachElement(block.dims, block.box, [&](size_t in_box, size_t in_tensor) {
    const double wanted = expected.values[in_tensor];
    const double found = block.values[in_box];
    const double share = found == wanted ? 0 : ShareOf(found - wanted, scale);
    answer.largest = std::max(answer.largest, share);
    if (share <= tolerance || answer.first) return;
    answer.first = Difference{block.name, block.rank, block.box, IndexOf(in_tensor, block.dims),
                              wanted,     found,      share};
  });
  return answer;
}

}  // namespace

Check CompareNumbers(const std::string& name, double expected, double actual, double tolerance) {
  Check check;
  check.name = name;
  check.expected = expected;
  check.actual = actual;
  const double scale = std::max(std::abs(expected), std::numeric_limits<double>::min());
  check.largest = expected == actual ? 0 : ShareOf(actual - expected, scale);
  check.equal = check.largest <= tolerance;
  return check;
}

Check CompareTensors(const std::string& name, const std::vector<std::string>& names,
                     const std::string& prefix,
                     const std::map<std::string, LogicalTensor>& expected,
                     const std::vector<StateBlock>& actual, double tolerance) {
  Check check;
  check.name = name;
  std::map<std::string, std::vector<const StateBlock*>> blocks;
  for (const StateBlock& block : actual) blocks[block.name].push_back(&block);
  for (const std::string& tensor : names) {
    const auto wanted = expected.find(prefix + tensor);
    const auto found = blocks.find(prefix + tensor);
    // State that the optimizer does not keep.
    if (wanted == expected.end() && found == blocks.end()) continue;
    ++check.tensors;
    std::optional<Difference> first;
    if (wanted == expected.end() || found == blocks.end()) {
      first = Difference{tensor, 0, {}, {}, 0, 0, kNone};
      check.largest = kNone;
    } else {
      const double scale = ScaleOf(wanted->second);
      for (const StateBlock* block : found->second) {
        BlockAnswer answer = CompareBlock(*block, wanted->second, scale, tolerance);
        check.largest = std::max(check.largest, answer.largest);
        if (!first && answer.first) first = std::move(answer.first);
      }
    }
    if (!first) continue;
    first->tensor = tensor;
    ++check.differing;
    if (check.first.size() < kShownTensors) check.first.push_back(*std::move(first));
  }
  MW_CHECK(check.first.empty() == (check.differing == 0)) << "a difference without a place";
  check.equal = check.differing == 0;
  return check;
}

}  // namespace meshwright::rehearsal
