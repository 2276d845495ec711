#include "tokenizer/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstring>

#include "base/check.h"
#include "base/json_error.h"

namespace meshwright::tokenizer {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

static_assert(sizeof(element) == 16 && std::is_trivially_copyable_v<element>);

element ElementOf(const std::array<uint64_t, 2>& storage) {
  element made;
  std::memcpy(static_cast<void*>(&made), storage.data(), sizeof(made));
  return made;
}

std::array<uint64_t, 2> StorageOf(const element& made) {
  std::array<uint64_t, 2> storage;
  std::memcpy(storage.data(), static_cast<const void*>(&made), sizeof(made));
  return storage;
}

std::string_view KindOf(const element& node) {
  switch (node.type()) {
    case element_type::ARRAY:
      return "a list";
    case element_type::OBJECT:
      return "an object";
    case element_type::STRING:
      return "a text";
    case element_type::BOOL:
      return "a bool";
    case element_type::NULL_VALUE:
      return "null";
    case element_type::INT64:
    case element_type::UINT64:
    case element_type::DOUBLE:
      break;
  }
  return "a number";
}

// simdjson says that a text is no JSON, and not where.
Status WhereItIsWrong(std::string_view text, std::string_view what) {
  const std::string where = JsonErrorOf(text);
  return InvalidArgument(fmt::format("this is no JSON: {}", where.empty() ? what : where));
}

}  // namespace

struct JsonDocument::Parser {
  simdjson::dom::parser parser;
};

JsonDocument::JsonDocument(std::unique_ptr<Parser> parser, JsonNode root)
    : parser_(std::move(parser)), root_(std::move(root)) {}
JsonDocument::~JsonDocument() = default;
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;

Result<JsonDocument> JsonDocument::Parse(std::string_view text) {
  auto parser = std::make_unique<Parser>();
  element root;
  const simdjson::error_code error = parser->parser.parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS) {
    return Fail(WhereItIsWrong(text, simdjson::error_message(error)));
  }
  return JsonDocument(std::move(parser), JsonNode(StorageOf(root), ""));
}

bool JsonNode::IsArray() const { return ElementOf(element_).is_array(); }
bool JsonNode::IsString() const { return ElementOf(element_).is_string(); }

Status JsonNode::Wrong(std::string_view what) const {
  return InvalidArgument(fmt::format("{}: {}", path_.empty() ? "the file" : path_, what));
}

Result<std::string_view> JsonNode::AsText() const {
  std::string_view text;
  const element node = ElementOf(element_);
  if (node.get(text) == simdjson::SUCCESS) return text;
  return Fail(Wrong(fmt::format("is {}, not a text", KindOf(node))));
}

Result<bool> JsonNode::AsBool() const {
  bool value = false;
  const element node = ElementOf(element_);
  if (node.get(value) == simdjson::SUCCESS) return value;
  return Fail(Wrong(fmt::format("is {}, not true or false", KindOf(node))));
}

Result<int64_t> JsonNode::AsInt() const {
  int64_t value = 0;
  const element node = ElementOf(element_);
  if (node.get(value) == simdjson::SUCCESS) return value;
  return Fail(Wrong(fmt::format("is {}, not a whole number", KindOf(node))));
}

Result<double> JsonNode::AsNumber() const {
  double value = 0;
  const element node = ElementOf(element_);
  if (node.get(value) == simdjson::SUCCESS) return value;
  return Fail(Wrong(fmt::format("is {}, not a number", KindOf(node))));
}

Result<std::vector<JsonNode>> JsonNode::AsList() const {
  std::vector<JsonNode> nodes;
  MW_TRY(ForEachItem([&](size_t index, const JsonNode& node) {
    nodes.push_back(JsonNode(node.element_, fmt::format("{}[{}]", path_, index)));
    return OkStatus();
  }));
  return nodes;
}

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  element member;
  if (ElementOf(element_).at_key(key).get(member) != simdjson::SUCCESS || member.is_null()) {
    return std::nullopt;
  }
  return JsonNode(StorageOf(member),
                  path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

Result<JsonNode> JsonNode::Member(std::string_view key) const {
  if (auto member = Find(key)) return *member;
  return Fail(Wrong(ElementOf(element_).is_object()
                        ? fmt::format("has no '{}'", key)
                        : fmt::format("is {}, not an object", KindOf(ElementOf(element_)))));
}

Result<std::string> JsonNode::Text(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const JsonNode member, Member(key));
  MW_ASSIGN_OR_RETURN(const std::string_view text, member.AsText());
  return std::string(text);
}

Result<std::string> JsonNode::TextOr(std::string_view key, std::string_view absent) const {
  return Find(key) ? Text(key) : std::string(absent);
}

Result<bool> JsonNode::Bool(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const JsonNode member, Member(key));
  return member.AsBool();
}

Result<bool> JsonNode::BoolOr(std::string_view key, bool absent) const {
  return Find(key) ? Bool(key) : absent;
}

Result<int64_t> JsonNode::Int(std::string_view key) const {
  MW_ASSIGN_OR_RETURN(const JsonNode member, Member(key));
  return member.AsInt();
}

Result<size_t> JsonNode::Count() const {
  const element node = ElementOf(element_);
  size_t count = 0;
  if (node.is_object()) {
    for ([[maybe_unused]] const auto member : simdjson::dom::object(node)) ++count;
    return count;
  }
  if (!node.is_array()) return Fail(Wrong("is neither a list nor an object"));
  for ([[maybe_unused]] const auto item : simdjson::dom::array(node)) ++count;
  return count;
}

Status JsonNode::ForEachMember(MemberBody body) const {
  simdjson::dom::object members;
  const element node = ElementOf(element_);
  if (node.get(members) != simdjson::SUCCESS) {
    return Wrong(fmt::format("is {}, not an object", KindOf(node)));
  }
  for (const simdjson::dom::key_value_pair member : members) {
    MW_TRY(body(member.key, JsonNode(StorageOf(member.value), "")));
  }
  return OkStatus();
}

Status JsonNode::ForEachItem(ItemBody body) const {
  simdjson::dom::array items;
  const element node = ElementOf(element_);
  if (node.get(items) != simdjson::SUCCESS) {
    return Wrong(fmt::format("is {}, not a list", KindOf(node)));
  }
  size_t index = 0;
  for (const element item : items) {
    MW_TRY(body(index, JsonNode(StorageOf(item), "")));
    ++index;
  }
  return OkStatus();
}

}  // namespace meshwright::tokenizer
