#include "client/embedding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace meshwright::client {
namespace {

const std::map<std::string, Pooling>& Poolings() {
  static const std::map<std::string, Pooling> names = {{"mean", Pooling::kMean},
                                                       {"cls", Pooling::kFirst},
                                                       {"last", Pooling::kLast},
                                                       {"mean_sqrt", Pooling::kMeanSqrt},
                                                       {"weighted_mean", Pooling::kWeightedMean}};
  return names;
}

constexpr int64_t kTokensBeside = 8;    // a row has a multiple of so many
constexpr int64_t kTokensOfAText = 8;   // that a row is made for: of shorter texts fewer fit
constexpr double kLeastLength = 1e-12;  // as torch.nn.functional.normalize has it

int64_t RoundUp(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor * divisor;
}

// What the tokens of a text have in its vector.
std::vector<double> SharesOf(Pooling pooling, size_t count) {
  std::vector<double> shares(count, 0);
  const auto n = static_cast<double>(count);
  switch (pooling) {
    case Pooling::kMean:
      std::fill(shares.begin(), shares.end(), 1 / n);
      break;
    case Pooling::kFirst:
      shares.front() = 1;
      break;
    case Pooling::kLast:
      shares.back() = 1;
      break;
    case Pooling::kMeanSqrt:
      std::fill(shares.begin(), shares.end(), 1 / std::sqrt(n));
      break;
    case Pooling::kWeightedMean:
      for (size_t i = 0; i < count; ++i) shares[i] = static_cast<double>(i + 1) / (n * (n + 1) / 2);
      break;
  }
  return shares;
}

// The texts of a row, by their numbers, and the tokens that these have.
struct Row {
  std::vector<size_t> texts;
  int64_t tokens = 0;
};

// The longest first, each into the row with the least room for it: little of a row is left over.
std::vector<Row> RowsOf(const std::vector<TextTokens>& texts, int64_t tokens, int64_t most_texts) {
  std::vector<size_t> order(texts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return texts[a].size() > texts[b].size(); });
  std::vector<Row> rows;
  std::map<int64_t, std::vector<size_t>> open;  // rows by the room that they have
  for (const size_t text : order) {
    const int64_t length = std::ssize(texts[text]);
    MW_CHECK(length > 0 && length <= tokens) << length << " tokens in a row of " << tokens;
    const auto room = open.lower_bound(length);
    size_t row = rows.size();
    if (room == open.end()) {
      rows.emplace_back();
    } else {
      row = room->second.back();
      room->second.pop_back();
      if (room->second.empty()) open.erase(room);
    }
    rows[row].texts.push_back(text);
    rows[row].tokens += length;
    const int64_t left = tokens - rows[row].tokens;
    if (left > 0 && std::ssize(rows[row].texts) < most_texts) open[left].push_back(row);
  }
  return rows;
}

int64_t TextsOfRow(const EmbedShape& shape, const EmbedRules& rules) {
  MW_CHECK(!rules.poolings.empty()) << "no vector without a pooling";
  const int64_t texts = shape.vectors / std::ssize(rules.poolings);
  MW_CHECK(texts >= 1) << shape.vectors << " vectors of " << rules.poolings.size() << " poolings";
  return texts;
}

// Rows [first, first + shape.rows); behind the last one there are empty ones.
Feeds FeedsOf(const EmbedShape& shape, const std::vector<TextTokens>& texts,
              const std::vector<Row>& rows, size_t first, const EmbedRules& rules) {
  const auto width = static_cast<size_t>(shape.tokens);
  const auto vectors = static_cast<size_t>(shape.vectors);
  const size_t count = static_cast<size_t>(shape.rows) * width;
  std::vector<int32_t> tokens(count, 0);
  std::vector<int32_t> segments(count, 0);
  std::vector<int32_t> positions(count, 0);
  std::vector<double> shares(count * vectors, 0);
  for (size_t r = 0; r < static_cast<size_t>(shape.rows) && first + r < rows.size(); ++r) {
    size_t begin = 0;
    size_t vector = 0;
    for (const size_t number : rows[first + r].texts) {
      const TextTokens& text = texts[number];
      const size_t at = r * width + begin;
      for (size_t i = 0; i < text.size(); ++i) {
        tokens[at + i] = text[i];
        segments[at + i] = static_cast<int32_t>(vector) + 1;
        positions[at + i] = static_cast<int32_t>(i);
      }
      for (const Pooling pooling : rules.poolings) {
        const std::vector<double> of = SharesOf(pooling, text.size());
        const size_t to = (r * vectors + vector) * width + begin;
        std::copy(of.begin(), of.end(), shares.begin() + static_cast<std::ptrdiff_t>(to));
        ++vector;
      }
      begin += text.size();
    }
  }
  const Dims dims = {shape.rows, shape.tokens};
  return {
      {"tokens", Tensor::Of<int32_t>(dims, tokens)},
      {"segments", Tensor::Of<int32_t>(dims, segments)},
      {"positions", Tensor::Of<int32_t>(dims, positions)},
      {"shares", Tensor::OfReals(shape.dtype, {shape.rows, shape.vectors, shape.tokens}, shares)}};
}

