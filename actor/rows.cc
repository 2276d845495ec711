#include "actor/rows.h"

#include <fmt/format.h>

namespace meshwright::actor {
namespace {

constexpr size_t kAskedBytes = 4 * 8 + 1;

void Put(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// REQUIRES 8 bytes.
uint64_t Take(std::string_view& in) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(in[static_cast<size_t>(i)])) << (8 * i);
  }
  in.remove_prefix(8);
  return value;
}

std::string EncodeAsked(const RowsAsked& asked) {
  std::string out;
  Put(out, asked.seed);
  Put(out, static_cast<uint64_t>(asked.step));
  Put(out, static_cast<uint64_t>(asked.first_row));
  Put(out, static_cast<uint64_t>(asked.count));
  out.push_back(asked.validation ? '\1' : '\0');
  return out;
}

Result<RowsAsked> DecodeAsked(std::string_view bytes) {
  if (bytes.size() != kAskedBytes) {
    return Fail(InvalidArgument(
        fmt::format("a question for rows has {} bytes instead of {}", bytes.size(), kAskedBytes)));
  }
  RowsAsked asked;
  asked.seed = Take(bytes);
  asked.step = static_cast<int64_t>(Take(bytes));
  asked.first_row = static_cast<int64_t>(Take(bytes));
  asked.count = static_cast<int64_t>(Take(bytes));
  asked.validation = bytes[0] != '\0';
  return asked;
}

// Each field with its length in front.
std::string EncodeRows(const Rows& rows) {
  std::string out;
  for (const std::string& field : rows.fields) {
    Put(out, field.size());
    out += field;
  }
  return out;
}

Result<Rows> DecodeRows(std::string_view bytes) {
  Rows rows;
  while (!bytes.empty()) {
    if (bytes.size() < 8) return Fail(InvalidArgument("rows end inside a length"));
    const uint64_t length = Take(bytes);
    if (length > bytes.size()) {
      return Fail(InvalidArgument(
          fmt::format("rows end inside a field of {} bytes, {} are there", length, bytes.size())));
    }
    rows.fields.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return rows;
}

}  // namespace

MessageCodec<RowsAsked> RowsCodec() {
  return {{EncodeAsked, DecodeAsked}, {EncodeRows, DecodeRows}};
}

}  // namespace meshwright::actor
