// Text of a sharding. Grammar (spaces between tokens are free when read):
//   sharding := dtype '[' (dim (',' dim)*)? ']' ('partial' '(' group (';' group)* ')')?
//   dim      := integer ('{' axis (',' axis)* '}')?
//   group    := ('sum' | 'max' | 'lse') ':' axis (',' axis)*
//   axis     := [A-Za-z0-9_.-]+.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <charconv>

#include "ir/dtype.h"
#include "mesh/sharding.h"

namespace meshwright::mesh {
namespace {

constexpr std::pair<ir::PartialKind, std::string_view> kPartialNames[] = {
    {ir::PartialKind::kSum, "sum"},
    {ir::PartialKind::kMax, "max"},
    {ir::PartialKind::kLogSumExp, "lse"},
};

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<TypedSharding> Run() {
    TypedSharding parsed;
    MW_ASSIGN_OR_RETURN(const std::string dtype, Word("an element type such as f32"));
    MW_ASSIGN_OR_RETURN(parsed.type.dtype, ir::ParseDType(dtype));
    MW_TRY(Expect('['));
    if (!Accept(']')) {
      do {
        MW_TRY(Dim(parsed));
      } while (Accept(','));
      MW_TRY(Expect(']'));
    }
    SkipSpace();
    if (at_ < text_.size()) MW_TRY(Partials(parsed.sharding));
    SkipSpace();
    if (at_ < text_.size()) return Fail(Expected("the end"));
    return parsed;
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool Accept(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Status Expect(char c) {
    if (Accept(c)) return OkStatus();
    return Expected(fmt::format("'{}'", c));
  }

  Status Expected(std::string_view what) const {
    const std::string found =
        at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 12)) : "the end";
    return InvalidArgument(
        fmt::format("sharding \"{}\": column {}: expected {}, found {}; write it like "
                    "f32[32{{data}},128,4096{{tensor}}] partial(sum: pipe)",
                    text_, at_ + 1, what, found));
  }

  Result<std::string> Word(std::string_view what) {
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordChar(text_[at_])) ++at_;
    if (at_ == begin) return Fail(Expected(what));
    return std::string(text_.substr(begin, at_ - begin));
  }

  Status Dim(TypedSharding& parsed) {
    SkipSpace();
    int64_t size = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), size);
    if (error != std::errc() || size < 0) return Expected("a size");
    at_ += static_cast<size_t>(end - begin);
    AxisList axes;
    if (Accept('{')) {
      MW_ASSIGN_OR_RETURN(axes, Axes());
      MW_TRY(Expect('}'));
    }
    parsed.type.dims.push_back(size);
    parsed.sharding.dims.push_back(std::move(axes));
    return OkStatus();
  }

  Result<AxisList> Axes() {
    AxisList axes;
    do {
      MW_ASSIGN_OR_RETURN(axes.emplace_back(), Word("an axis name"));
    } while (Accept(','));
    return axes;
  }

  Status Partials(Sharding& sharding) {
    const size_t begin = at_;
    MW_ASSIGN_OR_RETURN(const std::string keyword, Word("partial(...)"));
    if (keyword != "partial") {
      at_ = begin;
      return Expected("partial(...)");
    }
    MW_TRY(Expect('('));
    do {
      MW_ASSIGN_OR_RETURN(const ir::PartialKind kind, Kind());
      MW_TRY(Expect(':'));
      MW_ASSIGN_OR_RETURN(const AxisList axes, Axes());
      for (const std::string& axis : axes) {
        if (!sharding.partial.emplace(axis, kind).second) {
          return InvalidArgument(
              fmt::format("sharding \"{}\": partial names axis {} twice", text_, axis));
        }
      }
    } while (Accept(';'));
    return Expect(')');
  }

  Result<ir::PartialKind> Kind() {
    SkipSpace();
    const size_t begin = at_;
    MW_ASSIGN_OR_RETURN(const std::string word, Word("sum, max or lse"));
    for (const auto& [kind, name] : kPartialNames) {
      if (name == word) return kind;
    }
    at_ = begin;
    return Fail(Expected("sum, max or lse"));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string FormatSharding(const ir::TensorType& type, const Sharding& sharding) {
  std::vector<std::string> dims;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    const bool split = d < sharding.dims.size() && !sharding.dims[d].empty();
    dims.push_back(split ? fmt::format("{}{{{}}}", type.dims[d], fmt::join(sharding.dims[d], ","))
                         : fmt::format("{}", type.dims[d]));
  }
  std::vector<std::string> groups;
  for (const auto& [kind, name] : kPartialNames) {
    AxisList axes;
    for (const auto& [axis, axis_kind] : sharding.partial) {
      if (axis_kind == kind) axes.push_back(axis);
    }
    if (!axes.empty()) groups.push_back(fmt::format("{}: {}", name, fmt::join(axes, ", ")));
  }
  std::string text = fmt::format("{}[{}]", ir::DTypeName(type.dtype), fmt::join(dims, ","));
  if (!groups.empty()) text += fmt::format(" partial({})", fmt::join(groups, "; "));
  return text;
}

Result<TypedSharding> ParseSharding(std::string_view text) { return Parser(text).Run(); }

}  // namespace meshwright::mesh
