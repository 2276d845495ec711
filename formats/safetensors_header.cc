#include "formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "formats/safetensors.h"

namespace meshwright::formats {
namespace internal {
namespace {
// Ascending order of the format's enum; the writer sorts by it, descending.
constexpr std::array<FileDType, 22> kDTypes = {{
    {"BOOL", 8, ir::DType::kBool},    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},     {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, std::nullopt},          {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},        {"F16", 16, ir::DType::kF16},
    {"BF16", 16, ir::DType::kBF16},   {"I32", 32, ir::DType::kI32},
    {"U32", 32, std::nullopt},        {"F32", 32, ir::DType::kF32},
    {"C64", 64, std::nullopt},        {"F64", 64, ir::DType::kF64},
    {"I64", 64, ir::DType::kI64},     {"U64", 64, std::nullopt},
}};
}  // namespace

const FileDType* FindFileDType(std::string_view name) {
  const auto it = std::find_if(kDTypes.begin(), kDTypes.end(),
                               [&](const FileDType& known) { return known.name == name; });
  return it == kDTypes.end() ? nullptr : &*it;
}

const FileDType& FileDTypeOf(ir::DType dtype) {
  const auto it = std::find_if(kDTypes.begin(), kDTypes.end(),
                               [&](const FileDType& known) { return known.dtype == dtype; });
  MW_CHECK(it != kDTypes.end()) << "dtype without a file type: " << ir::DTypeName(dtype);
  return *it;
}

}  // namespace internal

namespace {

using internal::FileDType;
using nlohmann::json;

// SAX handler of the header: depth 1 names tensors, depth 2 their fields, depth 3 the arrays. SAX
// rather than a tree because a header may be 100 MB, and because a tree silently drops duplicate
// keys. Unknown fields are skipped, as upstream does.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  explicit HeaderHandler(SafetensorsHeader& header) : header_(header) {}
  const std::string& error() const { return error_; }

  bool key(string_t& key) override {
    if (skipped_depth_ > 0) return true;
    if (depth_ == 1) return StartTensor(key);
    if (in_metadata_) {
      metadata_key_ = key;
      return header_.metadata.count(key) == 0 ||
             Error(fmt::format("duplicate metadata key '{}'", key));
    }
    if (!fields_.insert(key).second) {
      return Error(fmt::format("tensor '{}' has field '{}' twice", entry_.name, key));
    }
    field_ = key == "dtype"          ? Field::kDType
             : key == "shape"        ? Field::kShape
             : key == "data_offsets" ? Field::kOffsets
                                     : Field::kUnknown;
    return true;
  }

  bool start_object(size_t) override {
    if (Skipping()) return ++skipped_depth_, true;
    ++depth_;
    return depth_ <= 2 || Unexpected("object");
  }
  bool end_object() override {
    if (skipped_depth_ > 0) return --skipped_depth_, true;
    if (--depth_ != 1) return true;
    MW_CHECK(skipped_depth_ == 0) << "a tensor ends inside of a field";
    if (in_metadata_) return in_metadata_ = false, true;
    return FinishTensor();
  }
  bool start_array(size_t) override {
    if (Skipping()) return ++skipped_depth_, true;
    if (depth_ != 2 || in_metadata_ || field_ == Field::kDType) return Unexpected("array");
    ++depth_;
    return true;
  }
  bool end_array() override {
    if (skipped_depth_ > 0) return --skipped_depth_, true;
    --depth_;
    return true;
  }
  bool string(string_t& value) override {
    if (Skipping()) return true;
    if (depth_ == 2 && in_metadata_) {
      header_.metadata.emplace(metadata_key_, value);
      return true;
    }
    if (depth_ != 2 || field_ != Field::kDType) return Unexpected("string");
    entry_.dtype_name = value;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (Skipping()) return true;
    if (depth_ != 3 || value > INT64_MAX) return Unexpected("number");
    (field_ == Field::kShape ? entry_.shape : offsets_).push_back(static_cast<int64_t>(value));
    return true;
  }
  bool number_integer(number_integer_t) override {
    return Skipping() || Unexpected("negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return Skipping() || Unexpected("fractional number");
  }
  bool null() override { return Skipping() || Unexpected("null"); }
  bool boolean(bool) override { return Skipping() || Unexpected("boolean"); }
  bool binary(binary_t&) override { return Unexpected("binary"); }
  bool parse_error(size_t position, const std::string&, const json::exception& e) override {
    return Error(fmt::format("the header is not JSON at byte {}: {}", position, e.what()));
  }

 private:
  enum class Field : uint8_t { kDType, kShape, kOffsets, kUnknown };

  bool Skipping() const {
    return skipped_depth_ > 0 || (depth_ == 2 && !in_metadata_ && field_ == Field::kUnknown);
  }
  bool Error(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  bool Unexpected(const char* what) {
    return Error(
        fmt::format("unexpected {} in the header{}", what,
                    entry_.name.empty() ? "" : fmt::format(" at tensor '{}'", entry_.name)));
  }
  bool StartTensor(const std::string& name) {
    if (!names_.insert(name).second) return Error(fmt::format("the name '{}' appears twice", name));
    in_metadata_ = name == "__metadata__";
    entry_ = {};
    entry_.name = name;
    fields_.clear();
    offsets_.clear();
    field_ = Field::kUnknown;
    return true;
  }
  bool FinishTensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (fields_.count(field) == 0) {
        return Error(fmt::format("tensor '{}' has no field '{}'", entry_.name, field));
      }
    }
    if (offsets_.size() != 2) {
      return Error(fmt::format("tensor '{}': data_offsets needs two numbers", entry_.name));
    }
    entry_.begin_bytes = offsets_[0];
    entry_.end_bytes = offsets_[1];
    header_.entries.push_back(std::move(entry_));
    entry_ = {};
    return true;
  }

