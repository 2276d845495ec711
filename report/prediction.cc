#include "report/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace meshwright::report {
namespace {

double LogSumExp(const double* row, int64_t size) {
  MW_CHECK(size > 0) << "the logits of no token";
  const double most = *std::max_element(row, row + size);
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += std::exp(row[i] - most);
  return most + std::log(sum);
}

std::vector<Likely> Best(const double* row, int64_t size, int top) {
  const double total = LogSumExp(row, size);
  std::vector<int32_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  const auto wanted = static_cast<std::ptrdiff_t>(std::min<int64_t>(std::max(top, 0), size));
  std::partial_sort(order.begin(), order.begin() + wanted, order.end(), [&](int32_t a, int32_t b) {
    return row[a] != row[b] ? row[a] > row[b] : a < b;
  });
  std::vector<Likely> best;
  for (std::ptrdiff_t i = 0; i < wanted; ++i) {
    const int32_t id = order[static_cast<size_t>(i)];
    best.push_back({id, std::exp(row[id] - total)});
  }
  return best;
}

}  // namespace

std::vector<Likely> Likeliest(const std::vector<double>& logits, int top) {
  return Best(logits.data(), static_cast<int64_t>(logits.size()), top);
}

Prediction Predict(const std::vector<int32_t>& tokens, const std::vector<double>& logits,
                   int64_t vocabulary, int top) {
  const auto count = static_cast<int64_t>(tokens.size());
  MW_CHECK(count >= 1 && vocabulary >= 1);
  MW_CHECK(static_cast<int64_t>(logits.size()) >= count * vocabulary);
  Prediction prediction;
  prediction.predicted = count - 1;
  double sum = 0;
  for (int64_t i = 0; i + 1 < count; ++i) {
    const double* const row = logits.data() + i * vocabulary;
    MW_CHECK(tokens[static_cast<size_t>(i + 1)] >= 0 &&
             tokens[static_cast<size_t>(i + 1)] < vocabulary)
        << "token " << tokens[static_cast<size_t>(i + 1)] << " of a vocabulary of " << vocabulary;
    sum += LogSumExp(row, vocabulary) - row[tokens[static_cast<size_t>(i + 1)]];
  }
  prediction.loss = prediction.predicted > 0 ? sum / static_cast<double>(prediction.predicted)
                                             : std::numeric_limits<double>::quiet_NaN();
  prediction.next = Best(logits.data() + (count - 1) * vocabulary, vocabulary, top);
  return prediction;
}

std::string ByteText(int32_t byte) {
  switch (byte) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
    default:
      break;
  }
  if (byte >= 0x20 && byte < 0x7f) return std::string(1, static_cast<char>(byte));
  return fmt::format("\\x{:02x}", byte);
}

Result<std::vector<int32_t>> ParseTokens(const std::string& text) {
  std::vector<int32_t> tokens;
  for (const std::string& field : Split(text, ',')) {
    const std::string_view digits = Trim(field);
    int32_t token = 0;
    const char* const end = digits.data() + digits.size();
    const auto [at, error] = std::from_chars(digits.data(), end, token);
    if (error != std::errc() || at != end || token < 0) {
      return Fail(InvalidArgument(
          fmt::format("'{}' is no token; write numbers from 0 as in \"12,7,300\"", field)));
    }
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace meshwright::report
