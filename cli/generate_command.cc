// generate: text by a model, of a Hugging Face folder or of a job.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/folder_job.h"
#include "cli/generation_settings.h"
#include "cli/job_codec.h"
#include "cli/output.h"
#include "cli/page_writer.h"
#include "cli/predict_text.h"
#include "cli/text_codec.h"
#include "cli/text_writer.h"
#include "cli/writing_job.h"
#include "generation/engine.h"
#include "generation/settings.h"
#include "generation/write_beams.h"
#include "generation/write_text.h"

namespace meshwright::cli {
namespace {

// What writes: a model that answers, and how its tokens are read.
struct Writer {
  std::unique_ptr<client::Session> session;
  TextCodec codec = TextCodec::OfBytes();
  generation::Settings settings;
  int64_t positions = 0;
  int64_t job_id = 0;
  // Of the session's programs over pages; none: it has only "predict", which sees whole texts.
  std::optional<generation::PagedPlan> pages = {};
  // What a decoder reads first: the prompt is a source then.
  std::optional<int32_t> start = {};
};

void Take(const WritingJob& writing, Writer& writer) {
  writer.positions = writing.positions;
  writer.pages = writing.pages;
  writer.start = writing.start;
}

// The user's word counts before the model's.
generation::Sampling SamplingOf(const GenerateArgs& args, generation::Sampling sampling) {
  sampling.temperature = args.temperature.value_or(sampling.temperature);
  sampling.top_k = args.top_k.value_or(sampling.top_k);
  sampling.top_p = args.top_p.value_or(sampling.top_p);
  sampling.min_p = args.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = args.repetition_penalty.value_or(sampling.repetition_penalty);
  // Whoever names how to draw wants tokens drawn.
  const bool likeliest = args.greedy || args.num_beams.value_or(1) > 1;
  sampling.draws = likeliest ? false
                             : sampling.draws || args.temperature || args.top_k || args.top_p ||
                                   args.min_p || args.seed;
  if (sampling.temperature == 0) {
    sampling.draws = false;
    sampling.temperature = 1;
  }
  return sampling;
}

// The user's word counts before the model's. Whoever names how to draw wants no search.
generation::BeamOptions BeamsOf(const GenerateArgs& args, const generation::Settings& settings) {
  generation::BeamOptions beams = settings.beams;
  const bool draws = SamplingOf(args, settings.sampling).draws;
  beams.beams = args.num_beams.value_or(draws ? 1 : beams.beams);
  beams.length_penalty = args.length_penalty.value_or(beams.length_penalty);
  const auto early = generation::ParseEarlyStop(args.early_stopping);
  if (early) beams.early_stopping = *early;
  return beams;
}

client::SessionOptions SessionOptionsOf(const GenerateArgs& args) {
  return {.open_timeout_ms = args.timeout_s * 1000, .timeout_ms = args.timeout_s * 1000};
}

// How many tokens fit: of the window that the program takes.
Status ReadPositions(Writer& writer) {
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(*writer.session, writer.job_id));
  MW_TRY(CheckWindow(inputs));
  writer.positions = inputs.at(kWindowInput).dims[1] - 1;
  return OkStatus();
}

// A job that runs is asked between its steps; of one that has ended, the weights.
Result<Writer> OfJob(client::Client& client, const GenerateArgs& args) {
  Writer writer;
  writer.job_id = std::stoll(args.model);
  MW_ASSIGN_OR_RETURN(const client::JobInfo info, client.Get(writer.job_id));
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client.Describe(writer.job_id));
  const bool runs = !client::IsTerminal(info.state);
  MW_TRY(CheckWrites(description.job, /*alone=*/runs));
  if (ReadsSources(description.job)) {
    MW_ASSIGN_OR_RETURN(PairCodec pairs, PairCodecOfJob(description.job, writer.job_id));
    writer.codec = std::move(pairs.codec);
    MW_ASSIGN_OR_RETURN(writer.settings, SettingsOfJob(description.job, writer.job_id));
    if (pairs.end) writer.settings.stops.insert(*pairs.end);
  } else {
    MW_ASSIGN_OR_RETURN(writer.codec, CodecOfJob(description.job, writer.job_id));
    MW_ASSIGN_OR_RETURN(writer.settings, SettingsOfJob(description.job, writer.job_id));
  }
  const client::SessionOptions options = SessionOptionsOf(args);
  if (runs) {
    MW_ASSIGN_OR_RETURN(writer.session, client.AttachSession(writer.job_id, options));
  } else {
    MW_ASSIGN_OR_RETURN(
        const WritingJob writing,
        WritingJobOf(description, writer.job_id, BeamsOf(args, writer.settings).beams));
    MW_ASSIGN_OR_RETURN(writer.session, client.OpenSession(writing.job, options));
    Take(writing, writer);
  }
  if (!writer.pages) MW_TRY(ReadPositions(writer));
  return writer;
}

