#include "bench/encode_case.h"

#include <chrono>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/median.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = 16 << 10;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Whole lines, their ends included.
std::vector<std::string_view> PiecesOf(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t end =
        text.size() <= kPieceBytes ? std::string_view::npos : text.find('\n', kPieceBytes);
    const size_t count = end == std::string_view::npos ? text.size() : end + 1;
    pieces.push_back(text.substr(0, count));
    text.remove_prefix(count);
  }
  return pieces;
}

}  // namespace

Result<EncodeCase> RunEncodeCase(const std::string& tokenizer, const std::string& text,
                                 int rounds) {
  EncodeCase result;
  MW_ASSIGN_OR_RETURN(const std::string all, ReadFile(text));
  std::vector<double> loads, rates;
  for (int round = 0; round < rounds; ++round) {
    const Clock::time_point begin = Clock::now();
    MW_ASSIGN_OR_RETURN(const tokenizer::Tokenizer loaded, tokenizer::Tokenizer::Load(tokenizer));
    loads.push_back(Since(begin));
    result.tokens = 0;
    const Clock::time_point encode_begin = Clock::now();
    for (const std::string_view piece : PiecesOf(all)) {
      MW_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, loaded.Encode(piece));
      result.tokens += static_cast<int64_t>(ids.size());
    }
    rates.push_back(static_cast<double>(all.size()) / Since(encode_begin));
  }
  result.load_seconds = Median(loads);
  result.bytes_per_s = Median(rates);
  return result;
}

}  // namespace meshwright::bench
