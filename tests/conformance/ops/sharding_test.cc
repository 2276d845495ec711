// How a tensor is split never changes its values: every op that depends on global positions gives,
// block by block, the same bits as the whole tensor does. Grid: data 2 x tensor 2 devices x 2
// microbatches.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "ir/builder.h"
#include "tests/conformance/ops/op_harness.h"
#include "tests/conformance/ops/targets.h"

namespace meshwright::ops {
namespace {

constexpr int32_t kMicrobatches = 2;

using AxesOfDims = std::vector<std::string>;  // as the attribute dim_axes

// How the operands and the result of an op are split. The op's attributes describe `described`: -1
// the result, else an operand.
struct ShardCase {
  OpCase op_case;
  std::vector<AxesOfDims> operands;
  AxesOfDims result;
  int described = -1;
  bool sum_over_tensor =
      false;  // each "tensor" block gives a part of the result; only one of them is not 0
};

std::ostream& operator<<(std::ostream& out, const ShardCase& shard) {
  return out << shard.op_case.name;
}

struct Place {
  DeviceCoords coords;
  int32_t microbatch = 0;
};

std::vector<Place> AllPlaces() {
  std::vector<Place> places;
  for (int64_t data = 0; data < 2; ++data) {
    for (int64_t tensor = 0; tensor < 2; ++tensor) {
      for (int32_t m = 0; m < kMicrobatches; ++m) {
        places.push_back({{{"data", "tensor"}, {2, 2}, {data, tensor}, kMicrobatches}, m});
      }
    }
  }
  return places;
}

struct LocalBlock {
  ir::Dims start;
  ir::Dims dims;
};

// Independent of ResolveOffsets on purpose.
LocalBlock BlockAt(const ir::Dims& global, const AxesOfDims& axes, const Place& place) {
  const std::map<std::string, std::pair<int64_t, int64_t>> known = {
      {"data", {2, place.coords.coords[0]}},
      {"tensor", {2, place.coords.coords[1]}},
      {"micro", {kMicrobatches, place.microbatch}}};
  LocalBlock block;
  for (size_t d = 0; d < global.size(); ++d) {
    int64_t parts = 1;
    int64_t index = 0;
    std::string rest = axes[d];
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const auto [size, coord] = known.at(rest.substr(0, comma));
      parts *= size;
      index = index * size + coord;
      rest = comma == rest.size() ? "" : rest.substr(comma + 1);
    }
    block.dims.push_back((global[d] + parts - 1) / parts);
    block.start.push_back(block.dims[d] * index);
  }
  return block;
}

RunContext ContextAt(int32_t microbatch) {
  RunContext context;
  context.seed = 42;
  context.step = 5;
  context.microbatch = microbatch;
  return context;
}

// Runs one local kernel. `data` are the local operands.
Result<HostTensor> RunLocal(const ShardCase& shard, const Target& target, const Place& place,
                            const ir::Dims& described, std::vector<HostTensor> data,
                            const ir::Dims& result_dims) {
  ir::Builder builder("local");
  std::vector<ValueId> inputs;
  for (const HostTensor& tensor : data) {
    inputs.push_back(builder.AddOne(
        ir::Op::kInput, {}, {{"name", "x" + std::to_string(inputs.size())}}, {tensor.type}));
  }
  OpCase local = shard.op_case;
  local.attrs.Set("global_dims", described);
  local.attrs.Set("dim_axes", shard.described < 0
                                  ? shard.result
                                  : shard.operands[static_cast<size_t>(shard.described)]);
  if (local.attrs.Has("rows")) local.attrs.Set("rows", result_dims[0]);
  // Of attention only the first result is compared; both follow from the operands.
  std::vector<ir::TensorType> declared = {{ir::DType::kF32, result_dims}};
  if (local.op == ir::Op::kAttention) declared.clear();
  const std::vector<ValueId> results = builder.Add(local.op, inputs, local.attrs, declared);
  MW_ASSIGN_OR_RETURN(const ir::Graph graph, builder.Finish());
  MW_ASSIGN_OR_RETURN(const auto kernel,
                      MakeKernel(target, graph, graph.producer(results[0]), place.coords));
  std::vector<HostTensor> outs;
  for (ValueId result : results) {
    outs.push_back({graph.type(result), {}});
    outs.back().data.resize(static_cast<size_t>(outs.back().type.bytes()));
  }
  MW_TRY(RunKernel(target, *kernel, ContextAt(place.microbatch), data, outs));
  return outs[0];
}

class ShardedOps : public testing::TestWithParam<ShardCase> {};

TEST_P(ShardedOps, BlocksHaveTheBitsOfTheWhole) {
  const ShardCase& shard = GetParam();
  for (const Target& target : AllTargets()) {
    const auto graph = GraphOf(shard.op_case, ir::DType::kF32);
    ASSERT_TRUE(graph) << graph.error();
    const std::vector<HostTensor> data = DataOf(shard.op_case, 3);
    const auto whole = EvaluateWith(*graph, {target, ContextAt(0)}, data);
    ASSERT_TRUE(whole) << whole.error();
    const HostTensor& expected = (*whole)[0];
    const ir::Dims& described = shard.described < 0
                                    ? expected.type.dims
                                    : data[static_cast<size_t>(shard.described)].type.dims;
    std::map<std::string, HostTensor> sums;  // by place without "tensor"
    for (const Place& place : AllPlaces()) {
      std::vector<HostTensor> local;
      for (size_t i = 0; i < data.size(); ++i) {
        const LocalBlock block = BlockAt(data[i].type.dims, shard.operands[i], place);
        local.push_back(Block(Convert(data[i], ir::DType::kF32), block.start, block.dims));
      }
      const LocalBlock block = BlockAt(expected.type.dims, shard.result, place);
      auto out = RunLocal(shard, target, place, described, local, block.dims);
      ASSERT_TRUE(out) << out.error();
      const HostTensor want = Block(expected, block.start, block.dims);
      if (!shard.sum_over_tensor) {
        EXPECT_EQ(ValuesOf(*out), ValuesOf(want)) << "microbatch " << place.microbatch;
        continue;
      }
      const std::string key = std::to_string(place.coords.coords[0] * 2 + place.microbatch);
      if (place.coords.coords[1] == 0) {
        sums[key] = *out;
        continue;
      }
      std::vector<double> total = ValuesOf(sums[key]);
      const std::vector<double> part = ValuesOf(*out);
      for (size_t i = 0; i < total.size(); ++i) total[i] += part[i];
      EXPECT_EQ(total, ValuesOf(want)) << "place " << key;
    }
  }
}

std::vector<ShardCase> Cases() {
  using ir::Op;
  std::vector<ShardCase> cases;
  const auto add = [&](const char* name, Op op, ir::Attrs attrs, std::vector<Arg> args) {
    ShardCase shard;
    shard.op_case = {name, op, std::move(attrs), std::move(args), {}};
    cases.push_back(shard);
    return &cases.back();
  };
  const AxesOfDims rows3 = {"micro,data", "", ""};
  ShardCase* c =
      add("random_normal", Op::kRandomNormal, {{"name", "w"}, {"mean", 0.5}, {"std", 0.02}}, {});
  c->op_case.declared = {{7, 5, 6}};
  c->result = {"data", "", "tensor"};
  c = add("dropout_rows", Op::kDropout, {{"name", "d"}, {"rate", 0.4}}, {{{8, 5, 6}}});
  c->operands = {rows3};
  c->result = rows3;
  c = add("dropout_all", Op::kDropout, {{"name", "d"}, {"rate", 0.4}}, {{{8, 5, 7}}});
  c->operands = {{"data,micro", "", "tensor"}};
  c->result = c->operands[0];
  c = add("dropout_uneven_middle", Op::kDropout, {{"name", "d"}, {"rate", 0.4}}, {{{4, 9, 70}}});
  c->operands = {{"micro", "tensor,data", ""}};
  c->result = c->operands[0];
  for (const char* kind : {"uniform", "normal"}) {
    c = add(kind, Op::kNoise, {{"name", "n"}, {"kind", std::string(kind)}}, {{{8, 5, 7}}});
    c->operands = {{"data,micro", "", "tensor"}};
    c->result = c->operands[0];
  }
  const ir::Dims keys = {4, 5, 2, 6};
  c = add("attention_dropout", Op::kAttention, {{"name", "p"}, {"dropout", 0.4}},
          {{{4, 5, 4, 6}}, {keys}, {keys}});
  const AxesOfDims heads = {"data,micro", "", "tensor", ""};
  c->operands = {heads, heads, heads};
  c->result = heads;
  c = add("rotary_sequence", Op::kRotary, {{"base", 100.0}}, {{{4, 6, 4, 10}}});
  c->operands = {{"micro", "data", "tensor", ""}};
  c->result = c->operands[0];
  c = add("rotary_sequence_of_two_axes", Op::kRotary, {{"base", 100.0}}, {{{4, 8, 4, 10}}});
  c->operands = {{"micro", "data,tensor", "", ""}};
  c->result = c->operands[0];
  c = add("embedding_columns", Op::kEmbedding, {}, {{{11, 6}}, {{4, 5}, ArgKind::kIds, 11}});
  c->operands = {{"", "tensor"}, {"micro,data", ""}};
  c->result = {"micro,data", "", "tensor"};
  c->described = 0;
  c = add("embedding_rows", Op::kEmbedding, {}, {{{11, 6}}, {{4, 5}, ArgKind::kIds, 11}});
  c->operands = {{"tensor", ""}, {"micro,data", ""}};
  c->result = {"micro,data", "", ""};
  c->described = 0;
  c->sum_over_tensor = true;
  c = add("embedding_grad", Op::kEmbeddingGrad, {{"rows", 11}},
          {{{4, 5}, ArgKind::kIds, 11}, {{4, 5, 6}}});
  c->operands = {{"", ""}, {"", "", "data"}};
  c->result = {"tensor", "data"};
  c = add("pick", Op::kPick, {{"ignore_index", -1}}, {{{8, 11}}, {{8}, ArgKind::kIds, 11, -1}});
  c->operands = {{"micro,data", "tensor"}, {"micro,data"}};
  c->result = {"micro,data"};
  c->described = 0;
  c->sum_over_tensor = true;
  c = add("cross_entropy_grad", Op::kCrossEntropyGrad, {{"ignore_index", -1}},
          {{{8, 12}}, {{8}, ArgKind::kIds, 12, -1}, {{8}}, {{}}});
  c->operands = {{"micro,data", "tensor"}, {"micro,data"}, {"micro,data"}, {}};
  c->result = {"micro,data", "tensor"};
  c->described = 0;
  c = add("cross_entropy_grad_uneven", Op::kCrossEntropyGrad, {{"ignore_index", -1}},
          {{{8, 13}}, {{8}, ArgKind::kIds, 13, -1}, {{8}}, {{}}});
  c->operands = {{"micro,data", "tensor"}, {"micro,data"}, {"micro,data"}, {}};
  c->result = {"micro,data", "tensor"};
  c->described = 0;
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Grid, ShardedOps, testing::ValuesIn(Cases()),
                         [](const auto& test) { return test.param.op_case.name; });

TEST(ShardSlice, TakesTheOwnBlockOfFloatsAndIntegers) {
  const HostTensor values = Convert(RandomTensor({2, 8}, 1), ir::DType::kF32);
  const HostTensor ids = FromIds({2, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  for (const HostTensor& whole : {values, ids}) {
    for (const Place& place : AllPlaces()) {
      ir::Builder builder("slice");
      const ValueId x = builder.AddOne(ir::Op::kInput, {}, {{"name", "x"}}, {whole.type});
      const ir::Dims dims = {2, 2};
      const ValueId y =
          builder.AddOne(ir::Op::kShardSlice, {x},
                         {{"axes", std::vector<std::string>{"tensor", "data"}}, {"dim", 1}},
                         {{whole.type.dtype, dims}});
      const auto graph = builder.Finish();
      ASSERT_TRUE(graph) << graph.error();
      const int64_t block = place.coords.coords[1] * 2 + place.coords.coords[0];
      const HostTensor expected = Block(whole, {0, block * 2}, dims);
      for (const Target& target : AllTargets()) {
        const auto kernel = MakeKernel(target, *graph, graph->producer(y), place.coords);
        ASSERT_TRUE(kernel) << kernel.error();
        std::vector<HostTensor> source = {whole};
        std::vector<HostTensor> out = {{expected.type, std::vector<std::byte>(16)}};
        const Status ran = RunKernel(target, **kernel, {}, source, out);
        ASSERT_TRUE(ran.ok()) << ran;
        EXPECT_EQ(out[0].data, expected.data);
      }
    }
  }
}

TEST(ResolveOffsets, NamesAnUnknownAxisAndAWrongBlock) {
  const DeviceCoords coords{{"data"}, {2}, {1}, 4};
  ir::ShardedDims dims{{8}, {{"modle"}}};
  auto offsets = ResolveOffsets(dims, {4}, coords);
  ASSERT_FALSE(offsets);
  EXPECT_EQ(offsets.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(offsets.error().message().find("modle"), std::string::npos);
  dims.dim_axes = {{"data"}};
  EXPECT_FALSE(ResolveOffsets(dims, {3}, coords));
  EXPECT_FALSE(ResolveOffsets(dims, {4, 1}, coords));
  dims.dim_axes = {{"data", "micro"}};
  offsets = ResolveOffsets(dims, {1}, coords);
  ASSERT_TRUE(offsets) << offsets.error();
  EXPECT_EQ(offsets->at(0, 0), 4);
  EXPECT_EQ(offsets->at(0, 3), 7);
}

}  // namespace
}  // namespace meshwright::ops