// Files of two models in one folder.
Status CheckTokens(const std::vector<int32_t>& tokens, int64_t vocabulary,
                   const std::string& folder) {
  for (const int32_t token : tokens) {
    if (token < vocabulary) continue;
    return InvalidArgument(
        fmt::format("{0}: by tokenizer.json the prompt has token {1}, and by config.json "
                    "(vocab_size) the model knows {2}: they are of two models",
                    folder, token, vocabulary));
  }
  return OkStatus();
}

FolderModel FolderOf(const GenerateArgs& args) { return {args.model, args.dtype, args.overrides}; }

// Tokens that there is to be room for.
struct Room {
  int64_t positions = 0;  // of a text; of a source, where the model reads one
  int64_t written = 0;    // behind a source
};

// positions: what was asked for, prompts of any length; none: the prompt, and what is behind it.
Result<Room> RoomFor(const std::vector<int32_t>& prompt, const GenerateArgs& args,
                     const Writer& writer, const models::Model& model,
                     std::optional<int64_t> positions) {
  const bool reads = ReadsSources(model);
  // A decoder begins with one token.
  const int64_t before = reads ? 1 : static_cast<int64_t>(prompt.size());
  MW_ASSIGN_OR_RETURN(const int64_t more, MostNewTokens(args, writer.settings, before));
  const int64_t behind = reads ? 0 : more;
  // Distances between tokens of a source are between two of them.
  const int64_t least = reads ? 2 : 1;
  Room room;
  room.positions = positions.value_or(static_cast<int64_t>(prompt.size()) + behind);
  room.written = positions.value_or(more);
  for (int64_t* tokens : {&room.positions, &room.written}) {
    if (model.max_sequence > 0) *tokens = std::min(*tokens, model.max_sequence);
    *tokens = std::max(*tokens, least);
  }
  return room;
}

Result<Writer> OfFolder(client::Client& client, const GenerateArgs& args,
                        std::optional<int64_t> positions = {}) {
  Writer writer;
  MW_ASSIGN_OR_RETURN(writer.settings, SettingsOfFolder(args.model));
  MW_ASSIGN_OR_RETURN(writer.codec, TextCodec::OfFolder(args.model));
  MW_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, writer.codec.Encode(args.prompt));
  // A model says how many positions it has when it is made, for one.
  MW_ASSIGN_OR_RETURN(config::JobConfig config, FolderConfig(FolderOf(args), 1));
  MW_ASSIGN_OR_RETURN(config::PreparedJob prepared, config::PrepareJob(config));
  MW_TRY(CheckTokens(prompt, prepared.model.vocabulary, args.model));
  MW_ASSIGN_OR_RETURN(const Room room, RoomFor(prompt, args, writer, prepared.model, positions));
  MW_ASSIGN_OR_RETURN(config, FolderConfig(FolderOf(args), room.positions));
  MW_ASSIGN_OR_RETURN(prepared, config::PrepareJob(config));
  MW_ASSIGN_OR_RETURN(WritingJob writing, WritingJobOf(config, prepared, room.written,
                                                       BeamsOf(args, writer.settings).beams));
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job,
                      WithFolderWeights(client, config, std::move(writing.job)));
  MW_ASSIGN_OR_RETURN(writer.session, client.OpenSession(job, SessionOptionsOf(args)));
  Take(writing, writer);
  return writer;
}

Result<generation::Request> RequestOf(const GenerateArgs& args, const Writer& writer,
                                      std::vector<int32_t> prompt) {
  generation::Request request;
  request.prompt = std::move(prompt);
  if (writer.start) {
    request.source = std::exchange(request.prompt, {*writer.start});
  }
  request.sampling = SamplingOf(args, writer.settings.sampling);
  const auto before = static_cast<int64_t>(request.prompt.size());
  MW_ASSIGN_OR_RETURN(request.max_new_tokens, MostNewTokens(args, writer.settings, before));
  request.rules = RulesOf(args, writer.settings);
  if (!args.ignore_stops) request.stops = writer.settings.stops;
  request.seed = args.seed.value_or(0);
  return request;
}

