// chat: a conversation with a model, line by line.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/chat_history.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/folder_job.h"
#include "cli/interrupt_flag.h"
#include "cli/text_writer.h"
#include "config/job_config.h"
#include "tokenizer/chat_template.h"

namespace meshwright::cli {
namespace {

using tokenizer::ChatRequest;
using tokenizer::ChatTemplate;

constexpr const char* kHelp = "/clear forgets the conversation, /exit or Ctrl-D ends it\n";

std::tm LocalTime() {
  const auto seconds = static_cast<std::time_t>(SystemClock().NowNs() / 1'000'000'000);
  std::tm time = {};
  ::localtime_r(&seconds, &time);
  return time;
}

// The folders of a job's model and of its tokenizer, either of which may have the template.
std::vector<std::string> FoldersOfJob(client::Client& client, int64_t id) {
  const auto description = client.Describe(id);
  if (!description) return {};
  config::ConfigSource source;
  source.text = description->job.config_text;
  source.environment_names = {};
  const auto config = config::ParseJobConfig(source);
  if (!config) return {};
  std::vector<std::string> folders;
  for (const std::string& path : {config->hf_path, config->tokenizer}) {
    if (path.empty() || path == "byte") continue;
    folders.push_back(FileExists(path + "/.") ? path
                                              : std::filesystem::path(path).parent_path().string());
  }
  return folders;
}

// Of the model's own folder or, of a job, of those that it was made from.
Result<ChatTemplate> OwnTemplate(client::Client& client, const std::string& model) {
  const bool is_job = !FileExists(model + "/.") && ParseInt(model).has_value();
  if (is_job) {
    for (const std::string& folder : FoldersOfJob(client, *ParseInt(model))) {
      auto of_folder = ChatTemplate::Load(folder);
      const bool none = !of_folder && of_folder.error().code() == StatusCode::kNotFound;
      if (!none) return of_folder;
    }
    return Fail(NotFound(fmt::format(
        "neither the model's folder of job {} nor that of its tokenizer has a chat template",
        model)));
  }
  return ChatTemplate::Load(model);
}

// The model's own template, or the one that is named: a file, or the folder of another model.
Result<ChatTemplate> TemplateOf(client::Client& client, const ChatArgs& args) {
  const std::string& path = args.chat_template;
  if (path.empty()) {
    const auto own = OwnTemplate(client, args.generate.model);
    if (own.has_value() || own.error().code() != StatusCode::kNotFound) return own;
    return Fail(
        Status(own.error().code(), own.error().message() + "; --chat-template FILE names one"));
  }
  if (FileExists(path + "/.")) return ChatTemplate::Load(path);
  MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto parsed = ChatTemplate::Parse(text);
  if (!parsed.has_value()) return Fail(parsed.error().WithContext(path));
  return parsed;
}

class Conversation {
 public:
  Conversation(const ChatArgs& args, ChatTemplate chat_template, std::unique_ptr<TextWriter> writer)
      : args_(args),
        template_(std::move(chat_template)),
        writer_(std::move(writer)),
        history_(args.system) {
    const auto end = template_.TokenOf("eos_token");
    const auto token = end ? writer_->codec().TokenOf(*end) : std::nullopt;
    if (token) stops_.insert(*token);
  }

  Status Run() {
    const bool terminal = ::isatty(STDIN_FILENO) != 0;
    if (terminal) fmt::print(stderr, "{}", kHelp);
    std::string line;
    for (;;) {
      if (terminal) fmt::print(stderr, "> ");
      if (!std::getline(std::cin, line)) break;
      if (interrupt_.Take()) break;
      const std::string_view command = ChatCommandOf(line);
      if (command == "/exit") break;
      if (command == "/help") fmt::print(stderr, "{}", kHelp);
      if (command == "/clear") history_.Clear();
      if (!command.empty() || line.empty()) continue;
      MW_TRY(Answer(line));
    }
    fmt::print("\n");
    return writer_->Close();
  }

  // Whether every line was answered.
  bool good() const { return !failed_; }

 private:
  // An answer that cannot be begun is no end of the conversation: the line is forgotten.
  Status Answer(const std::string& line) {
    history_.Add("user", line);
    const Result<std::vector<int32_t>> prompt = Prompt();
    if (!prompt.has_value()) {
      fmt::print(stderr, "error: {}\n", prompt.error().message());
      failed_ = true;
      history_.DropLast();
      return OkStatus();
    }
    std::string text;
    bool stopped = false;
    const auto show = [&](const std::string& part) {
      text += part;
      fmt::print("{}", part);
      std::fflush(stdout);
    };
    const auto written =
        writer_->Write(args_.generate, *prompt, stops_, answers_++, [&](int32_t token) {
          show(writer_->codec().Put(token));
          stopped = interrupt_.Take();
          return !stopped;
        });
    show(writer_->codec().End());
    fmt::print("\n");
    std::fflush(stdout);
    MW_TRY(written);
    if (stopped) fmt::print(stderr, "(stopped)\n");
    if (written->finish == generation::Finish::kFull) {
      fmt::print(stderr, "(all {} positions are used: /clear begins anew)\n", writer_->positions());
    }
    history_.Add("assistant", std::move(text));
    return OkStatus();
  }

  Result<std::vector<int32_t>> Prompt() {
    ChatRequest request;
    request.messages = history_.Json();
    request.add_generation_prompt = true;
    request.variables = args_.variables;
    request.now = LocalTime();
    MW_ASSIGN_OR_RETURN(const tokenizer::RenderedTemplate made, template_.Render(request));
    MW_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, writer_->codec().Encode(made.text, false));
    const int64_t most = writer_->prompt_positions();
    if (static_cast<int64_t>(prompt.size()) > most) {
      // Fewer than were asked for are all that the model has.
      const bool has_more = most >= args_.context;
      return Fail(InvalidArgument(fmt::format(
          "the conversation has {} tokens, and {} positions: /clear begins anew{}", prompt.size(),
          has_more ? fmt::format("there are {}", most) : fmt::format("the model has {}", most),
          has_more ? fmt::format(", --context {} gives more", 2 * args_.context) : "")));
    }
    return prompt;
  }

  const ChatArgs& args_;
  const ChatTemplate template_;
  const std::unique_ptr<TextWriter> writer_;
  ChatHistory history_;
  InterruptFlag interrupt_;
  std::set<int32_t> stops_;
  uint64_t answers_ = 0;  // each is drawn by a number of its own
  bool failed_ = false;   // some line had no answer
};

// What is wrong with it would else be said of each line.
Status CheckVariables(const std::string& text) {
  if (text.empty()) return OkStatus();
  if (nlohmann::json::parse(text, nullptr, false).is_object()) return OkStatus();
  return InvalidArgument(
      fmt::format("--variables '{}' is no JSON object such as '{{\"name\": \"value\"}}'", text));
}

Result<int> Chat(const ChatArgs& args, const GlobalArgs& global) {
  MW_TRY(CheckVariables(args.variables));
  MW_ASSIGN_OR_RETURN(const auto client, ConnectAs("chat", global));
  MW_ASSIGN_OR_RETURN(ChatTemplate chat_template, TemplateOf(*client, args));
  GenerateArgs open = args.generate;
  open.prompt = "a";  // stands for the first token of a conversation
  Result<std::unique_ptr<TextWriter>> writer = OpenWriter(*client, open, args.context);
  if (!writer.has_value()) return ReportUnopened(*client, writer.error());
  Conversation conversation(args, std::move(chat_template), *std::move(writer));
  MW_TRY(conversation.Run());
  return conversation.good() ? kExitOk : kExitJobFailed;
}

}  // namespace

int RunChat(const ChatArgs& args, const GlobalArgs& global) {
  const Result<int> code = Chat(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
