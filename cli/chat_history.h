// A conversation as the messages of a chat template.
//
// Thread rule: a value.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace meshwright::cli {

class ChatHistory {
 public:
  explicit ChatHistory(std::string system) : system_(std::move(system)) {}

  void Add(std::string role, std::string content) {
    messages_.emplace_back(std::move(role), std::move(content));
  }
  void DropLast() { messages_.pop_back(); }
  void Clear() { messages_.clear(); }
  bool empty() const { return messages_.empty(); }

  // The list as JSON, the system's message first where there is one.
  std::string Json() const;

 private:
  std::string system_;
  std::vector<std::pair<std::string, std::string>> messages_;  // role and content
};

// The text of a line that is a command ("/exit"), else nothing.
std::string_view ChatCommandOf(std::string_view line);

}  // namespace meshwright::cli
