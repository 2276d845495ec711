#include "tokenizer/sentencepiece_file.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "tokenizer/proto_reader.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

namespace meshwright::tokenizer {
namespace {

constexpr int64_t kWordModel = 3;
constexpr int64_t kCharacterModel = 4;

// Calls body for each field of a message.
template <typename Body>
Status ForEachField(std::string_view bytes, size_t base, Body body) {
  ProtoReader reader(bytes, base);
  while (!reader.done()) {
    MW_ASSIGN_OR_RETURN(const ProtoField field, reader.Next());
    MW_TRY(body(field));
  }
  return OkStatus();
}

Status ReadPiece(const ProtoField& message, SentencePiece& piece) {
  MW_TRY(ForEachField(message.bytes, message.bytes_at, [&](const ProtoField& field) -> Status {
    if (field.Is(1, WireKind::kBytes)) piece.text = std::string(field.bytes);
    if (field.Is(2, WireKind::kFixed32)) piece.score = field.AsFloat();
    if (field.Is(3, WireKind::kVarint)) {
      if (field.value < 1 || field.value > 6) {
        return InvalidArgument(fmt::format("byte {}: its type is {}", field.at, field.value));
      }
      piece.kind = static_cast<PieceKind>(field.value);
    }
    return OkStatus();
  }));
  if (piece.text.empty()) return InvalidArgument("its text is empty");
  if (const size_t wrong = FindInvalidUtf8(piece.text); wrong != piece.text.size()) {
    return InvalidArgument(fmt::format("its text is not UTF-8 at byte {}", wrong));
  }
  if (!std::isfinite(piece.score)) return InvalidArgument("its score is no number");
  return OkStatus();
}

Status ReadTrainer(const ProtoField& message, SentencePieceFile& file) {
  return ForEachField(message.bytes, message.bytes_at, [&](const ProtoField& field) -> Status {
    if (field.Is(3, WireKind::kVarint)) {
      if (field.value == kWordModel || field.value == kCharacterModel) {
        return Unimplemented(fmt::format(
            "trainer_spec.model_type is {}; of SentencePiece's models UNIGRAM and BPE are executed",
            field.value == kWordModel ? "WORD" : "CHAR"));
      }
      if (field.value != 1 && field.value != 2) {
        return InvalidArgument(fmt::format("trainer_spec.model_type is {}", field.value));
      }
      file.model = static_cast<SentencePieceModel>(field.value);
    }
    if (field.Is(24, WireKind::kVarint) && field.value != 0) {
      return Unimplemented(
          "trainer_spec.treat_whitespace_as_suffix is true; spaces before words are executed only");
    }
    if (field.Is(35, WireKind::kVarint)) file.byte_fallback = field.value != 0;
    if (field.Is(44, WireKind::kBytes)) file.unknown_text = std::string(field.bytes);
    if (field.Is(46, WireKind::kBytes)) file.begin = std::string(field.bytes);
    if (field.Is(47, WireKind::kBytes)) file.end = std::string(field.bytes);
    return OkStatus();
  });
}

Status ReadNormalizer(const ProtoField& message, SentencePieceFile& file) {
  return ForEachField(message.bytes, message.bytes_at, [&](const ProtoField& field) -> Status {
    if (field.Is(2, WireKind::kBytes)) {
      file.replacements = ReplacementTable::Parse(field.bytes);
      if (!file.replacements && !field.bytes.empty()) {
        return InvalidArgument(fmt::format(
            "byte {}: normalizer_spec.precompiled_charsmap is no table of SentencePiece",
            field.at));
      }
    }
    if (field.Is(3, WireKind::kVarint)) file.add_dummy_prefix = field.value != 0;
    if (field.Is(4, WireKind::kVarint)) file.remove_extra_whitespaces = field.value != 0;
    if (field.Is(5, WireKind::kVarint)) file.escape_whitespaces = field.value != 0;
    return OkStatus();
  });
}

Status CheckDenormalizer(const ProtoField& message) {
  return ForEachField(message.bytes, message.bytes_at, [&](const ProtoField& field) -> Status {
    if (!field.Is(2, WireKind::kBytes) || field.bytes.empty()) return OkStatus();
    return Unimplemented("denormalizer_spec has a table of replacements, which is not executed");
  });
}

// What holds between pieces.
Status CheckPieces(SentencePieceFile& file) {
  std::set<std::string_view> seen;
  std::set<uint8_t> bytes;
  std::optional<uint32_t> unknown;
  for (uint32_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    const auto wrong = [&](std::string_view what) {
      return InvalidArgument(fmt::format("piece {} ('{}') {}", id, piece.text, what));
    };
    if (!seen.insert(piece.text).second) return wrong("is there twice");
    if (piece.kind == PieceKind::kUnknown) {
      if (unknown) return wrong(fmt::format("is unknown, and piece {} is", *unknown));
      unknown = id;
    }
    if (piece.kind != PieceKind::kByte) continue;
    const std::optional<uint8_t> byte = ByteOfPiece(piece.text);
    if (!byte) return wrong("is of type BYTE, whose texts are <0x00> to <0xFF>");
    if (!file.byte_fallback) return wrong("is a byte, but trainer_spec.byte_fallback is false");
    bytes.insert(*byte);
  }
  if (!unknown) return InvalidArgument("no piece is of type UNKNOWN");
  file.unknown = *unknown;
  if (file.byte_fallback && bytes.size() != 256) {
    return InvalidArgument(fmt::format(
        "trainer_spec.byte_fallback is true, but {} of 256 bytes have a piece", bytes.size()));
  }
  return OkStatus();
}

}  // namespace

std::optional<uint8_t> ByteOfPiece(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int byte = 0;
  for (const char c : text.substr(3, 2)) {
    if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'F')) return std::nullopt;
    byte = byte * 16 + (c <= '9' ? c - '0' : c - 'A' + 10);
  }
  return static_cast<uint8_t>(byte);
}

bool LooksLikeSentencePiece(std::string_view bytes) {
  // The first field is a piece: number 1, a message of a few bytes that begins with its text.
  return bytes.size() > 2 && bytes[0] == 0x0a && static_cast<unsigned char>(bytes[1]) < 0x80 &&
         bytes[2] == 0x0a;
}

Result<SentencePieceFile> ParseSentencePiece(std::string_view bytes) {
  SentencePieceFile file;
  MW_TRY(ForEachField(bytes, 0, [&](const ProtoField& field) -> Status {
    if (field.kind != WireKind::kBytes) return OkStatus();
    switch (field.number) {
      case 1: {
        if (static_cast<int64_t>(file.pieces.size()) > kMaxTokenId) {
          return InvalidArgument(fmt::format("has more than {} pieces", kMaxTokenId));
        }
        const Status read = ReadPiece(field, file.pieces.emplace_back());
        if (read.ok()) return OkStatus();
        return read.WithContext(
            fmt::format("piece {} (byte {})", file.pieces.size() - 1, field.at));
      }
      case 2:
        return ReadTrainer(field, file);
      case 3:
        return ReadNormalizer(field, file);
      case 5:
        return CheckDenormalizer(field);
      default:
        return OkStatus();
    }
  }));
  MW_TRY(CheckPieces(file));
  return file;
}

}  // namespace meshwright::tokenizer
