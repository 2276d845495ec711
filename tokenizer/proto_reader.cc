#include "tokenizer/proto_reader.h"

#include <fmt/format.h>

#include <bit>

#include "base/check.h"

namespace meshwright::tokenizer {

float ProtoField::AsFloat() const {
  MW_CHECK(kind == WireKind::kFixed32);
  return std::bit_cast<float>(static_cast<uint32_t>(value));
}

Status ProtoReader::Wrong(std::string_view what) const {
  return InvalidArgument(fmt::format("byte {}: {}", base_ + at_, what));
}

Result<uint64_t> ProtoReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (done()) return Fail(Wrong("the file ends within a number"));
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return Fail(Wrong("a number has more than 10 bytes"));
}

Result<uint64_t> ProtoReader::Fixed(size_t bytes) {
  if (bytes_.size() - at_ < bytes) return Fail(Wrong("the file ends within a number"));
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes_[at_ + i])} << (8 * i);
  }
  at_ += bytes;
  return value;
}

Result<ProtoField> ProtoReader::Next() {
  MW_CHECK(!done());
  ProtoField field;
  field.at = base_ + at_;
  MW_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
  if (tag >> 3 == 0 || tag >> 32 != 0) return Fail(Wrong("no field has this number"));
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0: {
      MW_ASSIGN_OR_RETURN(field.value, Varint());
      break;
    }
    case 1: {
      MW_ASSIGN_OR_RETURN(field.value, Fixed(8));
      break;
    }
    case 5: {
      MW_ASSIGN_OR_RETURN(field.value, Fixed(4));
      break;
    }
    case 2: {
      MW_ASSIGN_OR_RETURN(const uint64_t length, Varint());
      if (length > bytes_.size() - at_) {
        return Fail(Wrong(fmt::format("field {} has {} bytes; {} are left", field.number, length,
                                      bytes_.size() - at_)));
      }
      field.bytes_at = base_ + at_;
      field.bytes = bytes_.substr(at_, length);
      at_ += length;
      break;
    }
    default:
      return Fail(Wrong(fmt::format("field {} is of wire type {}", field.number, tag & 7)));
  }
  field.kind = static_cast<WireKind>(tag & 7);
  return field;
}

}  // namespace meshwright::tokenizer
