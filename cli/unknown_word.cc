#include "cli/unknown_word.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cctype>

#include "base/text.h"

namespace meshwright::cli {
namespace {

bool LooksLikeOption(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// By its long name, or by the letter that a value or more letters follow directly.
const CLI::Option* FindOption(const CLI::App& app, const std::string& word) {
  if (const CLI::Option* option = app.get_option_no_throw(word)) return option;
  const bool letters = word.size() > 2 && word[1] != '-';
  return letters ? app.get_option_no_throw(word.substr(0, 2)) : nullptr;
}

std::vector<std::string> LongOptions(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;  // internal
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string UnknownOption(const CLI::App& app, const CLI::App* command, const std::string& name) {
  std::vector<std::string> known = LongOptions(app);
  std::string hint;
  if (command != nullptr) {
    for (std::string& option : LongOptions(*command)) known.push_back(std::move(option));
    const bool takes_keys = command->get_option_no_throw("--set") != nullptr;
    if (takes_keys && name.find('.') != std::string::npos)
      hint = fmt::format("; write {}=VALUE", name);
  }
  if (hint.empty()) hint = DidYouMean(name, known);
  std::string path;
  for (const CLI::App* at = command; at != nullptr && at != &app; at = at->get_parent()) {
    path = " " + at->get_name() + path;
  }
  return fmt::format("unknown option '{}' of `meshwright{}`{}", name, path, hint);
}

}  // namespace

std::string ExplainUnknown(const CLI::App& app, const std::vector<std::string>& args) {
  const CLI::App* command = nullptr;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (!LooksLikeOption(word)) {
      if (command != nullptr) {
        for (const CLI::App* known : command->get_subcommands({})) {
          if (known->check_name(word)) command = known;
        }
        continue;
      }
      std::vector<std::string> names;
      for (const CLI::App* known : app.get_subcommands({})) {
        if (known->check_name(word)) command = known;
        names.push_back(known->get_name());
      }
      if (command != nullptr) continue;
      return fmt::format("unknown command '{}'{}; known: {}", word, DidYouMean(word, names),
                         Join(names, ", "));
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = command != nullptr ? FindOption(*command, name) : nullptr;
    if (option == nullptr) option = FindOption(app, name);
    const bool override = equals != std::string::npos && name.find('.') != std::string::npos &&
                          command != nullptr && command->get_option_no_throw("--set") != nullptr;
    if (override) continue;
    if (option == nullptr) return UnknownOption(app, command, name);
    const bool value_follows = option->get_items_expected_max() > 0 &&
                               equals == std::string::npos && (name[1] == '-' || name.size() == 2);
    if (value_follows) ++i;
  }
  return "";
}

}  // namespace meshwright::cli
