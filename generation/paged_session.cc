#include "generation/paged_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "ir/mixed_precision.h"

namespace meshwright::generation {
namespace {

// What reads the weights is hardly slower for so many tokens than for one.
constexpr int64_t kFewTokens = 8;

using client::PagedSize;
using client::Tensor;

// The smallest program that holds the batch. REQUIRES that one does.
const PagedSize& SizeFor(const std::vector<PagedSize>& sizes, const Batch& batch) {
  const auto it = std::find_if(sizes.begin(), sizes.end(), [&](const PagedSize& size) {
    return size.source.reads == batch.source.has_value() &&
           static_cast<size_t>(size.tokens) >= batch.tokens.size() &&
           static_cast<size_t>(size.rows) >= batch.wanted.size();
  });
  MW_CHECK(it != sizes.end()) << batch.tokens.size() << " tokens in a step";
  return *it;
}

// What the program takes of sources: the end of each token's, and the one that is read.
void AddSource(const PagedSize& size, const Batch& batch, client::Feeds& feeds) {
  if (size.source.positions == 0) return;
  std::vector<int32_t> ends(static_cast<size_t>(size.tokens));
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    ends[i] = batch.source_ends.at(static_cast<size_t>(batch.tokens[i].row));
  }
  feeds[client::kSourceEnd] = Tensor::Of<int32_t>({1, size.tokens}, ends);
  if (!batch.source) return;
  const auto positions = static_cast<size_t>(size.source.positions);
  MW_CHECK(batch.source->tokens.size() <= positions) << "a source is longer than there is room";
  std::vector<int32_t> tokens = batch.source->tokens;
  std::vector<int32_t> rows(tokens.size(), batch.source->row);
  tokens.resize(positions, 0);
  rows.resize(positions, -1);
  feeds[client::kSourceTokens] = Tensor::Of<int32_t>({1, size.source.positions}, tokens);
  feeds[client::kSourceRow] = Tensor::Of<int32_t>({1, size.source.positions}, rows);
}

client::Feeds FeedsOf(const client::PageShape& shape, const PagedSize& size, const Batch& batch) {
  const auto tokens = static_cast<size_t>(size.tokens);
  std::vector<int32_t> ids(tokens);
  std::vector<int32_t> rows(tokens, -1);
  std::vector<int32_t> positions(tokens);
  std::vector<int32_t> wanted(static_cast<size_t>(size.rows));
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    ids[i] = batch.tokens[i].token;
    rows[i] = batch.tokens[i].row;
    positions[i] = batch.tokens[i].position;
  }
  for (size_t i = 0; i < batch.wanted.size(); ++i) {
    wanted[i] = static_cast<int32_t>(batch.wanted[i].place);
  }
  client::Feeds feeds = {
      {"tokens", Tensor::Of<int32_t>({1, size.tokens}, ids)},
      {"row", Tensor::Of<int32_t>({1, size.tokens}, rows)},
      {"position", Tensor::Of<int32_t>({1, size.tokens}, positions)},
      {"table", Tensor::Of<int32_t>({1, shape.texts, shape.text_pages()}, batch.table)},
      {"wanted", Tensor::Of<int32_t>({1, size.rows}, wanted)}};
  AddSource(size, batch, feeds);
  return feeds;
}

// likeliest: [1, rows].
Result<StepAnswer> LikeliestOf(const Tensor& likeliest, size_t count) {
  std::vector<int32_t> tokens = likeliest.Values<int32_t>();
  MW_CHECK(tokens.size() >= count) << tokens.size() << " of " << count;
  tokens.resize(count);
  for (const int32_t token : tokens) {
    if (token < 0) return Fail(NoNumbers());
  }
  return tokens;
}

}  // namespace

BatchLimits PagedPlan::limits() const {
  BatchLimits limits;
  limits.pages = shape.pages;
  limits.page_tokens = shape.page_tokens;
  limits.texts = shape.texts;
  limits.positions = shape.positions;
  limits.tokens = sizes.back().tokens;
  limits.spare_pages = std::min(shape.texts, shape.pages / 16);
  limits.source_positions = sizes.back().source.positions;
  return limits;
}

