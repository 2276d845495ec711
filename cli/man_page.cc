#include "cli/man_page.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"

namespace meshwright::cli {
namespace {

// Text that troff takes as it is: no escapes, no requests.
std::string Plain(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    if (c == '\\') {
      plain += "\\e";
    } else if (c == '-') {
      plain += "\\-";
    } else {
      plain += c;
    }
  }
  const bool request = !plain.empty() && (plain[0] == '.' || plain[0] == '\'');
  return request ? "\\&" + plain : plain;
}

// "--resume INT": names, and what the value is.
std::string HeadOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_name());
  const std::string type = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  return fmt::format("\\fB{}\\fR{}", Plain(Join(names, ", ")),
                     type.empty() ? "" : " \\fI" + Plain(type) + "\\fR");
}

std::string OptionsOf(const CLI::App& command) {
  std::string text;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty() && !option->get_positional()) continue;  // internal
    text += fmt::format(".TP\n{}\n{}\n", HeadOf(*option), Plain(option->get_description()));
  }
  return text;
}

void AddCommands(const CLI::App& app, const std::string& path, std::string& text) {
  for (const CLI::App* command : app.get_subcommands({})) {
    const std::string name = path + " " + command->get_name();
    text += fmt::format(".SS \"{}\"\n{}\n{}", Plain(name), Plain(command->get_description()),
                        OptionsOf(*command));
    AddCommands(*command, name, text);
  }
}

}  // namespace

std::string ManPage(const CLI::App& app, const std::string& version) {
  std::string text = fmt::format(
      ".TH MESHWRIGHT 1 \"\" \"meshwright {}\" \"Meshwright\"\n"
      ".SH NAME\nmeshwright \\- {}\n"
      ".SH SYNOPSIS\n.B meshwright\nCOMMAND [\\fIoptions\\fR]\n"
      ".SH OPTIONS OF ALL COMMANDS\n{}.SH COMMANDS\n",
      Plain(version), Plain(app.get_description()), OptionsOf(app));
  AddCommands(app, "meshwright", text);
  std::string footer = app.get_footer();
  std::replace(footer.begin(), footer.end(), '\n', ' ');
  return text + ".SH EXIT STATUS AND ENVIRONMENT\n" + Plain(footer) + "\n";
}

}  // namespace meshwright::cli