  SafetensorsHeader& header_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  std::set<std::string> names_;
  std::set<std::string> fields_;
  std::string metadata_key_;
  std::string error_;
  Field field_ = Field::kUnknown;
  bool in_metadata_ = false;
  int depth_ = 0;
  int skipped_depth_ = 0;
};

// Bytes that dtype and shape ask for. Errors: kInvalidArgument on overflow or a fraction of a byte.
Result<int64_t> SizeBytes(const SafetensorsEntry& entry, const FileDType& dtype) {
  int64_t bits = dtype.bits;
  for (int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bits, dim, &bits)) {
      return Fail(InvalidArgument(fmt::format("tensor '{}': shape [{}] overflows", entry.name,
                                              fmt::join(entry.shape, ","))));
    }
  }
  if (bits % 8 != 0) {
    return Fail(
        InvalidArgument(fmt::format("tensor '{}': {} bits are not whole bytes", entry.name, bits)));
  }
  return bits / 8;
}

Status CheckEntries(SafetensorsHeader& header, int64_t data_bytes) {
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin_bytes, a.end_bytes) < std::pair(b.begin_bytes, b.end_bytes);
  });
  int64_t position = 0;
  for (SafetensorsEntry& entry : header.entries) {
    const FileDType* dtype = internal::FindFileDType(entry.dtype_name);
    if (dtype == nullptr) {
      return InvalidArgument(
          fmt::format("tensor '{}': unknown dtype '{}'", entry.name, entry.dtype_name));
    }
    entry.dtype = dtype->dtype;
    if (entry.begin_bytes != position || entry.end_bytes < entry.begin_bytes) {
      return InvalidArgument(fmt::format(
          "tensor '{}' has data_offsets [{},{}]; the bytes before it end at {}: gap, overlap "
          "or reversed offsets",
          entry.name, entry.begin_bytes, entry.end_bytes, position));
    }
    MW_ASSIGN_OR_RETURN(const int64_t bytes, SizeBytes(entry, *dtype));
    if (entry.end_bytes - entry.begin_bytes != bytes) {
      return InvalidArgument(
          fmt::format("tensor '{}' of {}[{}] takes {} bytes, data_offsets give {}", entry.name,
                      entry.dtype_name, fmt::join(entry.shape, ","), bytes,
                      entry.end_bytes - entry.begin_bytes));
    }
    position = entry.end_bytes;
  }
  if (position != data_bytes) {
    return InvalidArgument(
        fmt::format("the tensors end at byte {} of {} data bytes: the file is {}", position,
                    data_bytes, position > data_bytes ? "truncated" : "longer than it says"));
  }
  return OkStatus();
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> prefix,
                                                 int64_t file_bytes) {
  if (file_bytes < 8 || prefix.size() < 8) {
    return Fail(
        InvalidArgument(fmt::format("{} bytes are too few for a safetensors file", file_bytes)));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, prefix.data(), 8);
  if (header_bytes > static_cast<uint64_t>(internal::kMaxHeaderBytes)) {
    return Fail(InvalidArgument(fmt::format("the header says {} bytes; at most {} are allowed",
                                            header_bytes, internal::kMaxHeaderBytes)));
  }
  if (header_bytes > static_cast<uint64_t>(file_bytes - 8) || header_bytes > prefix.size() - 8) {
    return Fail(
        InvalidArgument(fmt::format("the header says {} bytes; the file has {} after its length",
                                    header_bytes, file_bytes - 8)));
  }
  const auto* begin = reinterpret_cast<const char*>(prefix.data()) + 8;
  if (header_bytes == 0 || *begin != '{') {
    return Fail(InvalidArgument("the header does not start with '{'"));
  }
  SafetensorsHeader header;
  header.data_begin_bytes = 8 + static_cast<int64_t>(header_bytes);
  HeaderHandler handler(header);
  if (!json::sax_parse(begin, begin + header_bytes, &handler)) {
    return Fail(InvalidArgument(handler.error()));
  }
  MW_TRY(CheckEntries(header, file_bytes - header.data_begin_bytes));
  return header;
}

