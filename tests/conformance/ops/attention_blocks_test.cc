// Attention of blocks of a row: what each rank has of it makes up what one device has, whichever
// blocks of keys it looks at, in the order of positions or in zigzag.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"

namespace meshwright::ops {
namespace {

struct BlocksCase {
  const char* name;
  int64_t ranks = 2;
  int64_t tokens = 24;
  int64_t zigzag = 1;
  bool documents = false;
  bool causal = true;
  int64_t window = 0;
};

std::ostream& operator<<(std::ostream& out, const BlocksCase& c) { return out << c.name; }

constexpr int64_t kRows = 2;
constexpr int64_t kQueryHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadSize = 8;

// The operands of one row, in f32: q, k, v, do and, at the end, segments.
struct Whole {
  explicit Whole(const BlocksCase& c) {
    const ir::Dims q = {kRows, c.tokens, kQueryHeads, kHeadSize};
    const ir::Dims kv = {kRows, c.tokens, kKvHeads, kHeadSize};
    uint64_t seed = 1;
    for (const ir::Dims& dims : {q, kv, kv, q}) {
      operands.push_back(Convert(RandomTensor(dims, seed++), ir::DType::kF32));
    }
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kRows * c.tokens; ++i) ids.push_back(static_cast<int32_t>(i % 5 / 2));
    segments = FromIds({kRows, c.tokens}, ids);
  }
  std::vector<HostTensor> operands;
  HostTensor segments;
};

ir::Attrs AttrsOf(const BlocksCase& c) {
  ir::Attrs attrs{{"causal", int64_t{c.causal ? 1 : 0}}};
  if (c.zigzag > 1) attrs.Set("zigzag", c.zigzag);
  if (c.window > 0) attrs.Set("window", c.window);
  return attrs;
}

Result<std::vector<HostTensor>> RunOp(const Target& target, ir::Op op, const ir::Attrs& attrs,
                                      const std::vector<HostTensor>& operands,
                                      const DeviceCoords& coords) {
  ir::Builder builder("local");
  std::vector<ValueId> inputs;
  for (const HostTensor& tensor : operands) {
    inputs.push_back(builder.AddOne(
        ir::Op::kInput, {}, {{"name", "x" + std::to_string(inputs.size())}}, {tensor.type}));
  }
  const std::vector<ValueId> results = builder.Add(op, inputs, attrs);
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, builder.Finish());
  MW_ASSIGN_OR_RETURN(const auto kernel,
                      MakeKernel(target, graph, graph.producer(results[0]), coords));
  std::vector<HostTensor> outs;
  for (const ValueId result : results) {
    outs.push_back({graph.type(result), {}});
    outs.back().data.resize(static_cast<size_t>(outs.back().type.bytes()));
  }
  std::vector<HostTensor> data = operands;
  MW_TRY(RunKernel(target, *kernel, {}, data, outs));
  return outs;
}

class AttentionBlocks : public testing::TestWithParam<BlocksCase> {
 protected:
  // What a rank has of a tensor [b, s, ...].
  HostTensor BlockOf(const HostTensor& tensor, int64_t rank) const {
    ir::Dims dims = tensor.type.dims;
    dims[1] = GetParam().tokens / GetParam().ranks;
    ir::Dims start(dims.size(), 0);
    start[1] = rank * dims[1];
    return Block(tensor, start, dims);
  }
  ir::Attrs LocalAttrs(int64_t shift) const {
    ir::Attrs attrs = AttrsOf(GetParam());
    attrs.Set("global_dims", ir::Dims{kRows, GetParam().tokens, kQueryHeads, kHeadSize});
    attrs.Set("dim_axes", std::vector<std::string>{"", "context", "", ""});
    if (shift > 0) attrs.Set("kv_shift", shift);
    return attrs;
  }
  DeviceCoords At(int64_t rank) const { return {{"context"}, {GetParam().ranks}, {rank}, 1}; }
  std::vector<HostTensor> WithSegments(std::vector<HostTensor> operands, const Whole& whole) const {
    if (GetParam().documents) operands.push_back(whole.segments);
    return operands;
  }
};

