#include "data/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace meshwright::data {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kNpyAlignment = 64;  // of the values

constexpr std::array<std::pair<std::string_view, ir::Element>, 20> kTypes = {{
    {"|b1", ir::Element::kBool}, {"?", ir::Element::kBool},   {"|u1", ir::Element::kU8},
    {"<u1", ir::Element::kU8},   {"|i1", ir::Element::kI8},   {"<i1", ir::Element::kI8},
    {"<u2", ir::Element::kU16},  {"<i2", ir::Element::kI16},  {"<u4", ir::Element::kU32},
    {"<i4", ir::Element::kI32},  {"<u8", ir::Element::kU64},  {"<i8", ir::Element::kI64},
    {"<f2", ir::Element::kF16},  {"<f4", ir::Element::kF32},  {"<f8", ir::Element::kF64},
    {"|?", ir::Element::kBool},  {"<e", ir::Element::kF16},   {"<f", ir::Element::kF32},
    {"<d", ir::Element::kF64},   {"<b1", ir::Element::kBool},
}};

// Reads the one kind of dict that NumPy writes.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  Status Read() {
    if (!Take('{')) return Broken("a dict");
    while (!Take('}')) {
      std::string_view key;
      if (!TakeText(key) || !Take(':')) return Broken("a key");
      MW_TRY(ReadValue(key));
      if (!Take(',') && Peek() != '}') return Broken("',' or '}'");
    }
    SkipSpaces();
    if (at_ != text_.size()) return Broken("the end");
    if (!descr || !fortran_order || !shape) {
      return InvalidArgument("its header lacks 'descr', 'fortran_order' or 'shape'");
    }
    return OkStatus();
  }

  std::optional<std::string_view> descr;
  std::optional<bool> fortran_order;
  std::optional<ir::Dims> shape;

 private:
  Status Broken(const char* wanted) const {
    return InvalidArgument(
        fmt::format("its header is no dict of NumPy: {} is missing at byte {}", wanted, at_));
  }
  void SkipSpaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char Peek() {
    SkipSpaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char wanted) {
    if (Peek() != wanted) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpaces();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool TakeText(std::string_view& text) {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return false;
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return false;
    text = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  Status ReadValue(std::string_view key) {
    if (key == "descr") {
      std::string_view type;
      if (TakeText(type)) return descr = type, OkStatus();
      return InvalidArgument(
          "it is an array of records ('descr' is no text); write its columns as "
          "arrays of their own");
    }
    if (key == "fortran_order") {
      if (TakeWord("True")) return fortran_order = true, OkStatus();
      if (TakeWord("False")) return fortran_order = false, OkStatus();
      return Broken("True or False");
    }
    if (key == "shape") return ReadShape();
    return InvalidArgument(fmt::format("its header has the unknown key '{}'", key));
  }
  Status ReadShape() {
    if (!Take('(')) return Broken("'('");
    ir::Dims dims;
    while (!Take(')')) {
      SkipSpaces();
      int64_t dim = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) return Broken("a dim");
      at_ = static_cast<size_t>(end - text_.data());
      dims.push_back(dim);
      if (!Take(',') && Peek() != ')') return Broken("',' or ')'");
    }
    shape = std::move(dims);
    return OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
};

struct HeaderText {
  std::string_view text;
  int64_t end = 0;
};

Result<HeaderText> FindHeader(std::span<const std::byte> prefix) {
  const std::string_view bytes(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  if (bytes.size() < 10 || bytes.substr(0, kMagic.size()) != kMagic) {
    return Fail(InvalidArgument("it does not start with the magic of a .npy file"));
  }
  const auto major = static_cast<uint8_t>(bytes[6]);
  if (major < 1 || major > 3) {
    return Fail(InvalidArgument(fmt::format("its version is {}; known: 1, 2, 3", major)));
  }
  const size_t begin = major == 1 ? 10 : 12;
  uint32_t length = 0;
  if (bytes.size() >= begin) std::memcpy(&length, bytes.data() + 8, begin - 8);
  if (bytes.size() < begin || length > bytes.size() - begin) {
    return Fail(InvalidArgument(
        fmt::format("its header says {} bytes; there are {} (at most {} are read)", length,
                    bytes.size() - std::min(bytes.size(), begin), kMaxNpyHeaderBytes)));
  }
  return HeaderText{bytes.substr(begin, length), static_cast<int64_t>(begin + length)};
}

Result<ir::Element> ElementOf(std::string_view descr) {
  for (const auto& [name, element] : kTypes) {
    if (name == descr) return element;
  }
  const bool big = !descr.empty() && descr.front() == '>';
  return Fail(InvalidArgument(
      fmt::format("its type '{}' cannot be read; {}", descr,
                  big ? "write it as little endian: array.astype(array.dtype.newbyteorder('<'))"
                      : "known: bool, integers and floats of up to 64 bits")));
}

}  // namespace

Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> prefix, int64_t file_bytes) {
  MW_ASSIGN_OR_RETURN(const HeaderText found, FindHeader(prefix));
  DictReader dict(found.text);
  MW_TRY(dict.Read());
  NpyHeader header;
  MW_ASSIGN_OR_RETURN(header.element, ElementOf(*dict.descr));
  header.shape = *dict.shape;
  header.data_begin_bytes = found.end;
  if (*dict.fortran_order && header.shape.size() > 1) {
    return Fail(
        InvalidArgument("it is in Fortran's order, where rows do not lie together; write "
                        "np.ascontiguousarray(it)"));
  }
  int64_t bytes = ir::ElementBytes(header.element);
  bool overflow = false;
  for (const int64_t dim : header.shape) {
    overflow = overflow || __builtin_mul_overflow(bytes, dim, &bytes);
  }
  if (overflow || bytes != file_bytes - header.data_begin_bytes) {
    return Fail(InvalidArgument(fmt::format(
        "its shape ({}) of {} does not match the {} bytes behind its header: it is truncated or "
        "damaged",
        fmt::join(header.shape, ", "), ir::ElementName(header.element),
        file_bytes - header.data_begin_bytes)));
  }
  return header;
}

Result<std::string> MakeNpyHeader(ir::Element element, const ir::Dims& shape) {
  // The first of an element's names is the one that NumPy writes.
  const auto name = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const auto& type) { return type.second == element; });
  if (name == kTypes.end()) {
    return Fail(InvalidArgument(
        fmt::format("a .npy has no type for {}; write a .jsonl", ir::ElementName(element))));
  }
  constexpr size_t kBefore = 10;  // magic, version and length
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 name->first, fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  while ((kBefore + dict.size() + 1) % kNpyAlignment != 0) dict.push_back(' ');
  dict.push_back('\n');
  MW_CHECK(dict.size() < (1U << 16)) << shape.size() << " dims";
  std::string header(kMagic);
  header.append(
      {'\x01', '\x00', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)});
  return header + dict;
}

}  // namespace meshwright::data
