#include "tests/conformance/ops/ops_cases.h"

#include "ir/fused.h"

namespace meshwright::ops {
namespace {

using ir::Attrs;
using ir::Op;

Arg Ids(ir::Dims dims, int64_t below, int64_t ignored = INT64_MIN) {
  return {std::move(dims), ArgKind::kIds, below, ignored};
}
Arg Positive(ir::Dims dims) { return {std::move(dims), ArgKind::kPositive}; }

std::string Spell(const ir::Dims& dims) {
  std::string text;
  for (int64_t dim : dims) text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text.empty() ? "scalar" : text;
}

void AddElementwise(std::vector<OpCase>& cases) {
  const std::vector<ir::Dims> shapes = {{}, {1}, {7}, {3, 13}, {2, 3, 16}, {5, 127, 67}};
  for (const ir::Dims& dims : shapes) {
    const std::string at = "_" + Spell(dims);
    cases.push_back({"add" + at, Op::kAdd, {}, {{dims}, {dims}}, {}});
    cases.push_back({"mul" + at, Op::kMul, {}, {{dims}, {dims}}, {}});
    cases.push_back({"sub" + at, Op::kSub, {}, {{dims}, {dims}}, {}});
    cases.push_back({"scale" + at, Op::kScale, {{"factor", -1.75}}, {{dims}}, {}});
    cases.push_back({"mul_scalar" + at, Op::kMulScalar, {}, {{dims}, {{}}}, {}});
    cases.push_back({"cast_f64" + at, Op::kCast, {{"dtype", "f64"}}, {{dims}}, {}});
    cases.push_back({"cast_f32" + at, Op::kCast, {{"dtype", "f32"}}, {{dims}}, {}, false});
    cases.push_back({"cast_bf16" + at, Op::kCast, {{"dtype", "bf16"}}, {{dims}}, {}, false, 4e-3});
    cases.push_back({"sum1" + at, Op::kSum, {}, {{dims}}, {}});
    cases.push_back({"sum4" + at, Op::kSum, {}, {{dims}, {dims}, {dims}, {dims}}, {}});
    cases.push_back({"gelu" + at, Op::kGelu, {}, {{dims}}, {}});
    cases.push_back({"silu" + at, Op::kSilu, {}, {{dims}}, {}});
    cases.push_back({"gelu_grad" + at, Op::kGeluGrad, {}, {{dims}, {dims}}, {}});
    cases.push_back({"silu_grad" + at, Op::kSiluGrad, {}, {{dims}, {dims}}, {}});
    cases.push_back(
        {"dropout" + at, Op::kDropout, {{"rate", 0.3}, {"name", "drop"}}, {{dims}}, {}});
  }
  for (const Op op : {Op::kAdd, Op::kMul}) {
    const std::string name = std::string(ir::OpName(op)) + "_suffix_";
    cases.push_back({name + "bias", op, {}, {{{5, 3, 13}}, {{13}}}, {}});
    cases.push_back({name + "two", op, {}, {{{5, 3, 7}}, {{3, 7}}}, {}});
    cases.push_back({name + "scalar", op, {}, {{{4, 3}}, {{}}}, {}});
    cases.push_back({name + "wide", op, {}, {{{4, 200, 129}}, {{129}}}, {}});
  }
}

void AddStructure(std::vector<OpCase>& cases) {
  cases.push_back(
      {"slice_first", Op::kSlice, {{"dim", 0}, {"start", 1}, {"size", 2}}, {{{4, 3, 5}}}, {}});
  cases.push_back(
      {"slice_middle", Op::kSlice, {{"dim", 1}, {"start", 2}, {"size", 3}}, {{{4, 7, 5}}}, {}});
  cases.push_back(
      {"slice_last", Op::kSlice, {{"dim", 2}, {"start", 4}, {"size", 1}}, {{{2, 3, 5}}}, {}});
  cases.push_back(
      {"pad_first", Op::kPad, {{"dim", 0}, {"before", 2}, {"after", 1}}, {{{3, 4}}}, {}});
  cases.push_back(
      {"pad_last", Op::kPad, {{"dim", 1}, {"before", 0}, {"after", 3}}, {{{3, 4}}}, {}});
  cases.push_back({"reshape", Op::kReshape, {}, {{{4, 6}}}, {{2, 3, 4}}});
  cases.push_back({"reshape_wide", Op::kReshape, {}, {{{64, 3000}}}, {{192000}}});
  cases.push_back(
      {"transpose_2d", Op::kTranspose, {{"perm", std::vector<int64_t>{1, 0}}}, {{{5, 7}}}, {}});
  cases.push_back({"transpose_heads",
                   Op::kTranspose,
                   {{"perm", std::vector<int64_t>{0, 2, 1, 3}}},
                   {{{2, 5, 3, 4}}},
                   {}});
  cases.push_back({"transpose_wide",
                   Op::kTranspose,
                   {{"perm", std::vector<int64_t>{2, 0, 1}}},
                   {{{31, 40, 37}}},
                   {}});
  const std::vector<std::vector<int64_t>> reductions = {{0},    {1},    {2},      {0, 1},
                                                        {1, 2}, {0, 2}, {0, 1, 2}};
  for (const auto& dims : reductions) {
    const std::string at = Spell(dims);
    cases.push_back({"reduce_sum_" + at, Op::kReduceSum, {{"dims", dims}}, {{{4, 5, 7}}}, {}});
    cases.push_back(
        {"reduce_sum_wide_" + at, Op::kReduceSum, {{"dims", dims}}, {{{37, 19, 131}}}, {}});
  }
  for (int64_t size : {1, 17, 4096, 70001}) {
    cases.push_back({"sum_squares_" + std::to_string(size), Op::kSumSquares, {}, {{{size}}}, {}});
  }
}

void AddEinsum(std::vector<OpCase>& cases) {
  struct Row {
    const char* equation;
    ir::Dims a;
    ir::Dims b;
  };
  const std::vector<Row> rows = {
      {"bsk,kn->bsn", {2, 5, 7}, {7, 11}},
      {"bsk,kn->bsn", {3, 64, 48}, {48, 80}},
      {"bsn,kn->bsk", {2, 5, 11}, {7, 11}},
      {"bsk,bsn->kn", {2, 5, 7}, {2, 5, 11}},
      {"bsd,vd->bsv", {2, 6, 8}, {13, 8}},
      {"bsd,dthe->bsthe", {2, 4, 6}, {6, 3, 2, 5}},
      {"bsthe,dthe->bsd", {2, 4, 3, 2, 5}, {6, 3, 2, 5}},
      {"bsd,bsthe->dthe", {2, 4, 6}, {2, 4, 3, 2, 5}},
      {"bshe,hed->bsd", {2, 4, 3, 5}, {3, 5, 6}},
      {"bsd,bshe->hed", {2, 4, 6}, {2, 4, 3, 5}},
      {"bqhe,bkhe->bhqk", {2, 9, 3, 8}, {2, 10, 3, 8}},
      {"bhqk,bkhe->bqhe", {2, 3, 9, 10}, {2, 10, 3, 8}},
      {"ecd,edf->ecf", {3, 7, 8}, {3, 8, 9}},
      {"km,kn->nm", {17, 9}, {17, 13}},
      {"mk,nk->nm", {17, 9}, {13, 9}},
      {"ab,ba->ab", {6, 7}, {7, 6}},
      {"a,b->ab", {6}, {7}},
      {"ab,b->a", {6, 70}, {70}},
      {"a,a->", {300}, {300}},
      {"amb,bn->nam", {3, 5, 7}, {7, 4}},
      {"kamb,bkn->nabm", {12, 3, 5, 7}, {7, 12, 14}},
      {"abcd,bd->ac", {4, 9, 5, 8}, {9, 8}},
      {"bsk,kn->bsn", {1, 1, 1}, {1, 1}},
      {"bsk,kn->bsn", {2, 300, 210}, {210, 530}},
      {"bsn,kn->bsk", {2, 300, 530}, {210, 530}},
      {"bsk,bsn->kn", {2, 300, 210}, {2, 300, 530}},
  };
  int index = 0;
  for (const Row& row : rows) {
    OpCase op_case{"einsum_" + std::to_string(index++),
                   Op::kEinsum,
                   {{"equation", row.equation}},
                   {{row.a}, {row.b}},
                   {}};
    op_case.f32_tolerance = 5e-6;
    cases.push_back(op_case);
  }
}

// An accumulator behind the operands: products that a BLAS reads, that are packed, and that plain
// loops take.
void AddAccumulators(std::vector<OpCase>& cases) {
  struct Row {
    const char* equation;
    ir::Dims a, b, c;
  };
  const std::vector<Row> rows = {
      {"bsk,bsn->kn", {2, 5, 7}, {2, 5, 11}, {7, 11}},
      {"bsk,bsn->kn", {2, 300, 210}, {2, 300, 530}, {210, 530}},
      {"bqhe,bkhe->bhqk", {2, 9, 3, 8}, {2, 10, 3, 8}, {2, 3, 9, 10}},
      {"kamb,bkn->nabm", {12, 3, 5, 7}, {7, 12, 14}, {14, 3, 7, 5}},
      {"ab,b->a", {6, 7}, {7}, {6}},
  };
  int index = 0;
  for (const Row& row : rows) {
    cases.push_back({"einsum_accumulator_" + std::to_string(index++),
                     Op::kEinsum,
                     {{"equation", row.equation}},
                     {{row.a}, {row.b}, {row.c}},
                     {},
                     false,
                     5e-6});
  }
  cases.push_back({"embedding_grad_accumulator",
                   Op::kEmbeddingGrad,
                   {{"rows", 40}},
                   {Ids({3, 100}, 40), {{3, 100, 133}}, {{40, 133}}},
                   {},
                   false});
  // Several tiles of everything, the last one smaller: vocabulary, rows and width. The logits are
  // large, and exp makes their rounding a relative one.
  for (const Op op : {Op::kHeadLoss, Op::kHeadLossGrad}) {
    OpCase tiles{op == Op::kHeadLoss ? "head_loss_tiles" : "head_loss_grad_tiles",
                 op,
                 {{"ignore_index", -1}, {"block_tokens", 135}},
                 {{{2, 70, 260}}, {{1030, 260}}, Ids({2, 70}, 1030, -1)},
                 {},
                 false,
                 1e-5,
                 op == Op::kHeadLoss ? size_t{2} : size_t{4}};
    if (op == Op::kHeadLossGrad) tiles.args.push_back({{}});
    cases.push_back(std::move(tiles));
  }
  cases.push_back({"head_loss_grad_accumulator",
                   Op::kHeadLossGrad,
                   {{"ignore_index", -1}, {"block_tokens", 3}},
                   {{{2, 4, 6}}, {{11, 6}}, Ids({2, 4}, 11, -1), {{}}, {{11, 6}}},
                   {},
                   false,
                   3e-6,
                   4});
}

void AddNorms(std::vector<OpCase>& cases) {
  const std::vector<ir::Dims> shapes = {{1, 5}, {2, 3, 16}, {4, 9, 67}, {2, 150, 129}};
  for (const ir::Dims& dims : shapes) {
    const std::string at = "_" + Spell(dims);
    const ir::Dims d = {dims.back()};
    const ir::Dims rows(dims.begin(), dims.end() - 1);
    const Attrs eps = {{"eps", 1e-5}};
    cases.push_back({"layer_norm" + at, Op::kLayerNorm, eps, {{dims}, {d}, {d}}, {}});
    cases.push_back({"rms_norm" + at, Op::kRmsNorm, eps, {{dims}, {d}}, {}});
    OpCase layer{"layer_norm_grad" + at,
                 Op::kLayerNormGrad,
                 {},
                 {{dims}, {d}, {rows}, Positive(rows), {dims}},
                 {}};
    OpCase rms{
        "rms_norm_grad" + at, Op::kRmsNormGrad, {}, {{dims}, {d}, Positive(rows), {dims}}, {}};
    cases.push_back(layer);
    cases.push_back(rms);
  }
}

void AddEmbedding(std::vector<OpCase>& cases) {
  cases.push_back({"embedding", Op::kEmbedding, {}, {{{11, 5}}, Ids({2, 7}, 11)}, {}});
  cases.push_back({"embedding_wide", Op::kEmbedding, {}, {{{40, 133}}, Ids({3, 100}, 40)}, {}});
  cases.push_back(
      {"embedding_grad", Op::kEmbeddingGrad, {{"rows", 11}}, {Ids({2, 7}, 11), {{2, 7, 5}}}, {}});
  cases.push_back({"embedding_grad_wide",
                   Op::kEmbeddingGrad,
                   {{"rows", 40}},
                   {Ids({3, 100}, 40), {{3, 100, 133}}},
                   {},
                   false});
  for (int64_t inverse : {0, 1}) {
    const std::string at = inverse ? "_inverse" : "";
    const Attrs attrs = {{"base", 10000.0}, {"inverse", inverse}};
    cases.push_back({"rotary" + at, Op::kRotary, attrs, {{{2, 7, 3, 10}}}, {}});
    Attrs zigzag = attrs;
    zigzag.Set("zigzag", int64_t{2});
    cases.push_back({"rotary_zigzag" + at, Op::kRotary, zigzag, {{{2, 16, 3, 10}}}, {}});
    Attrs stretched = {{"inverse", inverse}};
    stretched.Set("frequencies", std::vector<std::string>{"1", "0.3", "0.125", "1e-3", "0"});
    cases.push_back({"rotary_stretched" + at, Op::kRotary, stretched, {{{2, 7, 3, 10}}}, {}});
    cases.push_back({"rotary_wide" + at, Op::kRotary, attrs, {{{2, 150, 4, 38}}}, {}});
    cases.push_back(
        {"rotary_told" + at, Op::kRotary, attrs, {{{2, 7, 3, 10}}, Ids({2, 7}, 90)}, {}});
  }
}

void AddSegments(std::vector<OpCase>& cases) {
  for (const ir::Dims& dims : {ir::Dims{1}, ir::Dims{9}, ir::Dims{3, 17}}) {
    cases.push_back({"segments_" + Spell(dims),
                     Op::kSegments,
                     {{"separator", int64_t{1}}},
                     {Ids(dims, 4)},
                     {},
                     false});
  }
}

void AddAttention(std::vector<OpCase>& cases) {
  struct Row {
    const char* name;
    int64_t b, s, h, g, e;
  };
  struct Variant {
    const char* name;
    Attrs attrs;
  };
  const std::vector<Variant> variants = {
      {"", {{"causal", int64_t{0}}}},
      {"_causal", {{"causal", int64_t{1}}}},
      {"_causal_dropout", {{"causal", int64_t{1}}, {"dropout", 0.3}, {"name", "probabilities"}}},
      {"_window", {{"causal", int64_t{1}}, {"window", int64_t{4}}}},
      {"_zigzag", {{"causal", int64_t{1}}, {"zigzag", int64_t{2}}}},
      {"_zigzag_dropout",
       {{"causal", int64_t{1}}, {"zigzag", int64_t{4}}, {"dropout", 0.3}, {"name", "chunks"}}}};
  const std::vector<Row> rows = {{"one", 1, 1, 1, 1, 4},         {"plain", 2, 7, 3, 3, 8},
                                 {"grouped", 2, 5, 6, 2, 5},     {"multi_query", 1, 9, 4, 1, 6},
                                 {"tiles", 2, 150, 4, 2, 20},    {"two_tiles", 1, 128, 2, 2, 16},
                                 {"one_row", 1, 1, 2, 1, 16},    {"below_tile", 1, 63, 2, 1, 64},
                                 {"above_tile", 1, 65, 2, 2, 5}, {"three_tiles", 1, 130, 2, 1, 80},
                                 {"chunks", 2, 152, 4, 2, 8},    {"small_chunks", 1, 16, 2, 2, 6}};
  for (const Row& r : rows) {
    for (const auto& [name, attrs] : variants) {
      // Zigzag order cuts a row into equal chunks.
      if (attrs.Has("zigzag") && r.s % (2 * attrs.Int("zigzag")) != 0) continue;
      const std::string at = std::string("_") + r.name + name;
      const ir::Dims q = {r.b, r.s, r.h, r.e};
      const ir::Dims kv = {r.b, r.s, r.g, r.e};
      const ir::Dims lse = {r.b, r.h, r.s};
      cases.push_back({"attention" + at, Op::kAttention, attrs, {{q}, {kv}, {kv}}, {}});
      cases.push_back({"attention_grad" + at,
                       Op::kAttentionGrad,
                       attrs,
                       {{q}, {kv}, {kv}, {q}, Positive(lse), {q}},
                       {},
                       false,
                       1e-5});
      const Arg segments = Ids({r.b, r.s}, 3);
      cases.push_back(
          {"attention_segments" + at, Op::kAttention, attrs, {{q}, {kv}, {kv}, segments}, {}});
      cases.push_back({"attention_segments_grad" + at,
                       Op::kAttentionGrad,
                       attrs,
                       {{q}, {kv}, {kv}, {q}, Positive(lse), {q}, segments},
                       {},
                       false,
                       1e-5});
      if (r.g != r.h) continue;
      const ir::Dims qkv = {r.b, r.s, 3, r.h, r.e};
      cases.push_back({"attention_qkv" + at, Op::kAttentionQkv, attrs, {{qkv}}, {}});
      cases.push_back({"attention_qkv_grad" + at,
                       Op::kAttentionQkvGrad,
                       attrs,
                       {{qkv}, {q}, Positive(lse), {q}},
                       {},
                       false,
                       1e-5});
      cases.push_back(
          {"attention_qkv_segments" + at, Op::kAttentionQkv, attrs, {{qkv}, segments}, {}});
      cases.push_back({"attention_qkv_segments_grad" + at,
                       Op::kAttentionQkvGrad,
                       attrs,
                       {{qkv}, {q}, Positive(lse), {q}, segments},
                       {},
                       false,
                       1e-5});
    }
  }
}

void AddLosses(std::vector<OpCase>& cases) {
  struct Row {
    ir::Dims rows;
    int64_t v;
  };
  for (const Row& r : std::vector<Row>{{{1}, 1}, {{2, 5}, 11}, {{40, 5}, 257}, {{3, 7}, 3001}}) {
    const std::string at = "_" + Spell(r.rows) + "_" + std::to_string(r.v);
    ir::Dims logits = r.rows;
    logits.push_back(r.v);
    const Attrs ignore = {{"ignore_index", -1}};
    const Arg labels = Ids(r.rows, r.v, -1);
    cases.push_back({"cross_entropy" + at, Op::kCrossEntropy, ignore, {{logits}, labels}, {}});
    cases.push_back({"cross_entropy_grad" + at,
                     Op::kCrossEntropyGrad,
                     ignore,
                     {{logits}, labels, Positive(r.rows), {{}}},
                     {}});
    const ir::Dims weight = {r.v, 6};
    ir::Dims x = r.rows;
    x.push_back(6);
    const Attrs head = {{"ignore_index", -1}, {"block_tokens", 3}};
    cases.push_back(
        {"head_loss" + at, Op::kHeadLoss, head, {{x}, {weight}, labels}, {}, false, 3e-6, 2});
    cases.push_back({"head_loss_grad" + at,
                     Op::kHeadLossGrad,
                     head,
                     {{x}, {weight}, labels, {{}}},
                     {},
                     false,
                     3e-6,
                     4});
    cases.push_back({"logsumexp" + at, Op::kLogSumExp, {}, {{logits}}, {}});
    cases.push_back({"pick" + at, Op::kPick, ignore, {{logits}, labels}, {}, false});
    cases.push_back({"nll" + at, Op::kNll, ignore, {{r.rows}, {r.rows}, labels}, {}, false});
  }
}

void AddOptimizers(std::vector<OpCase>& cases) {
  for (int64_t size : {1, 77, 40003}) {
    const ir::Dims dims = {size};
    const std::string at = "_" + std::to_string(size);
    cases.push_back({"adamw" + at,
                     Op::kAdamW,
                     {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}},
                     {{dims}, {dims}, {dims}, Positive(dims), Positive({}), Positive({})},
                     {},
                     false});
    cases.push_back({"sgd" + at,
                     Op::kSgd,
                     {{"momentum", 0.9}, {"weight_decay", 0.01}},
                     {{dims}, {dims}, {dims}, Positive({}), Positive({})},
                     {},
                     false});
    cases.push_back({"lion" + at,
                     Op::kSgd,
                     {{"momentum", 0.99}, {"weight_decay", 0.1}, {"sign_beta", 0.9}},
                     {{dims}, {dims}, {dims}, Positive({}), Positive({})},
                     {},
                     false});
  }
  struct Factors {
    ir::Dims dims, rows, columns;
    int64_t matrix_dims, row_dims;
  };
  const Factors factored[] = {{{77}, {77}, {}, 0, 1},
                              {{33, 70}, {33}, {70}, 0, 1},
                              {{130, 5, 7}, {130}, {5, 7}, 0, 1},
                              {{3, 40, 21}, {3, 40}, {3, 21}, 1, 1}};
  for (const Factors& f : factored) {
    cases.push_back(
        {"adafactor_" + std::to_string(f.dims[0]),
         Op::kAdamW,
         {{"matrix_dims", f.matrix_dims},
          {"row_dims", f.row_dims},
          {"decay_rate", 0.8},
          {"clip_threshold", 0.5},
          {"weight_decay", 0.1},
          {"scale_parameter", int64_t{1}}},
         {{f.dims}, {f.dims}, Positive(f.rows), Positive(f.columns), Positive({}), Positive({})},
         {},
         false});
  }
  cases.push_back({"clip_multiplier",
                   Op::kClipMultiplier,
                   {{"max_norm", 0.1}},
                   {Positive({}), Positive({})},
                   {},
                   false});
  cases.push_back({"clip_multiplier_off",
                   Op::kClipMultiplier,
                   {{"max_norm", 0.0}},
                   {Positive({}), Positive({})},
                   {},
                   false});
  cases.push_back({"divide", Op::kDivide, {}, {{{}}, Positive({})}, {}});
}

struct FusedCase {
  std::string name;  // ends in _by_steps where no one-pass kernel takes it
  std::vector<Arg> args;
  std::vector<ir::FusedStep> steps;
  std::vector<int> results;
};

// The forms that a backend runs in one pass, with odd sizes.
std::vector<FusedCase> OnePassCases() {
  const Attrs leading = {{"dims", std::vector<int64_t>{0, 1}}};
  const Attrs product = {{"equation", std::string("bsd,df->bsf")}};
  const Attrs dropout = {{"rate", 0.3}, {"name", std::string("mask")}};
  const ir::Dims x = {3, 43, 20}, w = {20, 37}, y = {3, 43, 37}, bias = {37}, row = {3, 43};
  const ir::Dims long_x = {2, 3, 1500}, long_bias = {1500}, vector = {2600};
  return {
      {"flat",
       {{vector}, {vector}, {{}}},
       {{Op::kMul, {0, 1}, {}}, {Op::kMulScalar, {3, 2}, {}}, {Op::kSilu, {4}, {}}},
       {4, 5}},
      {"bias_gelu_dropout_sums",
       {{long_x}, {long_bias}},
       {{Op::kAdd, {0, 1}, {}},
        {Op::kGelu, {2}, {}},
        {Op::kDropout, {3}, dropout},
        {Op::kReduceSum, {4}, leading},
        {Op::kScale, {4}, {{"factor", 0.5}}}},
       {2, 5, 6}},
      {"product_bias_gelu",
       {{x}, {w}, {bias}},
       {{Op::kEinsum, {0, 1}, product}, {Op::kAdd, {3, 2}, {}}, {Op::kGelu, {4}, {}}},
       {4, 5}},
      {"product_bias_residual",
       {{x}, {w}, {bias}, {y}},
       {{Op::kEinsum, {0, 1}, product}, {Op::kAdd, {4, 2}, {}}, {Op::kAdd, {3, 5}, {}}},
       {6}},
      {"product_gate_sums",
       {{x}, {w}, {y}},
       {{Op::kEinsum, {0, 1}, product},
        {Op::kGeluGrad, {2, 3}, {}},
        {Op::kReduceSum, {4}, leading}},
       {4, 5}},
      {"product_kept",
       {{x}, {w}, {y}},
       {{Op::kEinsum, {0, 1}, product}, {Op::kSum, {2, 2, 3}, {}}, {Op::kSub, {4, 3}, {}}},
       {3, 5}},
      {"layer_norm_grad_residual_sums",
       {{y}, {bias}, {row}, Positive(row), {y}, {y}},
       {{Op::kLayerNormGrad, {0, 1, 2, 3, 4}, {{"eps", 1e-5}}},
        {Op::kSum, {6, 5}, {}},
        {Op::kReduceSum, {9}, leading}},
       {7, 8, 9, 10}},
      {"rms_norm_grad_kept",
       {{y}, {bias}, Positive(row), {y}, {y}},
       {{Op::kRmsNormGrad, {0, 1, 2, 3}, {{"eps", 1e-5}}}, {Op::kSum, {4, 5}, {}}},
       {5, 6, 7}},
      {"wide_rows",
       {{{70, 9000}}, {{9000}}},
       {{Op::kAdd, {0, 1}, {}}, {Op::kReduceSum, {2}, {{"dims", std::vector<int64_t>{0}}}}},
       {2, 3}},
  };
}

// Others, which it takes step by step: among them shapes that no compiler makes, but a program can
// hold.
std::vector<FusedCase> ByStepsCases() {
  const Attrs product = {{"equation", std::string("bsd,df->bsf")}};
  const ir::Dims x = {3, 43, 20}, w = {20, 37};
  const ir::Dims long_x = {2, 3, 1500}, long_bias = {1500}, vector = {2600};
  return {
      {"two_products_by_steps",
       {{x}, {w}, {w}},
       {{Op::kEinsum, {0, 1}, product}, {Op::kEinsum, {0, 2}, product}, {Op::kMul, {3, 4}, {}}},
       {5}},
      {"results_twice_by_steps", {{vector}}, {{Op::kGelu, {0}, {}}}, {1, 0, 1}},
      {"two_widths_by_steps",
       {{long_x}, {long_bias}, {{3, 1500}}},
       {{Op::kAdd, {0, 1}, {}}, {Op::kAdd, {3, 2}, {}}},
       {4}},
      {"norm_beside_a_larger_tensor_by_steps",
       {{{4, 16}}, {{16}}, Positive({4}), {{4, 16}}, {{1000, 16}}},
       {{Op::kRmsNormGrad, {0, 1, 2, 3}, {{"eps", 1e-5}}}, {Op::kScale, {4}, {{"factor", 2.0}}}},
       {5, 6, 7}},
      {"narrow_product_by_steps",
       {{{16}}, {{16, 16}}, {{1000, 16}}},
       {{Op::kEinsum, {0, 1}, {{"equation", std::string("k,kn->n")}}}, {Op::kAdd, {2, 3}, {}}},
       {3, 4}},
      {"sum_of_a_narrow_tensor_by_steps",
       {{{8, 16}}, {{1, 16}}},
       {{Op::kGelu, {0}, {}}, {Op::kReduceSum, {1}, {{"dims", std::vector<int64_t>{0}}}}},
       {2, 3}},
      {"norm_and_its_weight_gradient_by_steps",
       {{{1, 16}}, {{16}}, Positive({1}), {{1, 16}}},
       {{Op::kRmsNormGrad, {0, 1, 2, 3}, {{"eps", 1e-5}}}, {Op::kAdd, {4, 5}, {}}},
       {4, 5, 6}},
  };
}

void AddFused(std::vector<OpCase>& cases) {
  for (const auto& forms : {OnePassCases(), ByStepsCases()}) {
    for (const FusedCase& fused : forms) {
      Attrs attrs;
      ir::SetFusedBody({fused.steps, fused.results}, attrs);
      cases.push_back({"fused_" + fused.name, Op::kFused, attrs, fused.args, {}, false, 1e-5});
    }
  }
}

std::vector<OpCase> MakeCases() {
  std::vector<OpCase> cases;
  AddElementwise(cases);
  AddStructure(cases);
  AddEinsum(cases);
  AddAccumulators(cases);
  AddNorms(cases);
  AddEmbedding(cases);
  AddSegments(cases);
  for (OpCase& op_case : PagedCases()) cases.push_back(std::move(op_case));
  AddAttention(cases);
  AddLosses(cases);
  AddOptimizers(cases);
  AddFused(cases);
  for (OpCase& op_case : FormulaCases()) cases.push_back(std::move(op_case));
  for (OpCase& op_case : MixedCases()) cases.push_back(std::move(op_case));
  return cases;
}

}  // namespace

const std::vector<OpCase>& AllCases() {
  static const std::vector<OpCase> cases = MakeCases();
  return cases;
}

bool RunsInOnePass(const OpCase& fused) {
  return RunsInOnePassMixed(fused) || fused.name.find("_by_steps_in_bf16") != std::string::npos;
}

bool RunsInOnePassMixed(const OpCase& fused) {
  return fused.op == Op::kFused && fused.name.find("_by_steps") == std::string::npos;
}

}  // namespace meshwright::ops