// What query `i` of a row and head sees, by the definition.
std::vector<double> WindowRow(const Whole& whole, int64_t batch, int64_t head, int64_t i,
                              int64_t window) {
  const std::vector<double> q = ValuesOf(whole.operands[0]);
  const std::vector<double> k = ValuesOf(whole.operands[1]);
  const std::vector<double> v = ValuesOf(whole.operands[2]);
  const int64_t tokens = whole.operands[0].type.dims[1];
  const auto key_at = [&](int64_t j) {
    const int64_t group = head / (kQueryHeads / kKvHeads);
    return static_cast<size_t>(((batch * tokens + j) * kKvHeads + group) * kHeadSize);
  };
  const auto query_at =
      static_cast<size_t>(((batch * tokens + i) * kQueryHeads + head) * kHeadSize);
  std::vector<double> o(kHeadSize);
  double total = 0;
  for (int64_t j = std::max<int64_t>(0, i - window + 1); j <= i; ++j) {
    double score = 0;
    for (size_t d = 0; d < kHeadSize; ++d) score += q[query_at + d] * k[key_at(j) + d];
    const double weight = std::exp(score / std::sqrt(static_cast<double>(kHeadSize)));
    total += weight;
    for (size_t d = 0; d < kHeadSize; ++d) o[d] += weight * v[key_at(j) + d];
  }
  for (double& value : o) value /= total;
  return o;
}

TEST(AttentionWindow, HasTheKeysUpToSoManyPositionsBefore) {
  for (const int64_t window : {1, 3, 64, 65, 150, 1000}) {
    const BlocksCase c{"", 1, 150, 1, false, true, window};
    const Whole whole(c);
    for (const Target& target : AllTargets()) {
      const auto one = RunOp(target, ir::Op::kAttention, AttrsOf(c),
                             {whole.operands[0], whole.operands[1], whole.operands[2]}, {});
      ASSERT_TRUE(one) << one.error();
      const std::vector<double> o = ValuesOf((*one)[0]);
      for (const int64_t i : {0, 1, 2, 3, 63, 64, 127, 128, 149}) {
        const std::vector<double> row = WindowRow(whole, 1, 3, i, window);
        for (size_t d = 0; d < kHeadSize; ++d) {
          const auto at = static_cast<size_t>(((c.tokens + i) * kQueryHeads + 3) * kHeadSize) + d;
          EXPECT_NEAR(o[at], row[d], 1e-4) << "window " << window << " query " << i;
        }
      }
    }
  }
}

void ExpectClose(const HostTensor& actual, const HostTensor& expected, const char* what) {
  EXPECT_LT(RelativeError(actual, expected), 2e-5) << what;
}

TEST_P(AttentionBlocks, OfQueriesSeeAWholeRowAsOneDeviceDoes) {
  const BlocksCase& c = GetParam();
  const Whole whole(c);
  const HostTensor& q = whole.operands[0];
  const HostTensor& k = whole.operands[1];
  const HostTensor& v = whole.operands[2];
  const HostTensor& grad = whole.operands[3];
  for (const Target& target : AllTargets()) {
    const auto one =
        RunOp(target, ir::Op::kAttention, AttrsOf(c), WithSegments({q, k, v}, whole), {});
    ASSERT_TRUE(one) << one.error();
    const auto one_grad = RunOp(target, ir::Op::kAttentionGrad, AttrsOf(c),
                                WithSegments({q, k, v, (*one)[0], (*one)[1], grad}, whole), {});
    ASSERT_TRUE(one_grad) << one_grad.error();
    std::vector<double> dk(ValuesOf((*one_grad)[1]).size());
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      const HostTensor own = BlockOf(q, rank);
      const auto o = RunOp(target, ir::Op::kAttention, LocalAttrs(0),
                           WithSegments({own, k, v}, whole), At(rank));
      ASSERT_TRUE(o) << o.error();
      ExpectClose((*o)[0], BlockOf((*one)[0], rank), "o");
      const auto grads =
          RunOp(target, ir::Op::kAttentionGrad, LocalAttrs(0),
                WithSegments({own, k, v, (*o)[0], (*o)[1], BlockOf(grad, rank)}, whole), At(rank));
      ASSERT_TRUE(grads) << grads.error();
      ExpectClose((*grads)[0], BlockOf((*one_grad)[0], rank), "dq");
      const std::vector<double> part = ValuesOf((*grads)[1]);
      for (size_t i = 0; i < dk.size(); ++i) dk[i] += part[i];
    }
    ExpectClose(FromValues((*one_grad)[1].type.dims, dk, ir::DType::kF32), (*one_grad)[1], "dk");
  }
}