// The program sees the whole text each time.
generation::LogitsBehind Logits(client::Session& session, int64_t positions) {
  return [&session, positions](std::span<const int32_t> text) -> Result<std::vector<double>> {
    std::vector<int32_t> window(text.begin(), text.end());
    window.resize(static_cast<size_t>(positions + 1), 0);
    const client::Tensor input = client::Tensor::Of<int32_t>({1, positions + 1}, window);
    MW_ASSIGN_OR_RETURN(const client::Answer answer,
                        session.Run(kPredictProgram, {{kWindowInput, input}}));
    const auto count = static_cast<int64_t>(text.size());
    MW_TRY(CheckLogits(answer, count));
    return answer.tensors.at(kLogitsOutput).RealsOfRow(0, count - 1);
  };
}

// What is known of texts stays in pages; none: the program sees them whole.
std::optional<PageWriter> PagesOf(const Writer& writer) {
  if (!writer.pages) return std::nullopt;
  return std::optional<PageWriter>(std::in_place, writer.pages->limits(),
                                   generation::StepsOf(*writer.session, *writer.pages));
}

Result<generation::Written> WriteBy(const Writer& writer, std::optional<PageWriter>& pages,
                                    const generation::Request& request,
                                    const generation::OnToken& on_token) {
  if (pages) return pages->Write(request, on_token);
  return generation::WriteText(request, writer.positions, Logits(*writer.session, writer.positions),
                               on_token);
}

// What was written; of a search its score, too.
struct Outcome {
  generation::Written written;
  std::optional<double> score = {};
};

// The likeliest text, which is known when the search ends.
Result<Outcome> Search(const Writer& writer, const generation::Request& request,
                       const generation::BeamOptions& beams, const generation::OnToken& on_token) {
  if (!writer.pages) {
    return Fail(Unimplemented(
        "beams keep their texts in pages, and this model reads the whole text for each token: use "
        "--num-beams 1"));
  }
  MW_ASSIGN_OR_RETURN(
      const std::vector<generation::Hypothesis> texts,
      generation::WriteBeams(writer.pages->limits(),
                             generation::StepsOf(*writer.session, *writer.pages), request, beams));
  Outcome outcome;
  outcome.written.tokens = texts.front().tokens;
  outcome.score = texts.front().score;
  const auto count = static_cast<int64_t>(outcome.written.tokens.size());
  outcome.written.finish =
      count < request.max_new_tokens ? generation::Finish::kFull : generation::Finish::kLength;
  if (!texts.front().ended) outcome.written.finish = generation::Finish::kBarred;
  for (const int32_t token : outcome.written.tokens) {
    if (request.stops.contains(token)) outcome.written.finish = generation::Finish::kStop;
    if (!request.stops.contains(token)) on_token(token);
  }
  return outcome;
}

Result<Outcome> WriteOrSearch(const Writer& writer, const generation::Request& request,
                              const generation::BeamOptions& beams,
                              const generation::OnToken& on_token) {
  if (beams.beams > 1) return Search(writer, request, beams, on_token);
  std::optional<PageWriter> pages = PagesOf(writer);
  MW_ASSIGN_OR_RETURN(generation::Written written, WriteBy(writer, pages, request, on_token));
  return Outcome{std::move(written)};
}

const char* WhyEnded(generation::Finish finish) {
  switch (finish) {
    case generation::Finish::kStop:
      return "the model ended the text";
    case generation::Finish::kFull:
      return "all positions are used";
    case generation::Finish::kBarred:
      return "its rules (--no-repeat-ngram-size and such) leave no token";
    case generation::Finish::kLength:
      break;
  }
  return "--max-new-tokens";
}

