#include "cli/tokenizer_args.h"

namespace meshwright::cli {

void AddTokenizer(CLI::App& app, TokenizerArgs& args) {
  CLI::App* tokenizer =
      app.add_subcommand("tokenizer", "Text to tokens and back, and tokenizers from text");
  tokenizer->require_subcommand(1);
  tokenizer->fallthrough();
  const auto add = [&](const char* name, TokenizerAction action, const char* meaning) {
    CLI::App* command = tokenizer->add_subcommand(name, meaning);
    command->fallthrough();
    command->callback([&args, action] { args.action = action; });
    return command;
  };
  constexpr char kPath[] = "tokenizer.json, or the folder of a model";
  CLI::App* encode = add("encode", TokenizerAction::kEncode, "The tokens of a text");
  encode->add_option("tokenizer", args.path, kPath)->required();
  CLI::Option* text = encode->add_option("text", args.text, "The text");
  CLI::Option* file = encode->add_option("--file", args.file, "Or the file with it; -: stdin");
  CLI::Option* texts = encode->add_option(
      "--jsonl", args.jsonl, "Or a file whose lines are texts as JSON; a list of ids for each");
  file->excludes(text)->excludes(texts);
  texts->excludes(text);
  encode->callback([&args, text, file, texts] {
    args.action = TokenizerAction::kEncode;
    if (text->count() + file->count() + texts->count() == 0) {
      throw CLI::RequiredError("a text, --file or --jsonl");
    }
  });
  encode->add_flag("!--no-special", args.special, "Without the tokens around a text");
  CLI::App* decode = add("decode", TokenizerAction::kDecode, "The text of tokens");
  decode->add_option("tokenizer", args.path, kPath)->required();
  CLI::Option* ids = decode->add_option("ids", args.ids, "Ids of tokens");
  decode
      ->add_option("--jsonl", args.jsonl,
                   "Or a file whose lines are lists of ids; a text as JSON for each")
      ->excludes(ids);
  decode->add_flag("--special", args.show_special, "Show special tokens");
  CLI::App* render = add("render", TokenizerAction::kRender, "The text of a conversation");
  render->add_option("folder", args.path, "Of a model with a chat template")->required();
  render->add_option("messages", args.file, "JSON file with the list of messages; -: stdin")
      ->required();
  render->add_flag("--prompt", args.prompt, "End where an answer begins");
  render->add_option("--template", args.template_name, "One of several")->capture_default_str();
  render->add_option("--tools", args.tools, "JSON file with a list of tools");
  render->add_option("--variables", args.variables, "JSON file with more for the template");
  render->add_option("--now", args.now, "Time of the template, 2026-11-26T12:00:00; default: now");
  CLI::App* train = add("train", TokenizerAction::kTrain, "Learn a byte-level BPE from texts");
  train->add_option("files", args.files, "Texts in UTF-8")->required();
  train->add_option("--out", args.out, "Where tokenizer.json goes")->required();
  train->add_option("--vocabulary", args.vocabulary, "Tokens, 256 bytes among them")
      ->check(CLI::Range(int64_t{256}, int64_t{1} << 24))
      ->capture_default_str();
  train->add_option("--least-count", args.least_count, "How often a pair occurs that is a token")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  train
      ->add_option("--special-token", args.special_tokens,
                   "A special token, instead of <|endoftext|>; repeatable")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace meshwright::cli