Result<PagedPlan> PlanPages(const PagedOptions& options) {
  for (const auto& [name, value] :
       {std::pair("positions", options.positions), std::pair("texts", options.texts),
        std::pair("tokens", options.tokens), std::pair("page_tokens", options.page_tokens)}) {
    if (value >= 1) continue;
    return Fail(InvalidArgument(fmt::format("{} is {}; at least 1", name, value)));
  }
  if (options.source < 0) {
    return Fail(InvalidArgument(fmt::format("source is {}; at least 0", options.source)));
  }
  if (options.tokens < options.texts) {
    return Fail(InvalidArgument(
        fmt::format("a step of {} tokens has none for some of {} texts; give it as many at least",
                    options.tokens, options.texts)));
  }
  PagedPlan plan;
  plan.shape.texts = options.texts;
  plan.shape.positions = options.positions;
  plan.shape.page_tokens = options.page_tokens;
  plan.shape.pages = options.pages > 0 ? options.pages : options.texts * plan.shape.text_pages();
  const std::set<int64_t> sizes = {1, options.texts, std::min(kFewTokens, options.tokens),
                                   options.tokens};
  for (const int64_t tokens : sizes) {
    plan.sizes.push_back({tokens, std::min(tokens, options.texts), {options.source, false}});
  }
  if (options.source == 0) return plan;
  // The last one, which decides the layout: it has all of the model.
  PagedSize reads = plan.sizes.back();
  reads.source.reads = true;
  plan.sizes.push_back(reads);
  return plan;
}

Result<ir::JobRequest> PagedJob(ir::JobRequest of, const client::TrainerFunctions& functions,
                                PagedPlan plan, const std::string& name) {
  const ir::Graph& main = of.main().graph;
  const bool wide = std::any_of(main.values.begin(), main.values.end(), [](const ir::Value& value) {
    return value.type.dtype == ir::DType::kF64;
  });
  const ir::DType dtype = wide ? ir::DType::kF64 : ir::DType::kF32;
  plan.shape.dtype = wide ? dtype : of.train.compute_dtype;
  if (of.parallel.data > 1) {
    return Fail(InvalidField(
        "parallel.data",
        fmt::format("is {}: replicas would all write the same texts; use 1", of.parallel.data)));
  }
  of.parallel.data = 1;
  of.name = name;
  of.data.blob = {};
  of.data.streams.clear();
  of.train.global_batch = 1;
  of.save_weights = false;
  of.checkpoint = {};
  of.programs.clear();
  // The last decides the layout.
  for (auto size = plan.sizes.rbegin(); size != plan.sizes.rend(); ++size) {
    MW_ASSIGN_OR_RETURN(ir::JobProgram program,
                        client::PagedProgram(plan.shape, *size, functions, dtype));
    of.programs.push_back(std::move(program));
  }
  of.driver = {ir::DriverKind::kClient, "", 0, 0};
  return of;
}

Result<ir::JobRequest> WithHalfWeights(ir::JobRequest job) {
  const ir::DType compute = job.train.compute_dtype;
  if (compute == ir::DType::kF32) return job;
  for (ir::JobProgram& program : job.programs) {
    MW_ASSIGN_OR_RETURN(const ir::Graph mixed, ir::ToMixedPrecision(program.graph, compute));
    MW_ASSIGN_OR_RETURN(program.graph, ir::WithHalfParams(mixed, compute));
  }
  job.train.compute_dtype = ir::DType::kF32;  // the graphs have their casts
  return job;
}

StepLogits StepsOf(client::Session& session, const PagedPlan& plan) {
  return [&session, plan](const Batch& batch) -> Result<StepAnswer> {
    const PagedSize& size = SizeFor(plan.sizes, batch);
    const std::string program = client::PagedProgramName(size);
    client::CallOptions options;
    options.fetch = batch.wanted.empty() ? client::Fetch::kNothing
                    : batch.likeliest    ? client::Fetch::kLargest
                                         : client::Fetch::kAll;
    MW_ASSIGN_OR_RETURN(const client::Answer answer,
                        session.Run(program, FeedsOf(plan.shape, size, batch), options));
    std::vector<std::vector<double>> logits;
    if (batch.wanted.empty()) return logits;
    const auto it = answer.tensors.find("logits");
    if (it == answer.tensors.end()) {
      return Fail(Internal(fmt::format("program '{}' gave out no logits", program)));
    }
    if (batch.likeliest) return LikeliestOf(it->second, batch.wanted.size());
    for (size_t i = 0; i < batch.wanted.size(); ++i) {
      logits.push_back(it->second.RealsOfRow(0, static_cast<int64_t>(i)));
    }
    return logits;
  };
}

}  // namespace meshwright::generation
