// embed: texts as vectors, by the model of a Hugging Face folder or of a job.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/folder_job.h"
#include "cli/job_codec.h"
#include "cli/row_files.h"
#include "cli/sentence_folder.h"
#include "cli/text_codec.h"
#include "client/embedding.h"
#include "client/evaluation.h"
#include "config/tuning.h"
#include "data/npy_header.h"
#include "ir/adapters.h"

namespace meshwright::cli {
namespace {

using client::TextTokens;

// What stands in a file or on the command line, each with what errors call it.
struct NamedTexts {
  std::vector<std::string> texts;
  std::vector<std::string> names;  // "line 3", "text 2"
};

bool SaysNothing(std::string_view line) { return line.find_first_not_of(" \t") == line.npos; }

Result<std::string> TextOfJson(std::string_view line) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  const auto text = object.is_object() ? object.find("text") : object.end();
  if (text != object.end() && text->is_string()) return text->get<std::string>();
  return Fail(InvalidArgument("is no object with \"text\", a text"));
}

// Of JSON, blank lines are no rows; a note names them, since what is written has fewer rows than
// the file lines.
void PrintPassedOver(const std::string& path, const std::vector<int64_t>& blank) {
  if (blank.empty()) return;
  const std::string more =
      blank.size() > 1 ? fmt::format(" (and {} more)", blank.size() - 1) : std::string();
  fmt::print(stderr, "note: {}: line {} is blank{}: passed over\n", path, blank[0], more);
}

// A text of each line; behind the last line end there is none. A plain line without a text is an
// error, so that vector n is always that of line n.
Result<NamedTexts> LinesOf(const std::string& path) {
  MW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  const bool json = path.ends_with(".jsonl");
  NamedTexts lines;
  std::vector<int64_t> blank;
  std::string_view rest = bytes;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (SaysNothing(line) && !json) {
      return Fail(InvalidArgument(
          fmt::format("{}: line {} is blank, and a vector is of a text: take the line out, or say "
                      "it as {{\"text\": \"\"}} in a file .jsonl",
                      path, number)));
    }
    if (SaysNothing(line)) {
      blank.push_back(number);
      continue;
    }
    Result<std::string> text = json ? TextOfJson(line) : Result<std::string>(std::string(line));
    if (!text.has_value()) {
      return Fail(text.error().WithContext(fmt::format("{}: JSON at line {}", path, number)));
    }
    lines.texts.push_back(*std::move(text));
    lines.names.push_back(fmt::format("{}: line {}", path, number));
  }
  if (lines.texts.empty()) return Fail(InvalidArgument(fmt::format("{} has no text", path)));
  PrintPassedOver(path, blank);
  return lines;
}

Result<NamedTexts> TextsOf(const EmbedArgs& args) {
  if (!args.file.empty()) return LinesOf(args.file);
  NamedTexts given{args.texts, {}};
  for (size_t i = 0; i < args.texts.size(); ++i) {
    given.names.push_back(fmt::format("text {}", i + 1));
  }
  return given;
}

// What makes vectors, before it is a job of these texts.
struct Encoder {
  models::Model model;
  ir::JobRequest job;  // with weights, where it is of a job that ended
  ir::LoraSpec lora;
  TextCodec codec = TextCodec::OfBytes();
  std::optional<int32_t> first;  // stands before each text of bytes
  SentenceFolder sentences;
  std::optional<config::JobConfig> folder;  // whose weights are to be sent
  ir::DType dtype = ir::DType::kF32;
};

Status CheckEncodes(const models::Model& model) {
  if (model.functions.encode) return OkStatus();
  return Unimplemented(
      fmt::format("model '{}' makes no vectors of texts: embed takes models whose tokens see the "
                  "whole text, such as 'bert'",
                  model.name));
}

