#include "ops/token_block.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace meshwright::ops {

Result<TokenBlock> TokenBlock::At(const KernelSpec& spec, int64_t tokens, int64_t start,
                                  int64_t count) {
  const ir::SequenceOrder order = ir::SequenceOrder::FromAttrs(spec.attrs);
  if (order.parts >= 1 && order.Divides(tokens)) {
    return TokenBlock{start, ir::RunsAt(order, tokens, start, count)};
  }
  return Fail(InvalidArgument(fmt::format("{}: {} tokens are not 2 x {} equal chunks",
                                          spec.ToString(), tokens, order.parts)));
}

Result<TokenBlock> TokenBlock::Of(const KernelSpec& spec, const ShardBlock& block) {
  if (block.offsets.micro_stride[1] != 0) {
    return Fail(InvalidArgument(fmt::format(
        "{}: microbatches split the rows of a batch, not its tokens", spec.ToString())));
  }
  return At(spec, block.global_dims[1], block.Start(1, 0), block.local_dims[1]);
}

int64_t TokenBlock::PositionOf(int64_t place) const {
  const auto behind =
      std::upper_bound(runs.begin(), runs.end(), place,
                       [](int64_t wanted, const ir::TokenRun& run) { return wanted < run.place; });
  MW_CHECK(behind != runs.begin()) << "place " << place;
  const ir::TokenRun& run = *(behind - 1);
  return run.position + place - run.place;
}

}  // namespace meshwright::ops
