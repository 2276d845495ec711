// Graph text over random graphs: exact round trip, and no crash on damaged text.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstring>
#include <limits>
#include <random>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"

namespace meshwright::ir {
namespace {

class GraphGenerator {
 public:
  explicit GraphGenerator(uint64_t seed) : random_(seed), b_(RandomText()) {}

  Graph Make() {
    const int count = 1 + static_cast<int>(Draw(20));
    for (int i = 0; i < count; ++i) {
      b_.SetLayer(static_cast<int>(Draw(4)) - 1);
      b_.SetPhase(static_cast<Phase>(Draw(3)));
      AddNode(i);
    }
    for (uint64_t i = 0; i < 1 + Draw(3); ++i) {
      b_.SetOutput(RandomText() + std::to_string(i), values_[Draw(values_.size())]);
    }
    auto graph = b_.Finish();
    RC_ASSERT(graph.has_value());
    return std::move(*graph);
  }

 private:
  uint64_t Draw(uint64_t count) { return random_() % count; }

  std::string RandomText() {
    std::string text;
    for (uint64_t i = 0; i < Draw(8); ++i) text += static_cast<char>(Draw(256));
    return text;
  }

  double RandomReal() {
    const uint64_t bits = random_();
    double value = 0;
    static_assert(sizeof(bits) == sizeof(value));
    std::memcpy(&value, &bits, sizeof(value));
    return value == value ? value : std::numeric_limits<double>::infinity();
  }

  TensorType RandomType() {
    const DType dtypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
    TensorType type{dtypes[Draw(4)], {}};
    for (uint64_t i = 0; i < Draw(4); ++i) type.dims.push_back(1 + static_cast<int64_t>(Draw(5)));
    return type;
  }

  Attrs RandomAttrs(int i) {
    Attrs attrs = {{"name", fmt::format("{}{}", RandomText(), i)}};
    for (uint64_t k = 0; k < Draw(5); ++k) {
      const std::string name = "extra" + RandomText();
      switch (Draw(5)) {
        case 0:
          attrs.Set(name, static_cast<int64_t>(random_()));
          break;
        case 1:
          attrs.Set(name, RandomReal());
          break;
        case 2:
          attrs.Set(name, RandomText());
          break;
        case 3:
          attrs.Set(name, std::vector<int64_t>(Draw(3), static_cast<int64_t>(random_())));
          break;
        default:
          attrs.Set(name, std::vector<std::string>(Draw(3), RandomText()));
      }
    }
    return attrs;
  }

  void AddNode(int i) {
    const uint64_t kind = values_.empty() ? 0 : Draw(5);
    std::vector<ValueId> made;
    if (kind == 0) {
      made = b_.Add(Op::kInput, {}, RandomAttrs(i), {RandomType()});
    } else {
      const ValueId x = values_[Draw(values_.size())];
      if (kind == 1) made = b_.Add(Op::kGelu, {x}, RandomAttrs(i));
      if (kind == 2) made = b_.Add(Op::kSum, {x, x, x});
      if (kind == 3)
        made = b_.Add(Op::kReshape, {x}, {}, {{b_.type(x).dtype, {b_.type(x).elements()}}});
      if (kind == 4) made = b_.Add(Op::kSumSquares, {x}, RandomAttrs(i));
    }
    values_.insert(values_.end(), made.begin(), made.end());
  }

  std::mt19937_64 random_;
  Builder b_;
  std::vector<ValueId> values_;
};

TEST(GraphTextProperty, RoundTripsEveryGraph) {
  rc::check("parse(format(g)) == g", [](uint64_t seed) {
    const Graph graph = GraphGenerator(seed).Make();
    RC_ASSERT(VerifyGraph(graph).ok());
    const std::string text = FormatGraph(graph);
    const auto parsed = ParseGraph(text);
    RC_ASSERT(parsed.has_value());
    RC_ASSERT(*parsed == graph);
    RC_ASSERT(FormatGraph(*parsed) == text);
  });
}

TEST(GraphTextProperty, DamagedTextGivesAnErrorOrACheckableGraph) {
  std::mt19937_64 random(3);
  const std::string alphabet = "0123456789-%@[]{}(),:=\"\\ aefn.\n";
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string text = FormatGraph(GraphGenerator(round % 40).Make());
    for (uint64_t edit = 0; edit < 1 + round % 4; ++edit) {
      const size_t at = random() % text.size();
      const size_t kind = random() % 3;
      if (kind == 0) text.erase(at, 1 + random() % 4);
      if (kind == 1) text[at] = alphabet[random() % alphabet.size()];
      if (kind == 2) text.insert(at, 1, alphabet[random() % alphabet.size()]);
    }
    const auto parsed = ParseGraph(text);
    if (!parsed) {
      EXPECT_EQ(parsed.error().message().rfind("line ", 0), 0u) << parsed.error();
      continue;
    }
    const Status status = VerifyGraph(*parsed);
    EXPECT_EQ(status.ok(), status.message().empty());
    EXPECT_EQ(FormatGraph(*ParseGraph(FormatGraph(*parsed))), FormatGraph(*parsed));
  }
}

}  // namespace
}  // namespace meshwright::ir
