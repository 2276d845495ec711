// Executes a tokenizer.model of SentencePiece.
//
// Thread rule: immutable; any thread.
#pragma once

#include <memory>
#include <string_view>

#include "tokenizer/engine.h"
#include "tokenizer/sentencepiece_folder.h"

namespace meshwright::tokenizer {

// Errors: those of ParseSentencePiece; kInvalidArgument where what stands around it names tokens
// that it has not.
Result<std::shared_ptr<const Tokenizer::Engine>> MakeSentencePieceEngine(
    std::string_view model, const AroundSentencePiece& around);

}  // namespace meshwright::tokenizer