// The user's word counts before the folder's.
Status TakeArgs(const EmbedArgs& args, SentenceFolder& sentences) {
  if (!args.pooling.empty()) {
    MW_ASSIGN_OR_RETURN(const client::Pooling pooling, client::ParsePooling(args.pooling));
    sentences.rules.poolings = {pooling};
  }
  if (args.normalised) sentences.rules.normalised = *args.normalised;
  if (args.tokens) sentences.most_tokens = args.tokens;
  return OkStatus();
}

ir::DType DTypeOf(const config::JobConfig& config) {
  return config.dtype == "float64" ? ir::DType::kF64 : ir::DType::kF32;
}

Result<Encoder> OfFolder(const EmbedArgs& args) {
  std::error_code error;
  if (!std::filesystem::is_directory(args.model, error)) {
    return Fail(InvalidArgument(fmt::format(
        "'{}' is neither the id of a job nor a folder with a model's config.json", args.model)));
  }
  Encoder encoder;
  MW_ASSIGN_OR_RETURN(encoder.sentences, ReadSentenceFolder(args.model));
  const std::string& folder = encoder.sentences.model;
  // The shapes of programs are those of the texts.
  MW_ASSIGN_OR_RETURN(encoder.folder, FolderConfig({folder, args.dtype, args.overrides}, 1));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(*encoder.folder));
  MW_ASSIGN_OR_RETURN(const client::FineTuning tuning, config::TuningOf(*encoder.folder));
  MW_ASSIGN_OR_RETURN(
      encoder.job, client::PredictionOf(prepared.request, fmt::format("embed by {}", args.model)));
  MW_ASSIGN_OR_RETURN(encoder.codec, TextCodec::OfFolder(folder));
  encoder.model = std::move(prepared.model);
  encoder.lora = tuning.lora;
  encoder.dtype = DTypeOf(*encoder.folder);
  return encoder;
}

// As the rows of the job are made of texts.
Status TakeCodec(const ir::JobRequest& job, int64_t id, const config::JobConfig& config,
                 Encoder& encoder) {
  if (encoder.model.rows.kind == models::SampleKind::kWindow) {
    MW_ASSIGN_OR_RETURN(encoder.codec, CodecOfJob(job, id));
    return OkStatus();
  }
  MW_ASSIGN_OR_RETURN(PairCodec rows, PairCodecOfJob(job, id));
  encoder.codec = std::move(rows.codec);
  if (RowTokenizerOf(config).empty()) encoder.first = static_cast<int32_t>(kStartOfBytes);
  return OkStatus();
}

Result<Encoder> OfJob(client::Client& client, const EmbedArgs& args) {
  const int64_t id = std::stoll(args.model);
  if (!args.overrides.empty()) {
    return Fail(InvalidArgument("--set is for the model of a folder; a job has its layout"));
  }
  if (args.dtype != EmbedArgs().dtype) {
    return Fail(InvalidArgument("--dtype is for the model of a folder; a job has its own"));
  }
  MW_ASSIGN_OR_RETURN(const client::JobInfo info, client.Get(id));
  if (!client::IsTerminal(info.state)) {
    return Fail(FailedPrecondition(
        fmt::format("job {} is {}: it makes vectors once it has ended (meshwright wait {})", id,
                    client::JobStateName(info.state), id)));
  }
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client.Describe(id));
  if (description.job.config_text.empty()) {
    return Fail(FailedPrecondition(fmt::format(
        "job {} was made by a program, not a job file, so nothing says how its model reads texts",
        id)));
  }
  config::ConfigSource source;
  source.text = description.job.config_text;
  source.file = fmt::format("the file of job {}", id);
  source.environment_names = {};
  MW_ASSIGN_OR_RETURN(const config::JobConfig config, config::ParseJobConfig(source));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  MW_ASSIGN_OR_RETURN(const client::FineTuning tuning, config::TuningOf(config));
  Encoder encoder;
  encoder.model = std::move(prepared.model);
  MW_TRY(CheckEncodes(encoder.model));
  if (FileExists(config.hf_path + "/.")) {
    MW_ASSIGN_OR_RETURN(encoder.sentences, ReadSentenceFolder(config.hf_path));
  }
  MW_TRY(TakeCodec(description.job, id, config, encoder));
  MW_ASSIGN_OR_RETURN(encoder.job, client::PredictionOf(description, id));
  encoder.job.name = fmt::format("embed by job {}", id);
  encoder.lora = tuning.lora;
  encoder.dtype = DTypeOf(config);
  return encoder;
}

