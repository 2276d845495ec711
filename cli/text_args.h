// Arguments of the commands that ask models for texts, and of those for their tokens.
//
// Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace meshwright::cli {

struct PredictArgs {
  int64_t id = 0;
  std::string text;               // bytes are tokens; of a job whose data are bytes
  std::string tokens;             // "12,7,300": of any job
  int top = 5;                    // so many of the likeliest next tokens
  std::vector<std::string> data;  // files, every row of which is asked for instead
  std::string format;             // of these; empty: by their names, else that of the job's data
  std::string out;                // what was said of them: .jsonl, .npy
  int64_t timeout_s = 600;
};

struct GenerateArgs {
  std::string model;  // a Hugging Face folder, or the id of a job whose data are bytes
  std::string prompt;
  std::optional<int64_t> max_new_tokens;
  bool greedy = false;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> min_new_tokens;
  std::optional<int64_t> no_repeat_ngram_size;
  std::optional<uint64_t> seed;
  std::optional<int64_t> num_beams;  // above 1: a search for the likeliest text
  std::optional<double> length_penalty;
  std::string early_stopping = {};  // "true" | "false" | "never"; empty: as the model says
  bool ignore_stops = false;
  bool echo = false;  // the prompt, too
  std::string dtype = "float32";
  std::vector<std::string> overrides;  // of a folder's job
  int64_t timeout_s = 600;
};

struct EvalArgs {
  std::string model;            // as of GenerateArgs
  std::string data;             // file: text, or JSON lines
  std::string format;           // "text" | "jsonl"; empty: by the file's name
  std::string loss_on = "all";  // or "answers"
  std::string delimiter = " ";  // between a prompt and a choice
  std::string samples;          // file for what was said of each row; empty: none
  int64_t batch = 8;
  int64_t context = 1024;  // tokens of a row; the model may have fewer
  int64_t limit = 0;       // lines or documents at most; 0: all
  std::string dtype = "float32";
  std::vector<std::string> overrides;  // of a folder's job
  int64_t timeout_s = 600;
};

struct EmbedArgs {
  std::string model;               // as of GenerateArgs
  std::vector<std::string> texts;  // or those of a file
  std::string file;                // a text in each line; of .jsonl the "text" of each object
  std::string out;                 // .npy or .jsonl; empty: lines of JSON on stdout
  std::string pooling;             // empty: as the folder says
  std::optional<bool> normalised;  // likewise
  int64_t rows = 8;                // that the model sees at once
  std::optional<int64_t> tokens;   // of a text at most; none: as the folder says
  std::string dtype = "float32";
  std::vector<std::string> overrides;  // of a folder's job
  int64_t timeout_s = 600;
};

struct ChatArgs {
  GenerateArgs generate;      // the model and how its answers are drawn
  std::string system;         // what the system says first
  std::string chat_template;  // file, or a folder that has one; empty: the model's own
  std::string variables;      // JSON, an object: what the template asks for besides
  int64_t context = 2048;     // tokens of a whole conversation
};

enum class TokenizerAction : uint8_t { kEncode, kDecode, kTrain, kRender };

struct TokenizerArgs {
  TokenizerAction action = TokenizerAction::kEncode;
  std::string path;           // of the tokenizer
  std::string text;           // kEncode: one of the three
  std::string file;           // "-": stdin
  std::string jsonl;          // also of kDecode
  bool special = true;        // kEncode: with the tokens around a text
  std::vector<uint32_t> ids;  // kDecode
  bool show_special = false;
  std::vector<std::string> files;  // kTrain
  std::string out;
  int64_t vocabulary = 32'000;
  int64_t least_count = 2;
  std::vector<std::string> special_tokens;  // empty: the trainer's own
  std::string template_name = "default";    // kRender: one of several
  std::string tools;                        // files with JSON; empty: none
  std::string variables;
  std::string now;      // "2026-11-26T12:00:00"; empty: the time
  bool prompt = false;  // ends where an answer begins
};

}  // namespace meshwright::cli
