#include "cli/predict_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/predict_text.h"
#include "data/describe.h"
#include "data/npy_header.h"
#include "data/roots.h"
#include "data/source.h"
#include "report/prediction.h"

namespace meshwright::cli {
namespace {

constexpr const char* kStream = "data";
// Calls under way: what they bring and give out is in memory.
constexpr size_t kCallsAhead = 4;

std::string FormatOf(const PredictArgs& args, const std::string& of_job) {
  if (!args.format.empty()) return args.format;
  for (const char* known : {"npy", "safetensors"}) {
    if (args.data.front().ends_with(std::string(".") + known)) return known;
  }
  return of_job;
}

// The rows of the files, in their order: those of a validation, which has all of them.
struct Rows {
  std::unique_ptr<data::Source> source;
  std::vector<std::vector<int32_t>> texts = {};  // in its place: tokens of each row
  std::optional<models::ModelRows> classes = {};
  int64_t count = 0;
  int64_t batch = 0;
};

Result<ir::DataStream> StreamOf(const PredictArgs& args, const std::string& format) {
  data::FilesRequest request;
  request.stream = kStream;
  request.format = FormatOf(args, format);
  request.paths = args.data;
  request.validation_paths = args.data;
  return data::DescribeFiles(request);
}

Result<Rows> OpenRows(const PredictArgs& args, const ir::DataStream& stream,
                      const Signature& inputs) {
  data::StreamOptions options;
  Rows rows;
  for (const auto& [name, type] : inputs) {
    if (type.rank() == 0 || stream.Find(name) == nullptr) {
      return Fail(
          InvalidArgument(fmt::format("the program '{}' takes \"{}\" {}, which {} does not have",
                                      kPredictProgram, name, type.ToString(), args.data.front())));
    }
    if (rows.batch != 0 && rows.batch != type.dims[0]) {
      return Fail(InvalidArgument(fmt::format("the inputs of '{}' have {} and {} rows",
                                              kPredictProgram, rows.batch, type.dims[0])));
    }
    rows.batch = type.dims[0];
    if (stream.kind != ir::DataKind::kTokens) continue;
    if (type.rank() != 2 || type.dims[1] < 2) {
      return Fail(InvalidArgument(
          fmt::format("input \"{}\" of the program '{}' is {}, and windows of tokens are [batch, "
                      "positions + 1]; give files of records (.npy, .safetensors)",
                      name, kPredictProgram, type.ToString())));
    }
    options.sequence = type.dims[1] - 1;
  }
  if (rows.batch == 0) {
    return Fail(InvalidArgument(fmt::format("the program '{}' takes nothing", kPredictProgram)));
  }
  ir::DataSpec spec;
  spec.streams = {stream};
  MW_ASSIGN_OR_RETURN(rows.source, data::Source::Open(spec, options, [](const ir::FileRef& file) {
                        return data::OpenPlainFile(file.blob.name, file.blob.name);
                      }));
  rows.count = rows.source->Find(kStream)->counts().validation_samples;
  return rows;
}

// Texts as windows: their tokens, then zeros.
client::Feeds WindowsOf(const Rows& rows, const Signature& inputs, int64_t first) {
  const ir::TensorType& type = inputs.at(kWindowInput);
  const auto width = static_cast<size_t>(type.dims[1]);
  std::vector<int32_t> windows(static_cast<size_t>(type.elements()), 0);
  for (int64_t i = 0; i < rows.batch; ++i) {
    const auto& text = rows.texts[static_cast<size_t>(std::min(first + i, rows.count - 1))];
    std::copy(text.begin(), text.end(), windows.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  client::Feeds feeds;
  feeds.emplace(kWindowInput, client::Tensor::Of<int32_t>(type.dims, windows));
  return feeds;
}

// Rows from `first` on; where there are no more, the last one fills the batch.
Result<client::Feeds> ReadRows(Rows& rows, const Signature& inputs, int64_t first) {
  if (rows.source == nullptr) return WindowsOf(rows, inputs, first);
  client::Feeds feeds;
  for (const auto& [name, type] : inputs) {
    client::Tensor tensor{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
    const auto row_bytes = static_cast<size_t>(type.bytes() / rows.batch);
    for (int64_t i = 0; i < rows.batch; ++i) {
      const std::span<std::byte> row(tensor.data.data() + static_cast<size_t>(i) * row_bytes,
                                     row_bytes);
      MW_TRY(rows.source->Read(ir::ValidationFeed(fmt::format("{}/{}", kStream, name)),
                               std::min(first + i, rows.count - 1), {type.dtype, row}));
    }
    feeds.emplace(name, std::move(tensor));
  }
  return feeds;
}

// What becomes of the answers.
class Writer {
 public:
  virtual ~Writer() = default;
  // The first `count` rows of the answer, which are those from `first` on.
  virtual Status Add(const client::Feeds& feeds, const client::Answer& answer, int64_t first,
                     int64_t count) = 0;
};

Status CheckRows(const std::string& name, const client::Tensor& tensor, int64_t batch) {
  if (tensor.type.rank() > 0 && tensor.type.dims[0] == batch) return OkStatus();
  return InvalidArgument(fmt::format("output \"{}\" of '{}' is {}, which has no rows of its own",
                                     name, kPredictProgram, tensor.type.ToString()));
}

// The logits of a row's classes; null: the answer has none.
const client::Tensor* ClassLogits(const client::Answer& answer, const models::ModelRows& rows) {
  const auto logits = answer.tensors.find(kLogitsOutput);
  if (rows.labels == 0 || logits == answer.tensors.end()) return nullptr;
  const ir::TensorType& type = logits->second.type;
  const bool fits = type.rank() == 2 && type.dims[1] == rows.labels && ir::IsFloating(type.dtype);
  return fits ? &logits->second : nullptr;
}

// A line for each row: of a language model its loss and what comes next, else the tensors, and the
// likeliest class where there are some.
class JsonLines final : public Writer {
 public:
  // texts: the tokens of each row, where a window is filled up with zeros; else empty.
  JsonLines(std::ofstream file, int top, std::vector<std::vector<int32_t>> texts,
            std::optional<models::ModelRows> classes)
      : file_(std::move(file)), top_(top), texts_(std::move(texts)), classes_(std::move(classes)) {}

  Status Add(const client::Feeds& feeds, const client::Answer& answer, int64_t first,
             int64_t count) override {
    const client::Tensor* const window = WindowOf(feeds, answer);
    if (!texts_.empty()) MW_TRY(CheckLogits(answer, 1));
    if (window == nullptr) MW_TRY(CheckTensors(answer, feeds.begin()->second.type.dims[0]));
    for (int64_t i = 0; i < count; ++i) {
      nlohmann::ordered_json line = {{"row", first + i}};
      if (window != nullptr) {
        const std::vector<int32_t> tokens =
            texts_.empty() ? TokensOf(*window, i) : texts_[static_cast<size_t>(first + i)];
        MW_TRY(AddLanguage(tokens, answer, i, line).WithContext(fmt::format("row {}", first + i)));
      } else {
        AddClass(answer, i, line);
        for (const auto& [name, tensor] : answer.tensors) line[name] = tensor.RealsOfRow(i);
      }
      file_ << line.dump() << '\n';
    }
    file_.flush();
    return file_ ? OkStatus()
                 : ResourceExhausted("the file of --out could not be written; is its disk full?");
  }

 private:
  // Of a language model the tokens; null: the answer is tensors as any other.
  static const client::Tensor* WindowOf(const client::Feeds& feeds, const client::Answer& answer) {
    const auto window = feeds.find(kWindowInput);
    if (feeds.size() != 1 || window == feeds.end()) return nullptr;
    const ir::TensorType& type = window->second.type;
    if (!CheckWindow({{kWindowInput, type}}).ok()) return nullptr;
    const bool says = CheckLogits(answer, type.dims[1] - 1).ok() &&
                      answer.tensors.at(kLogitsOutput).type.dims[0] == type.dims[0];
    return says ? &window->second : nullptr;
  }
  static Status CheckTensors(const client::Answer& answer, int64_t batch) {
    if (answer.tensors.empty()) {
      return InvalidArgument(fmt::format(
          "the program '{}' gives out no tensor, only scalars of a whole batch: there is nothing "
          "to say of a row; name a tensor with SetOutput",
          kPredictProgram));
    }
    for (const auto& [name, tensor] : answer.tensors) MW_TRY(CheckRows(name, tensor, batch));
    return OkStatus();
  }

  // The last token of a window is a label only.
  static std::vector<int32_t> TokensOf(const client::Tensor& window, int64_t row) {
    const std::vector<double> tokens = window.RealsOfRow(row);
    return {tokens.begin(), tokens.end() - 1};
  }

  Status AddLanguage(const std::vector<int32_t>& tokens, const client::Answer& answer, int64_t row,
                     nlohmann::ordered_json& line) const {
    MW_ASSIGN_OR_RETURN(const report::Prediction prediction,
                        PredictionOf(answer, row, tokens, top_));
    line["predicted"] = prediction.predicted;
    line["loss"] = std::isnan(prediction.loss) ? nlohmann::ordered_json()
                                               : nlohmann::ordered_json(prediction.loss);
    line["next"] = nlohmann::ordered_json::array();
    for (const report::Likely& next : prediction.next) {
      line["next"].push_back({{"token", next.id}, {"probability", next.probability}});
    }
    return OkStatus();
  }

  void AddClass(const client::Answer& answer, int64_t row, nlohmann::ordered_json& line) const {
    const client::Tensor* const logits = classes_ ? ClassLogits(answer, *classes_) : nullptr;
    if (logits == nullptr) return;
    const report::Likely best = report::Likeliest(logits->RealsOfRow(row), 1).front();
    line["label"] = models::LabelName(*classes_, best.id);
    line["probability"] = best.probability;
  }

  std::ofstream file_;
  const int top_;
  const std::vector<std::vector<int32_t>> texts_;
  const std::optional<models::ModelRows> classes_;
};

// One tensor of all rows, as .npy: a header, then the values.
class Npy final : public Writer {
 public:
  Npy(std::ofstream file, int64_t rows) : file_(std::move(file)), rows_(rows) {}

  Status Add(const client::Feeds& feeds, const client::Answer& answer, int64_t,
             int64_t count) override {
    if (answer.tensors.size() != 1) {
      return InvalidArgument(
          fmt::format("'{}' gives out {} tensors; a .npy holds one: write a .jsonl",
                      kPredictProgram, answer.tensors.size()));
    }
    const auto& [name, tensor] = *answer.tensors.begin();
    MW_TRY(CheckRows(name, tensor, feeds.begin()->second.type.dims[0]));
    if (!std::exchange(begun_, true)) MW_TRY(WriteHeader(tensor.type));
    const auto bytes = static_cast<std::streamsize>(tensor.data.size()) / tensor.type.dims[0];
    file_.write(reinterpret_cast<const char*>(tensor.data.data()), bytes * count);
    file_.flush();
    return file_ ? OkStatus()
                 : ResourceExhausted("the file of --out could not be written; is its disk full?");
  }

 private:
  Status WriteHeader(const ir::TensorType& type) {
    const std::map<ir::DType, ir::Element> elements = {{ir::DType::kF32, ir::Element::kF32},
                                                       {ir::DType::kF64, ir::Element::kF64},
                                                       {ir::DType::kI32, ir::Element::kI32},
                                                       {ir::DType::kI64, ir::Element::kI64}};
    const auto element = elements.find(type.dtype);
    if (element == elements.end()) {
      return InvalidArgument(
          fmt::format("a .npy has no type for {}; write a .jsonl", ir::DTypeName(type.dtype)));
    }
    ir::Dims dims = type.dims;
    dims[0] = rows_;
    MW_ASSIGN_OR_RETURN(const std::string header, data::MakeNpyHeader(element->second, dims));
    file_ << header;
    return OkStatus();
  }

  std::ofstream file_;
  const int64_t rows_;
  bool begun_ = false;
};

Result<std::unique_ptr<Writer>> MakeWriter(const PredictArgs& args, const std::string& path,
                                           const Rows& rows) {
  const bool npy = args.out.ends_with(".npy");
  if (!npy && !args.out.ends_with(".jsonl")) {
    return Fail(InvalidArgument(
        fmt::format("--out {}: the name says the format: .jsonl or .npy", args.out)));
  }
  std::ofstream file(path, std::ios::binary);
  if (!file) return Fail(PermissionDenied(fmt::format("{} cannot be written", path)));
  if (npy) return std::unique_ptr<Writer>(std::make_unique<Npy>(std::move(file), rows.count));
  return std::unique_ptr<Writer>(
      std::make_unique<JsonLines>(std::move(file), args.top, rows.texts, rows.classes));
}

struct UnderWay {
  int64_t first = 0;
  client::Feeds feeds;
  std::future<Result<client::Answer>> answer;
};

// The rows, in order, with some calls under way.
Status Walk(client::Session& session, const PredictArgs& args, const Signature& inputs, Rows& rows,
            Writer& writer) {
  std::deque<UnderWay> calls;
  int64_t next = 0;
  while (next < rows.count || !calls.empty()) {
    if (next < rows.count && calls.size() < kCallsAhead) {
      MW_ASSIGN_OR_RETURN(client::Feeds feeds, ReadRows(rows, inputs, next));
      auto answer = session.Call(kPredictProgram, feeds, {});
      calls.push_back({next, std::move(feeds), std::move(answer)});
      next += rows.batch;
      continue;
    }
    UnderWay& call = calls.front();
    if (call.answer.wait_for(std::chrono::seconds(args.timeout_s)) != std::future_status::ready) {
      return DeadlineExceeded(
          fmt::format("no answer to row {} within {} s (--timeout-s)", call.first, args.timeout_s));
    }
    MW_ASSIGN_OR_RETURN(const client::Answer answer, call.answer.get());
    MW_TRY(
        writer.Add(call.feeds, answer, call.first, std::min(rows.batch, rows.count - call.first)));
    calls.pop_front();
  }
  return OkStatus();
}

Result<int64_t> WriteAnswers(client::Session& session, const PredictArgs& args,
                             const Signature& inputs, Rows rows) {
  // Whole, or not at all: it gets its name at the end.
  const std::string part = args.out + ".part";
  MW_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer, MakeWriter(args, part, rows));
  Status written = Walk(session, args, inputs, rows, *writer);
  if (written.ok() && std::rename(part.c_str(), args.out.c_str()) != 0) {
    written = PermissionDenied(fmt::format("{} cannot be renamed to {}", part, args.out));
  }
  if (written.ok()) return rows.count;
  std::remove(part.c_str());
  return Fail(written);
}

}  // namespace

Result<int64_t> PredictFile(client::Session& session, const PredictArgs& args,
                            const std::string& format) {
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(session, args.id));
  MW_ASSIGN_OR_RETURN(const ir::DataStream stream, StreamOf(args, format));
  MW_ASSIGN_OR_RETURN(Rows rows, OpenRows(args, stream, inputs));
  return WriteAnswers(session, args, inputs, std::move(rows));
}

Result<int64_t> PredictRecords(client::Session& session, const PredictArgs& args,
                               const AskedRows& asked) {
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(session, args.id));
  MW_ASSIGN_OR_RETURN(Rows rows, OpenRows(args, asked.stream, inputs));
  rows.classes = asked.rows;
  return WriteAnswers(session, args, inputs, std::move(rows));
}

Result<std::vector<report::Likely>> PredictClasses(client::Session& session,
                                                   const PredictArgs& args,
                                                   const AskedRows& asked) {
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(session, args.id));
  MW_ASSIGN_OR_RETURN(Rows rows, OpenRows(args, asked.stream, inputs));
  MW_ASSIGN_OR_RETURN(const client::Feeds feeds, ReadRows(rows, inputs, 0));
  MW_ASSIGN_OR_RETURN(const client::Answer answer, session.Run(kPredictProgram, feeds));
  const client::Tensor* const logits = ClassLogits(answer, asked.rows);
  if (logits == nullptr) {
    return Fail(FailedPrecondition(fmt::format("the program '{}' gives out no \"{}\" of {} classes",
                                               kPredictProgram, kLogitsOutput, asked.rows.labels)));
  }
  return report::Likeliest(logits->RealsOfRow(0), args.top);
}

Result<int64_t> PredictTexts(client::Session& session, const PredictArgs& args,
                             std::vector<std::vector<int32_t>> texts) {
  MW_ASSIGN_OR_RETURN(const Signature inputs, PredictSignature(session, args.id));
  MW_TRY(CheckWindow(inputs));
  const ir::Dims& dims = inputs.at(kWindowInput).dims;
  const int64_t positions = dims[1] - 1;
  for (std::vector<int32_t>& text : texts) {
    if (std::ssize(text) > positions) text.erase(text.begin(), text.end() - positions);
  }
  Rows rows;
  rows.count = std::ssize(texts);
  rows.batch = dims[0];
  rows.texts = std::move(texts);
  return WriteAnswers(session, args, inputs, std::move(rows));
}

}  // namespace meshwright::cli
