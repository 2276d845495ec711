#include "cli/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/text.h"
#include "config/config_keys.h"

namespace meshwright::cli {
namespace {

bool IsOption(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Of a command, or of those around it.
const CLI::Option* OptionOf(const CLI::App* command, const std::string& name) {
  for (; command != nullptr; command = command->get_parent()) {
    if (const CLI::Option* option = command->get_option_no_throw(name)) return option;
  }
  return nullptr;
}

const CLI::App* CommandOf(const CLI::App& app, const std::string& word) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->check_name(word)) return command;
  }
  return nullptr;
}

// "{a,b,c}" in "TEXT:{a,b,c}", which CLI11 makes of CLI::IsMember.
std::vector<std::string> MembersOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return Split(type.substr(begin + 1, end - begin - 1), ',');
}

// What the value of an option or of a positional may be.
void AddValues(const CLI::Option& option, const std::string& text, const std::string& before,
               Candidates& all) {
  all.before = before;
  for (const std::string& member : MembersOf(option)) {
    if (member.starts_with(text)) all.known.push_back({before + member, ""});
  }
  const std::string name = option.get_single_name();
  if (name == "id" || name == "resume") all.asked = Asked::kJobs;
  if (name == "worker") all.asked = Asked::kWorkers;
  if (name == "set" || name == "what-if") all.asked = Asked::kKeys;
  // These are files or jobs.
  if (name == "model" || name == "place" || name == "other" || name == "runs") {
    all.asked = Asked::kJobs;
  }
  const bool is_text = option.get_type_name().starts_with("TEXT");
  all.files = all.files || (is_text && MembersOf(option).empty() && name != "worker" &&
                            all.asked != Asked::kKeys);
}

void AddOptions(const CLI::App* command, const std::string& text, Candidates& all) {
  for (; command != nullptr; command = command->get_parent()) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_group().empty()) continue;  // internal
      for (const std::string& name : option->get_lnames()) {
        const std::string whole = "--" + name;
        if (whole.starts_with(text)) all.known.push_back({whole, option->get_description()});
      }
    }
  }
}

void AddCommands(const CLI::App& of, const std::string& text, Candidates& all) {
  for (const CLI::App* command : of.get_subcommands({})) {
    if (command->get_group().empty() || !command->get_name().starts_with(text)) continue;
    all.known.push_back({command->get_name(), command->get_description()});
  }
}

// The positional that the word behind `given` others is of; null: there is none.
const CLI::Option* PositionalOf(const CLI::App& command, int given) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional()) continue;
    given -= option->get_items_expected_max();
    if (given < 0) return option;
  }
  return nullptr;
}

// Where a command line is in the parser's table.
struct Place {
  const CLI::App* command = nullptr;
  int positionals = 0;
  const CLI::Option* open = nullptr;  // option that the word to complete is the value of
};

Place PlaceOf(const CLI::App& app, const std::vector<std::string>& words) {
  Place place{&app, 0, nullptr};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (place.open != nullptr) {
      place.open = nullptr;
    } else if (IsOption(word)) {
      const CLI::Option* const option =
          word.find('=') == std::string::npos ? OptionOf(place.command, word) : nullptr;
      if (option != nullptr && TakesValue(*option)) place.open = option;
    } else if (const CLI::App* const command = CommandOf(*place.command, word)) {
      place.command = command;
      place.positionals = 0;
    } else {
      ++place.positionals;
    }
  }
  return place;
}

}  // namespace

Candidates CompleteIn(const CLI::App& app, const std::vector<std::string>& words) {
  Candidates all;
  if (words.empty()) return all;
  if (words.size() > 1 && words[0] == "help") {  // which takes the words of a command
    AddCommands(*PlaceOf(app, {words.begin() + 1, words.end()}).command, words.back(), all);
    return all;
  }
  const Place place = PlaceOf(app, words);
  const std::string& word = words.back();
  if (place.open != nullptr) {
    AddValues(*place.open, word, "", all);
    return all;
  }
  if (!word.empty() && word[0] == '-') {
    const size_t equals = word.find('=');
    const CLI::Option* const option =
        equals == std::string::npos ? nullptr : OptionOf(place.command, word.substr(0, equals));
    if (option != nullptr) {
      AddValues(*option, word.substr(equals + 1), word.substr(0, equals + 1), all);
    } else {
      AddOptions(place.command, word, all);
    }
    return all;
  }
  if (place.positionals == 0) AddCommands(*place.command, word, all);
  if (const CLI::Option* const option = PositionalOf(*place.command, place.positionals)) {
    AddValues(*option, word, "", all);
  }
  return all;
}

std::vector<Candidate> CompleteKey(const std::string& text) {
  std::vector<Candidate> found;
  const size_t equals = text.find('=');
  for (const config::ConfigKey& key : config::ConfigKeys()) {
    const std::string whole = fmt::format("{}.{}=", key.section, key.name);
    if (equals == std::string::npos) {
      if (whole.starts_with(text)) found.push_back({whole, std::string(key.doc)});
    } else if (text.starts_with(whole)) {
      for (const std::string& choice : key.choices) {
        if ((whole + choice).starts_with(text)) found.push_back({whole + choice, ""});
      }
    }
  }
  return found;
}

namespace {

// The words are those of the line, not bash's own, which also end at '=' and ':'; what stands
// before the last of these is not given back.
constexpr char kBash[] = R"(# bash: source <(meshwright completion bash)
_meshwright() {
  local line=${COMP_LINE:0:COMP_POINT} words cur before text files=
  read -ra words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  cur=${words[-1]}
  before=${cur%"${cur##*[=:]}"}
  COMPREPLY=()
  while IFS=$'\t' read -r text _; do
    if [[ $text == :files ]]; then files=1; else COMPREPLY+=("${text#"$before"}"); fi
  done < <("${words[0]}" __complete "${words[@]:1}" 2> /dev/null)
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2> /dev/null; fi
  if [[ -n $files ]]; then
    compopt -o filenames 2> /dev/null
    while read -r text; do COMPREPLY+=("$text"); done < <(compgen -f -- "${cur##*[=:]}")
  fi
}
complete -F _meshwright meshwright
)";

constexpr char kZsh[] = R"(#compdef meshwright
# zsh: meshwright completion zsh > a folder of $fpath, as _meshwright
_meshwright() {
  local -a found
  local line files=
  for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2> /dev/null)}"; do
    case $line in
      :files) files=1 ;;
      '') ;;
      *$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
      *) found+=("${line//:/\\:}") ;;
    esac
  done
  (( ${#found} )) && _describe meshwright found
  [[ -n $files ]] && _files
  return 0
}
if [[ ${funcstack[1]} == _meshwright ]]; then
  _meshwright "$@"
else
  compdef _meshwright meshwright
fi
)";

constexpr char kFish[] =
    R"(# fish: meshwright completion fish > ~/.config/fish/completions/meshwright.fish
function __meshwright_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (command $words[1] __complete $words[2..-1] 2> /dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c meshwright -f -a '(__meshwright_complete)'
)";

}  // namespace

std::string CompletionScript(const std::string& shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
}

}  // namespace meshwright::cli
