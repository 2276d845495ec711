// Nodes of a JSON document, each with its path ("model.vocab"), for errors that name it.
//
// simdjson reads the text, which is checked whole; it stays in json.cc. A large object or list is
// walked without a path for each member.
//
// Thread rule: a document is read by one thread. A node, and the texts that it gives, live as long
// as their document.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"

namespace meshwright::tokenizer {

class JsonNode {
 public:
  const std::string& path() const { return path_; }

  bool IsArray() const;
  bool IsString() const;

  // Of this node itself. Errors: kInvalidArgument, "pre_tokenizer.split is a text, not a bool".
  Result<std::string_view> AsText() const;
  Result<bool> AsBool() const;
  Result<int64_t> AsInt() const;
  Result<double> AsNumber() const;
  Result<std::vector<JsonNode>> AsList() const;

  // A member. Find: none where it is absent or null. Member: an error where it is. Neither takes
  // a node that is no object.
  std::optional<JsonNode> Find(std::string_view key) const;
  Result<JsonNode> Member(std::string_view key) const;
  Result<std::string> Text(std::string_view key) const;
  Result<std::string> TextOr(std::string_view key, std::string_view absent) const;
  Result<bool> Bool(std::string_view key) const;
  Result<bool> BoolOr(std::string_view key, bool absent) const;
  Result<int64_t> Int(std::string_view key) const;

  // Of large ones: how many members there are, and each in its order. Nodes have no path.
  Result<size_t> Count() const;
  using MemberBody = FunctionRef<Status(std::string_view key, const JsonNode& value)>;
  Status ForEachMember(MemberBody body) const;
  using ItemBody = FunctionRef<Status(size_t index, const JsonNode& value)>;
  Status ForEachItem(ItemBody body) const;

  // An error about this node: "<path>: <what>".
  Status Wrong(std::string_view what) const;

 private:
  friend class JsonDocument;
  using Storage = std::array<uint64_t, 2>;  // simdjson's element
  JsonNode(Storage element, std::string path) : element_(element), path_(std::move(path)) {}

  Storage element_;
  std::string path_;
};

class JsonDocument {
 public:
  // Errors: kInvalidArgument, with line and column.
  static Result<JsonDocument> Parse(std::string_view text);
  ~JsonDocument();
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;

  const JsonNode& root() const { return root_; }

 private:
  struct Parser;
  JsonDocument(std::unique_ptr<Parser> parser, JsonNode root);

  std::unique_ptr<Parser> parser_;
  JsonNode root_;
};

}  // namespace meshwright::tokenizer
