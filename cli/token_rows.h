// Documents become rows of one length: what a job trains on whose rows are whole documents.
//
// A row has the tokens that a model sees, and for each of them the label, the document that it is
// of and its position there. Of a document of n tokens the first n - 1 are seen and the last n - 1
// are labels; one that is longer than a row goes on in further rows, as documents of their own, and
// loses no label. Labels that are not to be learned, and those of the padding behind the last
// document, are kNotLearned. A piece without a label that is learned is left out.
//
// packed: several documents share a row. Each goes, in their order, to the row with the least room
// that is enough (best fit): no document is cut that fits into a row. Source: Ding et al., "Fewer
// Truncations Improve Language Modeling", ICML'24, without the sort by length, so that rows come in
// the order of their documents. Else a row is a document, and segments and positions say nothing.
//
// Thread rule: one thread per packer.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/documents.h"

namespace meshwright::cli {

// As Builder::CrossEntropy leaves labels out.
inline constexpr int32_t kNotLearned = -100;

struct RowShape {
  int64_t tokens = 1;
  bool packed = true;
  bool words = false;  // where the word of each token begins, too
};

class RowPacker {
 public:
  // goes_on: of each id, whether it goes on with the word before it; of shape.words only. REQUIRES:
  // shape.tokens >= 1.
  explicit RowPacker(const RowShape& shape, std::vector<bool> goes_on = {});

  void Add(const Document& document);
  int64_t rows() const { return static_cast<int64_t>(used_.size()); }

  // Ends each row with padding, which is a document of its own.
  void Pad();
  // A safetensors file with i32[rows, tokens]: "tokens", "labels" and, packed, "segments" and
  // "positions", and "words". REQUIRES: Pad() was called, rows() > 0. Errors: those of writing.
  Status Write(const std::string& path) const;

  const std::vector<int32_t>& tokens() const { return tokens_; }
  const std::vector<int32_t>& labels() const { return labels_; }
  const std::vector<int32_t>& segments() const { return segments_; }
  const std::vector<int32_t>& positions() const { return positions_; }
  // Padding is one word for each token.
  const std::vector<int32_t>& words() const { return words_; }

 private:
  // ids [begin, begin + count + 1) of the document: count inputs and their labels.
  void AddPiece(const Document& document, size_t begin, size_t count);
  size_t RowFor(size_t count);

  const RowShape shape_;
  const std::vector<bool> goes_on_;
  // Per row and token.
  std::vector<int32_t> tokens_, labels_, segments_, positions_, words_;
  std::vector<size_t> used_;                       // tokens of each row
  std::vector<int32_t> documents_;                 // of each row
  std::set<std::pair<size_t, size_t>> with_room_;  // room, row
};

}  // namespace meshwright::cli
