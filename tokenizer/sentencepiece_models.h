// The two models of SentencePiece, as its own library executes them.
//
// They differ from those of tokenizer.json: sums of scores are floats, merges are judged by the
// score of what they make, user-defined pieces are cut out first, unused ones are taken apart
// again.
//
// Thread rule: immutable; any thread.
#pragma once

#include <memory>

#include "tokenizer/model.h"
#include "tokenizer/sentencepiece_normalizer.h"

namespace meshwright::tokenizer {

// normalizer: of the same file.
std::shared_ptr<const Model> MakeSentencePieceModel(
    std::shared_ptr<const SentencePieceFile> file,
    std::shared_ptr<const SentencePieceNormalizer> normalizer);

}  // namespace meshwright::tokenizer
