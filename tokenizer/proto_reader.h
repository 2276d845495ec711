// Fields of a protobuf message, one after the other, from bytes that nobody vouches for.
//
// Only the wire format is known here: number, kind and value of a field. Groups, which nothing that
// is read has, are refused.
//
// Thread rule: one thread. Texts of fields live as long as the bytes.
// Source: Protocol Buffers, "Encoding".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace meshwright::tokenizer {

enum class WireKind : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct ProtoField {
  uint32_t number = 0;
  WireKind kind = WireKind::kVarint;
  uint64_t value = 0;      // of a varint or a fixed one
  std::string_view bytes;  // of kBytes: a text, or a message within
  size_t at = 0;           // where the field begins in the file
  size_t bytes_at = 0;     // and where `bytes` does

  bool Is(uint32_t wanted, WireKind wanted_kind) const {
    return number == wanted && kind == wanted_kind;
  }
  float AsFloat() const;  // REQUIRES: kFixed32
};

class ProtoReader {
 public:
  // base: where `bytes` begin in the file, for errors.
  explicit ProtoReader(std::string_view bytes, size_t base = 0) : bytes_(bytes), base_(base) {}

  bool done() const { return at_ == bytes_.size(); }
  // REQUIRES: !done(). Errors: kInvalidArgument, with the byte.
  Result<ProtoField> Next();

 private:
  Result<uint64_t> Varint();
  Result<uint64_t> Fixed(size_t bytes);
  Status Wrong(std::string_view what) const;

  std::string_view bytes_;
  size_t base_ = 0;
  size_t at_ = 0;
};

}  // namespace meshwright::tokenizer
