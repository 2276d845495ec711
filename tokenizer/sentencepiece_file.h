// A tokenizer.model of SentencePiece, read and checked.
//
// The file is a protobuf message (ModelProto): pieces with scores, how they were learnt, how a text
// is normalised. It is read here by its wire format, since the library that wrote it bundles a
// protobuf of its own.
//
// Thread rule: values. Source: the ModelProto of SentencePiece 0.2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/replacement_table.h"

namespace meshwright::tokenizer {

enum class PieceKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // of no text: <s>, </s>
  kUserDefined = 4,  // cut out of a text whatever its score
  kUnused = 5,       // never made, but what it is merged of is
  kByte = 6,         // <0x0A>
};

struct SentencePiece {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::kNormal;
};

enum class SentencePieceModel : uint8_t { kUnigram = 1, kBpe = 2 };

struct SentencePieceFile {
  std::vector<SentencePiece> pieces;  // by id
  SentencePieceModel model = SentencePieceModel::kUnigram;
  uint32_t unknown = 0;
  bool byte_fallback = false;                   // then all 256 bytes have a piece
  std::string unknown_text = " \xE2\x81\x87 ";  // what an unknown piece is decoded as
  std::string begin = "<s>";
  std::string end = "</s>";

  std::optional<ReplacementTable> replacements;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// The byte that a text like "<0x0A>" stands for.
std::optional<uint8_t> ByteOfPiece(std::string_view text);

// Whether the bytes may be such a file: what they begin with.
bool LooksLikeSentencePiece(std::string_view bytes);

// Errors: kInvalidArgument naming the byte, piece or field that is wrong; kUnimplemented naming
// what is not executed: models of words or characters, spaces behind words, a denormalizer.
Result<SentencePieceFile> ParseSentencePiece(std::string_view bytes);

}  // namespace meshwright::tokenizer
