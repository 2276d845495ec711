// Rows of models by formula, here and in tools/hf_check: nothing large is stored for
// them.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace meshwright::testing {

inline constexpr int64_t kTruthRows = 2;
inline constexpr int64_t kTruthTokens = 8;
inline constexpr int64_t kTruthSteps = 20;
inline constexpr int64_t kTruthBatch = 4;
inline constexpr int64_t kTruthVocabulary = 32;
inline constexpr int64_t kTruthTargetTokens = 6;
inline constexpr int64_t kTruthLabels = 3;
inline constexpr int64_t kTruthColours = 256;

inline int32_t TruthToken(int64_t row, int64_t place) {
  return static_cast<int32_t>((row * 31 + place * place * 7 + place * (3 + row) + 5) %
                              kTruthVocabulary);
}

// Of a row of `tokens` tokens that are no padding, which is 0, but for the last ones.
inline int32_t TruthText(int64_t row, int64_t place, int64_t tokens, int64_t padding) {
  const int32_t token = static_cast<int32_t>(
      1 + (row * 31 + place * place * 7 + place * (3 + row) + 5) % (kTruthVocabulary - 1));
  return place < tokens - padding ? token : 0;
}

// Row `sample` of an input: a window, or a field of records (tools/hf_check/model_tasks.py).
inline void FillTruthRow(const std::string& source, int64_t sample, std::span<int32_t> row) {
  const auto tokens = static_cast<int64_t>(row.size());
  for (int64_t i = 0; i < tokens; ++i) {
    const int32_t text = TruthText(sample, i, tokens, sample % 3);
    int32_t value = TruthToken(sample, i);
    if (source == "tokens/tokens" || source == "tokens/source") value = text;
    if (source == "tokens/types") value = 2 * i >= tokens && text != 0 ? 1 : 0;
    if (source == "tokens/label") value = static_cast<int32_t>((sample * 7 + 3) / 2 % kTruthLabels);
    if (source == "tokens/pixels") {
      value =
          static_cast<int32_t>((sample * 31 + i * i * 7 + i * (3 + sample) + 5) % kTruthColours);
    }
    if (source == "tokens/target") value = TruthText(sample + 100, i, tokens, sample % 4);
    row[static_cast<size_t>(i)] = value;
  }
}

}  // namespace meshwright::testing