// Tokens that a text may have; 0: any.
int64_t MostTokens(const Encoder& encoder) {
  const int64_t positions = encoder.model.max_sequence;
  const int64_t said = encoder.sentences.most_tokens.value_or(positions);
  return positions > 0 && said > 0 ? std::min(said, positions) : std::max(said, positions);
}

// A text that is too long keeps the token that ends it.
Result<TextTokens> TokensOf(const std::string& text, const Encoder& encoder) {
  MW_ASSIGN_OR_RETURN(TextTokens tokens, encoder.codec.Encode(text));
  if (encoder.first) tokens.insert(tokens.begin(), *encoder.first);
  if (tokens.empty()) return Fail(InvalidArgument("has no token"));
  const int64_t most = MostTokens(encoder);
  if (most > 0 && std::ssize(tokens) > most) {
    const int32_t end = tokens.back();
    tokens.resize(static_cast<size_t>(most));
    tokens.back() = end;
  }
  for (const int32_t token : tokens) {
    if (token >= 0 && token < encoder.model.vocabulary) continue;
    return Fail(InvalidArgument(
        fmt::format("has token {}, and the model knows {} (vocab_size): tokenizer and model are "
                    "not of one folder",
                    token, encoder.model.vocabulary)));
  }
  return tokens;
}

Result<std::vector<TextTokens>> AllTokens(const NamedTexts& given, const Encoder& encoder) {
  std::vector<TextTokens> all;
  for (size_t i = 0; i < given.texts.size(); ++i) {
    auto tokens = TokensOf(given.texts[i], encoder);
    if (!tokens) return Fail(tokens.error().WithContext(given.names[i]));
    all.push_back(*std::move(tokens));
  }
  return all;
}

client::EmbedShape ShapeOf(const std::vector<TextTokens>& texts, const EmbedArgs& args,
                           const Encoder& encoder) {
  client::EmbedLimits limits;
  limits.rows = args.rows;
  limits.positions = encoder.model.max_sequence;
  limits.rows_divisor = std::max<int64_t>(1, encoder.job.parallel.data);
  limits.dtype = encoder.dtype;
  return client::EmbedShapeFor(texts, encoder.sentences.rules, limits);
}

// The one program of the job, with the model's adapters in it.
Result<ir::JobRequest> EmbeddingJob(client::Client& client, const Encoder& encoder,
                                    const client::EmbedShape& shape) {
  MW_ASSIGN_OR_RETURN(ir::JobProgram program, client::EmbedProgram(shape, encoder.model.functions));
  if (encoder.lora.rank > 0) {
    MW_ASSIGN_OR_RETURN(program.graph, ir::WithAdapters(program.graph, encoder.lora));
  }
  ir::JobRequest job = encoder.job;
  job.programs = {std::move(program)};
  job.driver = {ir::DriverKind::kClient, "", 0, 0};
  job.train.global_batch = shape.rows;
  if (!encoder.folder) return job;
  return WithFolderWeights(client, *encoder.folder, std::move(job));
}

std::string NumbersOf(std::span<const double> vector, ir::DType dtype) {
  if (dtype == ir::DType::kF64) return fmt::format("{}", fmt::join(vector, ","));
  const std::vector<float> narrow(vector.begin(), vector.end());
  return fmt::format("{}", fmt::join(narrow, ","));
}

std::string LineOf(const std::string& text, std::span<const double> vector, ir::DType dtype) {
  const std::string quoted =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return fmt::format("{{\"text\":{},\"vector\":[{}]}}\n", quoted, NumbersOf(vector, dtype));
}