// Each rank looks at the blocks of keys one after the other, as they come round a ring. Sums over
// them by their log-sum-exps are what it would see of all at once.
TEST_P(AttentionBlocks, OfKeysAddUpByTheirSums) {
  const BlocksCase& c = GetParam();
  const Whole whole(c);
  for (const Target& target : AllTargets()) {
    const auto one =
        RunOp(target, ir::Op::kAttention, AttrsOf(c),
              WithSegments({whole.operands[0], whole.operands[1], whole.operands[2]}, whole), {});
    ASSERT_TRUE(one) << one.error();
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      const HostTensor expected = BlockOf((*one)[0], rank);
      std::vector<double> sums(ValuesOf(expected).size());
      std::vector<double> weights(static_cast<size_t>(kRows * c.tokens / c.ranks * kQueryHeads));
      for (int64_t shift = 0; shift < c.ranks; ++shift) {
        const int64_t source = (rank - shift + c.ranks) % c.ranks;
        const auto part = RunOp(
            target, ir::Op::kAttention, LocalAttrs(shift),
            WithSegments({BlockOf(whole.operands[0], rank), BlockOf(whole.operands[1], source),
                          BlockOf(whole.operands[2], source)},
                         whole),
            At(rank));
        ASSERT_TRUE(part) << part.error();
        const std::vector<double> o = ValuesOf((*part)[0]);
        const std::vector<double> lse = ValuesOf((*part)[1]);
        const int64_t rows = c.tokens / c.ranks;
        for (size_t i = 0; i < o.size(); ++i) {
          const auto at = static_cast<int64_t>(i) / kHeadSize;  // [b, s, h]
          const int64_t head = at % kQueryHeads;
          const int64_t row = at / kQueryHeads % rows;
          const int64_t batch = at / kQueryHeads / rows;
          const auto of_row = static_cast<size_t>((batch * kQueryHeads + head) * rows + row);
          const double weight = std::exp(lse[of_row]);
          sums[i] += weight * o[i];
          if (i % kHeadSize == 0) weights[of_row] += weight;
          EXPECT_TRUE(weight > 0 || o[i] == 0) << "of what is not seen";
        }
      }
      std::vector<double> merged(sums.size());
      const int64_t rows = c.tokens / c.ranks;
      for (size_t i = 0; i < sums.size(); ++i) {
        const auto at = static_cast<int64_t>(i) / kHeadSize;
        const int64_t batch = at / kQueryHeads / rows;
        const auto of_row = static_cast<size_t>((batch * kQueryHeads + at % kQueryHeads) * rows +
                                                at / kQueryHeads % rows);
        merged[i] = sums[i] / weights[of_row];
      }
      ExpectClose(FromValues(expected.type.dims, merged, ir::DType::kF32), expected, "o");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Rows, AttentionBlocks,
    testing::Values(BlocksCase{"in_order", 2, 24}, BlocksCase{"zigzag", 2, 24, 2},
                    BlocksCase{"zigzag_of_tiles", 2, 512, 2}, BlocksCase{"four_ranks", 4, 272, 4},
                    BlocksCase{"odd_tiles", 2, 300, 2}, BlocksCase{"documents", 2, 280, 2, true},
                    BlocksCase{"not_causal", 2, 40, 2, false, false},
                    BlocksCase{"in_order_of_tiles", 2, 320},
                    BlocksCase{"short_window", 4, 272, 1, false, true, 5},
                    BlocksCase{"window_of_blocks", 4, 272, 1, true, true, 100},
                    BlocksCase{"window_in_zigzag", 2, 512, 2, false, true, 70}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace meshwright::ops
