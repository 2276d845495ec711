#include "base/json_error.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace meshwright {
namespace {

// Keeps nothing of a text but what is wrong with it.
struct Handler : nlohmann::json::json_sax_t {
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(int64_t /*value*/) override { return true; }
  bool number_unsigned(uint64_t /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return true; }
  bool start_object(size_t /*members*/) override { return true; }
  bool key(std::string& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t /*items*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t /*place*/, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    message = error.what();
    return false;
  }
  std::string message;
};

}  // namespace

std::string JsonErrorOf(std::string_view text) {
  Handler handler;
  nlohmann::json::sax_parse(text, &handler);
  const size_t bracket = handler.message.find("] ");  // behind the name of the exception
  if (bracket != std::string::npos) handler.message.erase(0, bracket + 2);
  return handler.message;
}

std::string WhyNoJsonObject(std::string_view text) {
  const std::string where = JsonErrorOf(text);
  return where.empty() ? "no JSON object" : "no JSON: " + where;
}

}  // namespace meshwright