Result<std::string> NpyOf(const client::Embeddings& vectors, int64_t texts, ir::DType dtype) {
  const bool wide = dtype == ir::DType::kF64;
  MW_ASSIGN_OR_RETURN(
      std::string bytes,
      data::MakeNpyHeader(wide ? ir::Element::kF64 : ir::Element::kF32, {texts, vectors.width}));
  const auto append = [&bytes](const auto& values) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  if (wide) {
    append(vectors.values);
  } else {
    append(std::vector<float>(vectors.values.begin(), vectors.values.end()));
  }
  return bytes;
}

// "" and "json": lines on stdout.
bool ToStdout(const EmbedArgs& args) { return args.out.empty() || args.out == "json"; }

Status Write(const EmbedArgs& args, const std::vector<std::string>& texts,
             const client::Embeddings& vectors, ir::DType dtype) {
  MW_CHECK(std::ssize(vectors.values) == std::ssize(texts) * vectors.width)
      << texts.size() << " texts, vectors of " << vectors.width;
  if (args.out.ends_with(".npy")) {
    MW_ASSIGN_OR_RETURN(const std::string bytes, NpyOf(vectors, std::ssize(texts), dtype));
    return WriteFileAtomic(args.out, bytes);
  }
  std::string lines;
  for (size_t i = 0; i < texts.size(); ++i) lines += LineOf(texts[i], vectors.of(i), dtype);
  if (!ToStdout(args)) return WriteFileAtomic(args.out, lines);
  fmt::print("{}", lines);
  return OkStatus();
}

// What needs no cluster to be wrong.
Status CheckArgs(const EmbedArgs& args) {
  if (ToStdout(args) || args.out.ends_with(".npy") || args.out.ends_with(".jsonl")) {
    return OkStatus();
  }
  return InvalidArgument(
      fmt::format("--out {}: the name says the format: .jsonl or .npy", args.out));
}

Result<int> Embed(const EmbedArgs& args, const GlobalArgs& global) {
  MW_TRY(CheckArgs(args));
  MW_ASSIGN_OR_RETURN(const NamedTexts given, TextsOf(args));
  const std::vector<std::string>& texts = given.texts;
  MW_ASSIGN_OR_RETURN(const auto client, ConnectAs("embed", global));
  MW_ASSIGN_OR_RETURN(Encoder encoder, IsJobId(args.model) ? OfJob(*client, args) : OfFolder(args));
  MW_TRY(CheckEncodes(encoder.model));
  MW_TRY(TakeArgs(args, encoder.sentences));
  MW_ASSIGN_OR_RETURN(const std::vector<TextTokens> tokens, AllTokens(given, encoder));
  const client::EmbedShape shape = ShapeOf(tokens, args, encoder);
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, EmbeddingJob(*client, encoder, shape));
  const client::SessionOptions options{.open_timeout_ms = args.timeout_s * 1000,
                                       .timeout_ms = args.timeout_s * 1000};
  const auto session = client->OpenSession(job, options);
  if (!session.has_value()) return ReportUnopened(*client, session.error());
  const auto vectors = client::EmbedTexts(**session, shape, tokens, encoder.sentences.rules);
  const Status closed = (*session)->Close();
  MW_TRY(vectors);
  MW_TRY(closed);
  MW_TRY(Write(args, texts, *vectors, encoder.dtype));
  if (ToStdout(args)) return kExitOk;
  if (global.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"model", args.model},
                                              {"texts", texts.size()},
                                              {"width", vectors->width},
                                              {"out", args.out}}
                           .dump());
  } else {
    fmt::print("{} vectors of {} numbers written to {}\n", texts.size(), vectors->width, args.out);
  }
  return kExitOk;
}

}  // namespace

int RunEmbed(const EmbedArgs& args, const GlobalArgs& global) {
  const Result<int> code = Embed(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
