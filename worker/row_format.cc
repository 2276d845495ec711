#include "worker/row_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <span>
#include <string>

#include "base/check.h"
#include "data/convert.h"

namespace meshwright::worker {

RowFormat::RowFormat(const ir::DataStream& stream, int64_t sequence, int64_t vocabulary)
    : stream_(stream), vocabulary_(vocabulary) {
  const int64_t items = stream.kind == ir::DataKind::kTokens ? sequence + 1 : 1;
  for (const ir::DataField& field : stream.fields) {
    fields_.push_back({field, field.item_bytes() * items});
  }
}

Result<size_t> RowFormat::FieldOf(const ir::FeedName& feed) const {
  if (feed.field.empty() && fields_.size() == 1) return 0;
  std::vector<std::string> known;
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (fields_[i].field.name == feed.field) return i;
    known.push_back(fields_[i].field.name);
  }
  return Fail(InvalidArgument(fmt::format("stream '{}' has no field '{}'; known: {}", stream_.name,
                                          feed.field, fmt::join(known, ", "))));
}

Status RowFormat::Check(int64_t count, const actor::Rows& rows) const {
  bool fits = rows.fields.size() == fields_.size();
  std::vector<std::string> wanted;
  std::vector<size_t> found;
  for (size_t i = 0; i < fields_.size(); ++i) {
    const auto bytes = static_cast<size_t>(fields_[i].row_bytes * count);
    wanted.push_back(fmt::format("{} of '{}'", bytes, fields_[i].field.name));
    fits = fits && rows.fields[i].size() == bytes;
  }
  if (fits) return OkStatus();
  for (const std::string& field : rows.fields) found.push_back(field.size());
  return InvalidArgument(fmt::format("the actor '{}' answered [{}] bytes; {} rows have {}",
                                     stream_.actor.type, fmt::join(found, ", "), count,
                                     fmt::join(wanted, ", ")));
}

Status RowFormat::Read(const actor::Rows& rows, size_t index, int64_t at,
                       const data::RowBuffer& row) const {
  const Field& field = fields_.at(index);
  const auto size = static_cast<size_t>(field.row_bytes);
  const auto begin = static_cast<size_t>(at) * size;
  MW_CHECK(at >= 0 && begin + size <= rows.fields.at(index).size())
      << "row " << at << " of " << rows.fields.at(index).size() << " bytes";
  const bool tokens = stream_.kind == ir::DataKind::kTokens;
  const ir::Element element = field.field.element;
  const int64_t elements = field.row_bytes / ir::ElementBytes(element);
  const bool readable = tokens ? row.dtype == ir::DType::kI32 : ir::ReadableAs(element, row.dtype);
  if (!readable || row.bytes.size() != static_cast<size_t>(elements * ir::DTypeBytes(row.dtype))) {
    return InvalidArgument(
        fmt::format("feed '{}/{}': a row of {} bytes of {}; a sample is {} elements of {}",
                    stream_.name, field.field.name, row.bytes.size(), ir::DTypeName(row.dtype),
                    elements, ir::ElementName(element)));
  }
  const std::span<const char> bytes(rows.fields[index].data() + begin, size);
  const int64_t misfit =
      data::ConvertElements(element, std::as_bytes(bytes), row.dtype, row.bytes.data());
  if (misfit >= 0) {
    return InvalidArgument(fmt::format("a value of {} does not fit {}: element {} of a row of '{}'",
                                       ir::ElementName(element), ir::DTypeName(row.dtype), misfit,
                                       field.field.name));
  }
  return tokens && vocabulary_ > 0 ? CheckTokens(row) : OkStatus();
}

Status RowFormat::CheckTokens(const data::RowBuffer& row) const {
  for (size_t at = 0; at < row.bytes.size(); at += sizeof(int32_t)) {
    int32_t token = 0;
    std::memcpy(&token, row.bytes.data() + at, sizeof token);
    if (token >= 0 && token < vocabulary_) continue;
    return InvalidArgument(fmt::format("token {} of actor '{}' is outside the vocabulary of {}",
                                       token, stream_.actor.type, vocabulary_));
  }
  return OkStatus();
}

}  // namespace meshwright::worker