namespace {

// A JSON string, or nothing when the name is not UTF-8 (then the replaced text does not read back).
std::optional<std::string> Quote(const std::string& name) {
  std::string text = json(name).dump(-1, ' ', false, json::error_handler_t::replace);
  const json back = json::parse(text, nullptr, false);
  if (back.is_discarded() || back.get_ref<const std::string&>() != name) return std::nullopt;
  return text;
}

Result<SafetensorsHeader> LayOut(const std::vector<TensorSpec>& tensors) {
  std::vector<std::pair<const FileDType*, const TensorSpec*>> sorted;
  std::set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return Fail(InvalidArgument(fmt::format(
          "tensor name '{}' is used twice or reserved; export names must be unique", tensor.name)));
    }
    sorted.emplace_back(&internal::FileDTypeOf(tensor.type.dtype), &tensor);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->name < b.second->name;
  });
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  int64_t position = 0;
  for (const auto& [dtype, tensor] : sorted) {
    const int64_t end = position + tensor->type.bytes();
    header.entries.push_back({tensor->name, std::string(dtype->name), tensor->type.dtype,
                              tensor->type.dims, position, end});
    position = end;
  }
  return header;
}

}  // namespace

Result<EncodedHeader> EncodeSafetensorsHeader(const std::vector<TensorSpec>& tensors,
                                              const std::map<std::string, std::string>& metadata) {
  EncodedHeader encoded;
  MW_ASSIGN_OR_RETURN(encoded.header, LayOut(tensors));
  encoded.header.metadata.insert(metadata.begin(), metadata.end());
  std::string text = R"({"__metadata__":{)";
  for (const auto& [key, value] : encoded.header.metadata) {
    const auto quoted_key = Quote(key), quoted_value = Quote(value);
    if (!quoted_key || !quoted_value) return Fail(InvalidArgument("the metadata is not UTF-8"));
    text += fmt::format("{}{}:{}", text.back() == '{' ? "" : ",", *quoted_key, *quoted_value);
  }
  text += '}';
  for (const SafetensorsEntry& entry : encoded.header.entries) {
    const std::optional<std::string> name = Quote(entry.name);
    if (!name) return Fail(InvalidArgument("a tensor name is not UTF-8"));
    text += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", *name,
                        entry.dtype_name, fmt::join(entry.shape, ","), entry.begin_bytes,
                        entry.end_bytes);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<int64_t>(text.size()) > internal::kMaxHeaderBytes) {
    return Fail(
        InvalidArgument(fmt::format("{} tensors need a header of {} bytes; the limit is {}",
                                    tensors.size(), text.size(), internal::kMaxHeaderBytes)));
  }
  const uint64_t header_bytes = text.size();
  encoded.bytes.resize(8);
  std::memcpy(encoded.bytes.data(), &header_bytes, 8);
  encoded.bytes += text;
  encoded.header.data_begin_bytes = static_cast<int64_t>(encoded.bytes.size());
  return encoded;
}

}  // namespace meshwright::formats
