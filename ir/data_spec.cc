#include "ir/data_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace meshwright::ir {
namespace {

constexpr std::string_view kValidationMark = "validation:";
constexpr size_t kMaxNameBytes = 256;

// Names of streams and fields stand in `source` attributes and messages.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::none_of(name.begin(), name.end(), [](char c) {
           return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == ':' || c == '"';
         });
}

Status CheckSlices(const DataStream& stream, const DataField& field,
                   const std::vector<DataSlice>& slices, int64_t* items) {
  *items = 0;
  for (const DataSlice& slice : slices) {
    const bool known = slice.file >= 0 && static_cast<size_t>(slice.file) < stream.files.size();
    int64_t end = 0;
    const bool fits = known && slice.begin_bytes >= 0 && slice.items >= 0 &&
                      !__builtin_mul_overflow(slice.items, field.item_bytes(), &end) &&
                      !__builtin_add_overflow(end, slice.begin_bytes, &end) &&
                      end <= stream.files[static_cast<size_t>(slice.file)].blob.size_bytes &&
                      !__builtin_add_overflow(*items, slice.items, items);
    if (!fits) {
      return InvalidArgument(
          fmt::format("field {}/{}: {} items of {} bytes from byte {} of file {} leave it",
                      stream.name, field.name, slice.items, field.item_bytes(), slice.begin_bytes,
                      known ? stream.files[static_cast<size_t>(slice.file)].blob.name
                            : std::to_string(slice.file)));
    }
  }
  return OkStatus();
}

// Bytes of an item, checked against overflow.
Status CheckItem(const DataStream& stream, const DataField& field) {
  int64_t bytes = ElementBytes(field.element);
  for (const int64_t dim : field.item) {
    if (dim < 1 || __builtin_mul_overflow(bytes, dim, &bytes)) {
      return InvalidArgument(
          fmt::format("field {}/{}: an item of dims [{}]; dims must be at least "
                      "1 and their product fit in memory",
                      stream.name, field.name, fmt::join(field.item, ",")));
    }
  }
  return OkStatus();
}

// items: of each field. turns: all weights may be 0, of parts that are read one after the other.
Status CheckParts(const DataStream& stream, const std::vector<DataPart>& parts, int64_t items,
                  bool turns) {
  constexpr int64_t kMostWeight = int64_t{1} << 40;
  if (parts.empty()) return OkStatus();
  const bool none_weighs = std::all_of(parts.begin(), parts.end(),
                                       [](const DataPart& part) { return part.weight == 0; });
  const int64_t least = turns && none_weighs ? 0 : 1;
  std::set<std::string_view> names;
  int64_t all = 0;
  for (const DataPart& part : parts) {
    if (!names.insert(part.name).second) {
      return InvalidArgument(fmt::format("stream '{}' has two parts '{}'", stream.name, part.name));
    }
    if (part.items < 0 || part.weight < least || part.weight > kMostWeight ||
        __builtin_add_overflow(all, part.items, &all)) {
      return InvalidArgument(
          fmt::format("stream '{}': part '{}' has {} items and the weight {}; a weight is 1 to {}",
                      stream.name, part.name, part.items, part.weight, kMostWeight));
    }
  }
  if (all == items && stream.actor.empty()) return OkStatus();
  return InvalidArgument(
      fmt::format("stream '{}' has {} items, and its parts have {}", stream.name, items, all));
}