void Normalise(std::span<double> vector) {
  double squares = 0;
  for (const double value : vector) squares += value * value;
  const double length = std::max(std::sqrt(squares), kLeastLength);
  for (double& value : vector) value /= length;
}

// The vectors of the texts of rows [first, ..) to their places.
Status Take(const Answer& answer, const EmbedShape& shape, const std::vector<Row>& rows,
            size_t first, const EmbedRules& rules, size_t texts, Embeddings& all) {
  const auto found = answer.tensors.find("vectors");
  if (found == answer.tensors.end() || found->second.type.rank() != 3 ||
      found->second.type.dims[0] != shape.rows || found->second.type.dims[1] != shape.vectors) {
    return DataLoss(fmt::format("program '{}' gave out no \"vectors\" of {} rows of {}",
                                kEmbedProgram, shape.rows, shape.vectors));
  }
  const auto states = static_cast<size_t>(found->second.type.dims[2]);
  const size_t width = states * rules.poolings.size();
  all.width = static_cast<int64_t>(width);
  all.values.resize(texts * width);
  for (size_t r = 0; r < static_cast<size_t>(shape.rows) && first + r < rows.size(); ++r) {
    const std::vector<double> row = found->second.RealsOfRow(static_cast<int64_t>(r));
    const std::vector<size_t>& numbers = rows[first + r].texts;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto from = row.begin() + static_cast<std::ptrdiff_t>(i * width);
      const std::span<double> to = std::span(all.values).subspan(numbers[i] * width, width);
      std::copy(from, from + static_cast<std::ptrdiff_t>(width), to.begin());
      if (rules.normalised) Normalise(to);
    }
  }
  return OkStatus();
}

}  // namespace

std::vector<std::string> PoolingNames() {
  std::vector<std::string> names;
  for (const auto& [name, pooling] : Poolings()) names.push_back(name);
  return names;
}

Result<Pooling> ParsePooling(const std::string& name) {
  const auto found = Poolings().find(name);
  if (found != Poolings().end()) return found->second;
  return Fail(InvalidArgument(
      fmt::format("pooling '{}' is not known; known: {}", name, fmt::join(PoolingNames(), ", "))));
}

EmbedShape EmbedShapeFor(const std::vector<TextTokens>& texts, const EmbedRules& rules,
                         const EmbedLimits& limits) {
  MW_CHECK(!texts.empty() && limits.rows >= 1 && limits.rows_divisor >= 1)
      << texts.size() << " texts in " << limits.rows << " rows";
  int64_t longest = 1;
  int64_t total = 0;
  for (const TextTokens& text : texts) {
    longest = std::max(longest, std::ssize(text));
    total += std::ssize(text);
  }
  EmbedShape shape;
  shape.dtype = limits.dtype;
  shape.tokens = RoundUp(std::max(longest, std::min(limits.row_tokens, total)), kTokensBeside);
  if (limits.positions > 0) {
    MW_CHECK(longest <= limits.positions) << longest << " tokens at " << limits.positions;
    shape.tokens = std::min(shape.tokens, limits.positions);
  }
  const int64_t of_row = std::clamp<int64_t>(shape.tokens / kTokensOfAText, 1, std::ssize(texts));
  shape.vectors = of_row * std::ssize(rules.poolings);
  const auto rows = std::ssize(RowsOf(texts, shape.tokens, of_row));
  shape.rows = RoundUp(std::min<int64_t>(rows, limits.rows), limits.rows_divisor);
  return shape;
}

Result<ir::JobProgram> EmbedProgram(const EmbedShape& shape, const TrainerFunctions& functions) {
  if (!functions.encode) {
    return Fail(
        Unimplemented("the model makes no vectors of texts: it is none whose tokens see the whole "
                      "text, as 'bert' is"));
  }
  const Dims dims = {shape.rows, shape.tokens};
  const std::vector<InputSpec> inputs = {
      {"tokens", {ir::DType::kI32, dims}},
      {"segments", {ir::DType::kI32, dims}},
      {"positions", {ir::DType::kI32, dims}},
      {"shares", {shape.dtype, {shape.rows, shape.vectors, shape.tokens}}}};
  const auto body = [&](Builder& b, const Batch& in) {
    b.ReadDocuments({in.at("segments"), in.at("positions")});
    const ValueId states = functions.encode(b, {{"tokens", in.at("tokens")}});
    b.SetOutput("vectors", b.Einsum("bts,bsd->btd", in.at("shares"), states));
    return OkStatus();
  };
  return MakeProgram(kEmbedProgram, inputs, body, {shape.dtype});
}

Result<Embeddings> EmbedTexts(Session& session, const EmbedShape& shape,
                              const std::vector<TextTokens>& texts, const EmbedRules& rules) {
  const std::vector<Row> rows = RowsOf(texts, shape.tokens, TextsOfRow(shape, rules));
  Embeddings all;
  for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(shape.rows)) {
    MW_ASSIGN_OR_RETURN(const Answer answer,
                        session.Run(kEmbedProgram, FeedsOf(shape, texts, rows, first, rules)));
    MW_TRY(Take(answer, shape, rows, first, rules, texts.size(), all));
  }
  return all;
}

}  // namespace meshwright::client
