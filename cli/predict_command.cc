// predict: what the model of a job says to a text.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/connect.h"
#include "cli/job_codec.h"
#include "cli/pending_session.h"
#include "cli/predict_file.h"
#include "cli/predict_hidden.h"
#include "cli/predict_lines.h"
#include "cli/predict_rows.h"
#include "cli/predict_text.h"
#include "cli/text_codec.h"
#include "client/evaluation.h"
#include "report/prediction.h"

namespace meshwright::cli {
namespace {

struct Asked {
  std::unique_ptr<client::Session> session;
  std::string format;  // of the job's data
  ir::JobRequest job;
};

// A job that runs is asked between its steps; of one that has ended, the weights, by a job of its
// own, which is there once something is asked.
Result<Asked> Open(client::Client& client, const PredictArgs& args) {
  MW_ASSIGN_OR_RETURN(const client::JobInfo info, client.Get(args.id));
  MW_ASSIGN_OR_RETURN(const proto::JobDescription description, client.Describe(args.id));
  const client::SessionOptions options{.open_timeout_ms = args.timeout_s * 1000,
                                       .timeout_ms = args.timeout_s * 1000};
  Asked asked{nullptr, TokenFormatOf(description.job.data), description.job};
  if (!client::IsTerminal(info.state)) {
    MW_ASSIGN_OR_RETURN(asked.session, client.AttachSession(args.id, options));
    return asked;
  }
  MW_ASSIGN_OR_RETURN(const ir::JobRequest job, client::PredictionOf(description, args.id));
  asked.session = std::make_unique<PendingSession>(
      job, [&client, job, options] { return client.OpenSession(job, options); });
  return asked;
}

// What the vocabulary lacks is known before anything is asked.
Status CheckAsked(const ir::JobRequest& job, const std::vector<int32_t>& tokens) {
  const ir::JobProgram* const program = job.FindProgram(kPredictProgram);
  if (program == nullptr) return OkStatus();
  for (const ir::NamedValue& output : program->graph.outputs) {
    const ir::TensorType& type = program->graph.type(output.value);
    if (output.name != kLogitsOutput || type.rank() != 3) continue;
    MW_TRY(CheckTokens(tokens, type.dims.back()));
  }
  return OkStatus();
}

// How a token reads, on its own.
using TokenText = std::function<std::string(int32_t token)>;

// `codec`: of texts; tokens are shown as they are given.
TokenText TextOf(const PredictArgs& args, TextCodec* codec) {
  if (!args.tokens.empty()) return [](int32_t token) { return std::to_string(token); };
  if (codec->is_bytes()) return [](int32_t token) { return report::ByteText(token); };
  return [codec](int32_t token) {
    std::string text = codec->Put(token);
    return text + codec->End();
  };
}

void Print(const report::Prediction& prediction, const PredictArgs& args, const TokenText& text,
           bool json) {
  if (json) {
    nlohmann::ordered_json object = {{"job", args.id}, {"predicted", prediction.predicted}};
    object["loss"] = std::isnan(prediction.loss) ? nlohmann::ordered_json()
                                                 : nlohmann::ordered_json(prediction.loss);
    object["next"] = nlohmann::ordered_json::array();
    for (const report::Likely& next : prediction.next) {
      object["next"].push_back(
          {{"token", next.id}, {"text", text(next.id)}, {"probability", next.probability}});
    }
    fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return;
  }
  if (prediction.predicted > 0) {
    fmt::print("loss {:.4f} nats per token over {} tokens\n", prediction.loss,
               prediction.predicted);
  }
  fmt::print("next:\n");
  for (const report::Likely& next : prediction.next) {
    fmt::print("  {:>6.2f} %  {}\n", 100 * next.probability,
               args.tokens.empty() ? fmt::format("'{}'", text(next.id)) : text(next.id));
  }
}

// Whole rows as the model is trained on them, texts by the job's tokenizer, else rows as the job
// reads them.
Result<int64_t> PredictRows(const PredictArgs& args, const Asked& asked) {
  if (args.format.empty() || args.format == "jsonl") {
    MW_ASSIGN_OR_RETURN(const auto rows, RowsToAsk(asked.job, args.data));
    if (rows) return PredictRecords(*asked.session, args, *rows);
  }
  if (args.format == "text") {
    MW_ASSIGN_OR_RETURN(const auto rows, RowsOfJob(asked.job));
    if (rows && rows->kind != models::SampleKind::kWindow) {
      return Fail(FailedPrecondition(
          fmt::format("the model of job {} is asked by rows, not by a running text: leave out "
                      "--format text, and give JSON lines (docs/data.md) or images",
                      args.id)));
    }
  }
  if (IsPlainText(args.data, args.format, asked.format)) {
    MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(*asked.session, args.id));
    MW_TRY(CheckWindow(inputs));
    MW_ASSIGN_OR_RETURN(const TextCodec codec, CodecOfJob(asked.job, args.id));
    const int64_t positions = inputs.at(kWindowInput).dims[1] - 1;
    MW_ASSIGN_OR_RETURN(auto windows, WindowsOfTexts(args.data, codec, positions));
    return PredictTexts(*asked.session, args, std::move(windows));
  }
  MW_ASSIGN_OR_RETURN(const bool lines, AreLinesOfTexts(args.data, args.format));
  if (!lines) return PredictFile(*asked.session, args, asked.format);
  MW_ASSIGN_OR_RETURN(const TextCodec codec, CodecOfJob(asked.job, args.id));
  MW_ASSIGN_OR_RETURN(auto texts, TokensOfLines(args.data, codec));
  return PredictTexts(*asked.session, args, std::move(texts));
}

void PrintClasses(const PredictArgs& args, const models::ModelRows& rows,
                  const std::vector<report::Likely>& classes, bool json) {
  if (!json) fmt::print("class:\n");
  nlohmann::ordered_json object = {{"job", args.id}, {"classes", nlohmann::ordered_json::array()}};
  for (const report::Likely& one : classes) {
    const std::string name = models::LabelName(rows, one.id);
    if (!json) fmt::print("  {:>6.2f} %  {}\n", 100 * one.probability, name);
    object["classes"].push_back({{"label", name}, {"probability", one.probability}});
  }
  if (json) fmt::print("{}\n", object.dump());
}

void PrintHidden(const PredictArgs& args, const std::vector<HiddenToken>& hidden,
                 const TokenText& text, bool json) {
  nlohmann::ordered_json object = {{"job", args.id}, {"hidden", nlohmann::ordered_json::array()}};
  for (const HiddenToken& one : hidden) {
    if (!json) fmt::print("token {}:\n", one.position);
    nlohmann::ordered_json likely = nlohmann::ordered_json::array();
    for (const report::Likely& next : one.likely) {
      const std::string said = text(next.id);
      if (!json) fmt::print("  {:>6.2f} %  {}\n", 100 * next.probability, said);
      likely.push_back({{"token", next.id}, {"text", said}, {"probability", next.probability}});
    }
    object["hidden"].push_back({{"position", one.position}, {"likely", std::move(likely)}});
  }
  if (!json) return;
  fmt::print("{}\n", object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

// What class a text is of.
Result<int> PredictClass(const PredictArgs& args, const Asked& asked, bool json) {
  if (!args.tokens.empty()) {
    return Fail(InvalidArgument(
        fmt::format("--tokens is for language models, and the model of job {} reads whole rows; "
                    "give a text",
                    args.id)));
  }
  MW_ASSIGN_OR_RETURN(const TempDir folder, TempDir::Make("meshwright-predict"));
  MW_ASSIGN_OR_RETURN(const AskedRows rows,
                      TextToAsk(asked.job, args.id, args.text, folder.path()));
  const auto classes = PredictClasses(*asked.session, args, rows);
  const Status closed = asked.session->Close();
  MW_TRY(classes);
  MW_TRY(closed);
  PrintClasses(args, rows.rows, *classes, json);
  return kExitOk;
}

Result<int> Predict(const PredictArgs& args, const GlobalArgs& global) {
  MW_ASSIGN_OR_RETURN(const auto client, ConnectAs("predict", global));
  MW_ASSIGN_OR_RETURN(Asked asked, Open(*client, args));
  if (!args.data.empty()) {
    MW_ASSIGN_OR_RETURN(const int64_t rows, PredictRows(args, asked));
    MW_TRY(asked.session->Close());
    if (global.json) {
      fmt::print(
          "{}\n",
          nlohmann::ordered_json{{"job", args.id}, {"rows", rows}, {"out", args.out}}.dump());
    } else {
      fmt::print("{} rows written to {}\n", rows, args.out);
    }
    return kExitOk;
  }
  MW_ASSIGN_OR_RETURN(const auto rows, RowsOfJob(asked.job));
  if (rows && rows->kind != models::SampleKind::kWindow) {
    return PredictClass(args, asked, global.json);
  }
  std::vector<int32_t> tokens;
  TextCodec codec = TextCodec::OfBytes();
  if (!args.tokens.empty()) {
    MW_ASSIGN_OR_RETURN(tokens, report::ParseTokens(args.tokens));
  } else {
    MW_ASSIGN_OR_RETURN(codec, CodecOfJob(asked.job, args.id));
    MW_ASSIGN_OR_RETURN(tokens, codec.Encode(args.text));
  }
  if (IsAskedForHidden(asked.job)) {
    MW_ASSIGN_OR_RETURN(const auto mask, MaskOfJob(asked.job));
    const auto hidden = PredictHidden(*asked.session, tokens, mask.value_or(-1), args.id, args.top);
    const Status closed = asked.session->Close();
    MW_TRY(hidden);
    MW_TRY(closed);
    PrintHidden(args, *hidden, TextOf(args, &codec), global.json);
    return kExitOk;
  }
  MW_TRY(CheckAsked(asked.job, tokens));
  const auto prediction = PredictText(*asked.session, std::move(tokens), args.id, args.top);
  const Status closed = asked.session->Close();
  MW_TRY(prediction);
  MW_TRY(closed);
  Print(*prediction, args, TextOf(args, &codec), global.json);
  return kExitOk;
}

}  // namespace

int RunPredict(const PredictArgs& args, const GlobalArgs& global) {
  const Result<int> code = Predict(args, global);
  return code ? *code : ReportError(code.error());
}

}  // namespace meshwright::cli