Status CheckFields(const DataStream& stream) {
  std::set<std::string_view> names;
  int64_t items = 0;
  int64_t validation = 0;
  for (const DataField& field : stream.fields) {
    if (!IsPlainName(field.name) || !names.insert(field.name).second) {
      return InvalidArgument(
          fmt::format("stream '{}': field name '{}' is used twice or is none; names have no "
                      "spaces, slashes, colons and quotes",
                      stream.name, field.name));
    }
    MW_TRY(CheckItem(stream, field));
    int64_t own = 0;
    int64_t own_validation = 0;
    MW_TRY(CheckSlices(stream, field, field.slices, &own));
    MW_TRY(CheckSlices(stream, field, field.validation, &own_validation));
    if (names.size() > 1 && (own != items || own_validation != validation)) {
      return InvalidArgument(fmt::format(
          "stream '{}': field '{}' has {} rows, and {} to validate with, field '{}' has {} and {}; "
          "rows of one stream belong together, so all fields need as many",
          stream.name, field.name, own, own_validation, stream.fields[0].name, items, validation));
    }
    items = own;
    validation = own_validation;
  }
  MW_TRY(CheckParts(stream, stream.parts, items, true));
  return CheckParts(stream, stream.validation_parts, validation, false);
}

Status CheckActor(const DataStream& stream) {
  constexpr size_t kMaxArgBytes = 1 << 20;
  constexpr int64_t kDayMs = 86'400'000;
  const ActorSource& actor = stream.actor;
  if (actor.type.size() > kMaxNameBytes || actor.args.size() > kMaxArgBytes) {
    return InvalidArgument(fmt::format(
        "stream '{}': an actor's type of {} bytes and {} bytes of arguments; at most {} and {} go",
        stream.name, actor.type.size(), actor.args.size(), kMaxNameBytes, kMaxArgBytes));
  }
  if (actor.validation_rows < 0 || actor.deadline_ms < 1 || actor.deadline_ms > kDayMs) {
    return InvalidArgument(
        fmt::format("stream '{}': {} validation rows and a deadline of {} ms; rows are at least 0, "
                    "the deadline "
                    "is 1 ms to a day",
                    stream.name, actor.validation_rows, actor.deadline_ms));
  }
  const bool sliced = std::any_of(
      stream.fields.begin(), stream.fields.end(),
      [](const DataField& field) { return !field.slices.empty() || !field.validation.empty(); });
  if (stream.files.empty() && !sliced) return OkStatus();
  return InvalidArgument(
      fmt::format("stream '{}' comes from the actor '{}' and from files; leave one out",
                  stream.name, actor.type));
}

Status CheckStream(const DataStream& stream) {
  if (!IsPlainName(stream.name)) {
    return InvalidArgument(fmt::format(
        "stream name '{}' is empty or has spaces, slashes, colons or quotes", stream.name));
  }
  if (!(stream.validation_fraction >= 0 && stream.validation_fraction <= 0.5)) {
    return InvalidField("data.validation_fraction",
                        fmt::format("is {}; it must be in [0, 0.5]", stream.validation_fraction));
  }
  const bool tokens = stream.kind == DataKind::kTokens;
  if (stream.fields.empty() ||
      (tokens &&
       (stream.fields.size() != 1 || !stream.fields[0].item.empty() ||
        stream.fields[0].element > Element::kI64 || stream.fields[0].element == Element::kBool))) {
    return InvalidArgument(fmt::format(
        "stream '{}': {}", stream.name,
        tokens ? "tokens are one field of plain integers" : "records need at least one field"));
  }
  if (!stream.actor.empty()) MW_TRY(CheckActor(stream));
  for (const FileRef& file : stream.files) {
    if (file.blob.size_bytes < 0) {
      return InvalidArgument(
          fmt::format("file '{}' has {} bytes", file.blob.name, file.blob.size_bytes));
    }
  }
  return CheckFields(stream);
}

std::vector<std::string_view> NamesOf(const std::vector<DataStream>& streams) {
  std::vector<std::string_view> names;
  for (const DataStream& stream : streams) names.push_back(stream.name);
  return names;
}

Result<const DataField*> FieldOf(const DataStream& stream, std::string_view source,
                                 std::string_view name) {
  if (name.empty() && stream.fields.size() == 1) return &stream.fields[0];
  const DataField* field = stream.Find(name);
  if (field != nullptr) return field;
  std::vector<std::string_view> known;
  for (const DataField& each : stream.fields) known.push_back(each.name);
  return Fail(InvalidArgument(fmt::format("feed '{}': stream '{}' has no field '{}'; known: {}",
                                          source, stream.name, name, fmt::join(known, ", "))));
}

}  // namespace