void PrintEnd(const generation::Request& request, const Outcome& outcome, double seconds,
              const std::string& text, bool json) {
  const generation::Written& written = outcome.written;
  const double rate = seconds > 0 ? static_cast<double>(written.tokens.size()) / seconds : 0;
  if (json) {
    nlohmann::ordered_json object = {{"text", text},
                                     {"tokens", written.tokens},
                                     {"finish", generation::FinishName(written.finish)},
                                     {"seed", request.seed},
                                     {"tokens_per_s", rate}};
    if (outcome.score) object["score"] = *outcome.score;
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  fmt::print("\n");
  std::fflush(stdout);
  const std::string seed =
      request.sampling.draws ? fmt::format("; drawn by --seed {}", request.seed) : "";
  fmt::print(stderr, "{} tokens, {:.1f} per second; end: {}{}\n", written.tokens.size(), rate,
             WhyEnded(written.finish), seed);
}

// A job's model knows its rows alone; a folder's has all of its positions.
constexpr const char* kAboutRows =
    "texts of a job are as long as its rows (training.seq_len); the folder that `meshwright "
    "checkpoint export` makes of it writes up to what its model has";

Status AboutRows(const Status& status) {
  return Status(status.code(), fmt::format("{}; {}", status.message(), kAboutRows));
}

// What needs no cluster to be wrong.
Status CheckArgs(const GenerateArgs& args) {
  MW_TRY(generation::CheckSampling(SamplingOf(args, {})));
  MW_TRY(generation::CheckBeams(BeamsOf(args, {})));
  if (args.prompt.empty()) return InvalidArgument("the prompt is empty: give a text to go on from");
  if (IsJobId(args.model)) {
    if (!args.overrides.empty()) {
      return InvalidArgument("--set is for the model of a folder; a job has its layout");
    }
    if (args.dtype == GenerateArgs().dtype) return OkStatus();
    return InvalidArgument("--dtype is for the model of a folder; a job has its own");
  }
  std::error_code error;
  if (std::filesystem::is_directory(args.model, error)) return OkStatus();
  return InvalidArgument(fmt::format(
      "'{}' is neither the id of a job nor a folder with a model's config.json", args.model));
}

Result<int> Generate(const GenerateArgs& args, const GlobalArgs& global) {
  MW_TRY(CheckArgs(args));
  MW_ASSIGN_OR_RETURN(const auto client, ConnectAs("generate", global));
  Result<Writer> opened = IsJobId(args.model) ? OfJob(*client, args) : OfFolder(*client, args);
  if (!opened.has_value()) return ReportUnopened(*client, opened.error());
  Writer writer = *std::move(opened);
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> prompt, writer.codec.Encode(args.prompt));
  MW_ASSIGN_OR_RETURN(const generation::Request request,
                      RequestOf(args, writer, std::move(prompt)));
  std::string text;
  const auto show = [&](const std::string& part) {
    text += part;
    if (global.json) return;
    fmt::print("{}", part);
    std::fflush(stdout);
  };
  if (args.echo) show(args.prompt);
  const int64_t begin_ns = SystemClock().NowNs();
  const generation::BeamOptions beams = BeamsOf(args, writer.settings);
  const auto written = WriteOrSearch(writer, request, beams, [&](int32_t token) {
    show(writer.codec.Put(token));
    return true;
  });
  const double seconds = static_cast<double>(SystemClock().NowNs() - begin_ns) * 1e-9;
  const Status closed = writer.session->Close();
  const bool of_job = IsJobId(args.model);
  const bool too_long = std::ssize(request.prompt) > writer.positions && writer.positions > 0;
  if (!written.has_value() && of_job && too_long) return Fail(AboutRows(written.error()));
  MW_TRY(written);
  MW_TRY(closed);
  show(writer.codec.End());
  PrintEnd(request, *written, seconds, text, global.json);
  if (of_job && written->written.finish == generation::Finish::kFull) {
    fmt::print(stderr, "note: {}\n", kAboutRows);
  }
  return kExitOk;
}

class OpenedWriter final : public TextWriter {
 public:
  explicit OpenedWriter(Writer writer) : writer_(std::move(writer)), pages_(PagesOf(writer_)) {}
  TextCodec& codec() override { return writer_.codec; }
  int64_t positions() const override { return writer_.positions; }
  int64_t prompt_positions() const override {
    const bool reads = writer_.start && writer_.pages;
    return reads ? writer_.pages->limits().source_positions : writer_.positions;
  }
  Status Close() override { return writer_.session->Close(); }
  Result<generation::Written> Write(const GenerateArgs& args, std::vector<int32_t> prompt,
                                    const std::set<int32_t>& more_stops, uint64_t number,
                                    const generation::OnToken& on_token) override {
    MW_ASSIGN_OR_RETURN(generation::Request request, RequestOf(args, writer_, std::move(prompt)));
    if (!args.ignore_stops) request.stops.insert(more_stops.begin(), more_stops.end());
    request.number = number;
    return WriteBy(writer_, pages_, request, on_token);
  }

 private:
  Writer writer_;
  std::optional<PageWriter> pages_;  // for all of a conversation
};

}  // namespace

Result<std::unique_ptr<TextWriter>> OpenWriter(client::Client& client, const GenerateArgs& args,
                                               int64_t positions) {
  MW_TRY(CheckArgs(args));
  GenerateArgs alone = args;
  alone.num_beams = 1;  // what is shown token by token is not searched for
  MW_ASSIGN_OR_RETURN(Writer writer, IsJobId(args.model) ? OfJob(client, alone)
                                                         : OfFolder(client, alone, positions));
  return std::make_unique<OpenedWriter>(std::move(writer));
}

int RunGenerate(const GenerateArgs& args, const GlobalArgs& global) {
  const Result<int> code = Generate(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
