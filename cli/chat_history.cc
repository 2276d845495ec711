#include "cli/chat_history.h"

#include <nlohmann/json.hpp>

namespace meshwright::cli {

std::string ChatHistory::Json() const {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& role, const std::string& content) {
    list.push_back({{"role", role}, {"content", content}});
  };
  if (!system_.empty()) add("system", system_);
  for (const auto& [role, content] : messages_) add(role, content);
  // What was typed may be no UTF-8.
  return list.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string_view ChatCommandOf(std::string_view line) {
  while (line.ends_with(' ') || line.ends_with('\r')) line.remove_suffix(1);
  return line == "/exit" || line == "/clear" || line == "/help" ? line : std::string_view();
}

}  // namespace meshwright::cli