int64_t DataField::item_bytes() const {
  int64_t bytes = ElementBytes(element);
  for (const int64_t dim : item) bytes *= dim;
  return bytes;
}

const DataField* DataStream::Find(std::string_view field) const {
  const auto at = std::find_if(fields.begin(), fields.end(),
                               [&](const DataField& each) { return each.name == field; });
  return at == fields.end() ? nullptr : &*at;
}

Result<std::vector<DataStream>> StreamsOf(const DataSpec& data) {
  if (!data.streams.empty()) return data.streams;
  Element element = Element::kU8;
  if (data.format == "uint16") {
    element = Element::kU16;
  } else if (data.format == "uint32") {
    element = Element::kU32;
  } else if (data.format != "bytes") {
    return Fail(InvalidField("data.format",
                             fmt::format("is '{}'; known: bytes, uint16, uint32", data.format)));
  }
  DataStream stream;
  stream.files = {{.blob = data.blob}};
  stream.validation_fraction = data.validation_fraction;
  const int64_t tokens = data.blob.size_bytes / ElementBytes(element);
  stream.fields = {{std::string(kWindowField), element, {}, {{0, 0, tokens}}, {}}};
  return std::vector<DataStream>{std::move(stream)};
}

Status CheckDataSpec(const DataSpec& data) {
  MW_ASSIGN_OR_RETURN(const std::vector<DataStream> streams, StreamsOf(data));
  std::set<std::string_view> names;
  for (const DataStream& stream : streams) {
    MW_TRY(CheckStream(stream));
    if (!names.insert(stream.name).second) {
      return InvalidArgument(fmt::format("two streams have the name '{}'", stream.name));
    }
  }
  return OkStatus();
}

FeedName ParseFeedName(std::string_view source) {
  FeedName name;
  name.validation = source.substr(0, kValidationMark.size()) == kValidationMark;
  if (name.validation) source.remove_prefix(kValidationMark.size());
  const size_t slash = source.find('/');
  name.stream = source.substr(0, slash);
  if (slash != std::string_view::npos) name.field = source.substr(slash + 1);
  return name;
}

std::string ValidationFeed(std::string_view source) {
  if (ParseFeedName(source).validation) return std::string(source);
  return std::string(kValidationMark) + std::string(source);
}

Status CheckFeed(const std::vector<DataStream>& streams, std::string_view source,
                 const TensorType& type, int64_t sequence) {
  const FeedName name = ParseFeedName(source);
  const auto stream = std::find_if(streams.begin(), streams.end(), [&](const DataStream& each) {
    return each.name == name.stream;
  });
  if (stream == streams.end()) {
    return InvalidArgument(fmt::format("feed '{}': the data has no stream '{}'; known: {}", source,
                                       name.stream, fmt::join(NamesOf(streams), ", ")));
  }
  MW_ASSIGN_OR_RETURN(const DataField* field, FieldOf(*stream, source, name.field));
  Dims wanted = {type.dims.empty() ? 1 : type.dims[0]};
  if (stream->kind == DataKind::kTokens) {
    wanted.push_back(sequence + 1);
    if (type.dtype == DType::kI32 && type.dims == wanted) return OkStatus();
    return InvalidArgument(
        fmt::format("feed '{}' is {}; windows of train.sequence={} tokens need i32[{}]", source,
                    type.ToString(), sequence, fmt::join(wanted, ",")));
  }
  wanted.insert(wanted.end(), field->item.begin(), field->item.end());
  if (type.dims == wanted && ReadableAs(field->element, type.dtype)) return OkStatus();
  return InvalidArgument(fmt::format(
      "feed '{}' is {}; the data has rows of {}[{}], which a feed reads as [{}] of a type that "
      "holds them",
      source, type.ToString(), ElementName(field->element), fmt::join(field->item, ","),
      fmt::join(wanted, ",")));
}

}  // namespace meshwright::ir
