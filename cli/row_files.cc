#include "cli/row_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json_int.h"
#include "base/parallel.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "cli/job_data.h"
#include "cli/token_files.h"
#include "data/check_contents.h"
#include "data/counts.h"
#include "data/describe.h"
#include "data/join.h"
#include "data/paths.h"
#include "data/spans.h"
#include "formats/safetensors.h"
#include "tokenizer/tokenizer.h"

namespace meshwright::cli {
namespace {

using models::SampleKind;
using tokenizer::Tokenizer;
using Ids = std::vector<uint32_t>;

constexpr const char* kRowsMadeBy = "row files 2";  // another number: rows are made otherwise
constexpr size_t kRowNameLength = 40;

// The file that decides what a tokenizer does.
std::string FileOfTokenizer(const std::string& path) {
  return FileExists(path + "/.") ? Tokenizer::FileIn(path) : path;
}

struct Line {
  int64_t number = 0;  // from 1
  std::string_view text;
};

std::vector<Line> LinesOf(std::string_view text) {
  std::vector<Line> lines;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") != line.npos) lines.push_back({number, line});
  }
  return lines;
}

// Text `key` of a line, or nothing.
std::optional<std::string_view> TextOf(const nlohmann::json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_string()) return std::nullopt;
  return found->get_ref<const std::string&>();
}

// What spans of the rows' texts are, and what stands for them.
struct SpanPlan {
  data::SpanRules rules;
  data::SpanSizes sizes;
  Ids sentinels;
  uint32_t end = 0;
};

Result<uint32_t> SentinelOf(const RowFilesRequest& request, const std::optional<Tokenizer>& by,
                            int64_t spans, int64_t span) {
  const std::string name = fmt::format("<extra_id_{}>", span);
  if (by) {
    const std::optional<uint32_t> id = by->IdOf(name);
    if (id) return *id;
    return Fail(InvalidArgument(fmt::format(
        "a row hides {} spans, and the tokenizer has no {}; give it more such tokens, or shorter "
        "rows",
        spans, name)));
  }
  const auto id = kFirstByteSentinel + static_cast<uint32_t>(span);
  if (static_cast<int64_t>(id) < request.vocabulary) return id;
  return Fail(InvalidArgument(
      fmt::format("a row hides {} spans, for which bytes need tokens up to {}; raise "
                  "model.vocab_size to {}",
                  spans, id, kFirstByteSentinel + spans)));
}

// The token that the tokenizer puts behind every text.
Result<uint32_t> EndOfTexts(const std::optional<Tokenizer>& by) {
  if (!by) return kEndOfBytes;
  MW_ASSIGN_OR_RETURN(const Ids none, by->Encode(""));
  if (none.size() == 1) return none[0];
  return Fail(
      InvalidArgument("the tokenizer puts no one token behind a text, which ends sources "
                      "and targets of spans"));
}

Result<SpanPlan> PlanSpans(const RowFilesRequest& request, int64_t target_tokens,
                           const std::optional<Tokenizer>& by) {
  SpanPlan plan;
  plan.rules = {request.rows.hidden_share, request.rows.mean_span, request.seed};
  plan.sizes = data::SizesOfSource(request.tokens, plan.rules);
  if (plan.sizes.text == 0) {
    return Fail(InvalidArgument(fmt::format(
        "training.seq_len is {}: there is no text whose spans can be hidden in so few tokens",
        request.tokens)));
  }
  if (plan.sizes.target > target_tokens) {
    return Fail(InvalidArgument(
        fmt::format("training.target_seq_len is {}: what is hidden of a text of {} tokens has {}",
                    target_tokens, plan.sizes.text, plan.sizes.target)));
  }
  MW_ASSIGN_OR_RETURN(plan.end, EndOfTexts(by));
  for (int64_t i = 0; i < plan.sizes.spans; ++i) {
    MW_ASSIGN_OR_RETURN(const uint32_t sentinel, SentinelOf(request, by, plan.sizes.spans, i));
    plan.sentinels.push_back(sentinel);
  }
  return plan;
}

class RowMaker {
 public:
  static Result<RowMaker> Make(const RowFilesRequest& request) {
    RowMaker maker(request);
    std::string bytes;
    if (!request.tokenizer.empty()) {
      MW_ASSIGN_OR_RETURN(maker.tokenizer_, Tokenizer::Load(request.tokenizer));
      MW_ASSIGN_OR_RETURN(bytes, ReadFile(FileOfTokenizer(request.tokenizer)));
    }
    const models::ModelRows& rows = request.rows;
    // With all that a line is checked against: rows that are there are not checked again.
    maker.identity_ =
        fmt::format("{}\n{} {} {} {} {} {} {}\n", kRowsMadeBy, static_cast<int>(rows.kind),
                    request.tokens, maker.target_tokens(), rows.padding, rows.labels,
                    request.vocabulary, rows.asks ? "asked" : "learned");
    for (const std::string& name : rows.label_names) maker.identity_ += name + "\n";
    if (maker.hides()) {
      maker.identity_ += fmt::format("spans {} {} {} {}\n", rows.hidden_share, rows.mean_span,
                                     request.seed, request.lines);
      if (request.pass > 0) maker.identity_ += fmt::format("pass {}\n", request.pass);
      MW_ASSIGN_OR_RETURN(maker.spans_,
                          PlanSpans(request, maker.target_tokens(), maker.tokenizer_));
    }
    maker.identity_ += bytes;
    return maker;
  }

  const std::string& identity() const { return identity_; }
  // Elements of each field of a row.
  std::map<std::string, int64_t> fields() const {
    if (rows().kind == SampleKind::kPair) {
      return {{"source", request_.tokens}, {"target", target_tokens()}};
    }
    return {{"tokens", request_.tokens}, {"types", request_.tokens}, {"label", 1}};
  }

  // Whether spans of texts are hidden; else a row is a line.
  bool hides() const { return rows().hidden_share > 0 && !rows().asks; }
  // Tokens of a row's text.
  int64_t text_tokens() const { return spans_.sizes.text; }

  // The tokens of a line's text, with its end.
  Result<Ids> EncodeLine(std::string_view line) const {
    const int64_t bad = data::FindInvalidUtf8(line);
    if (bad >= 0) return Fail(InvalidArgument(fmt::format("byte {} is no UTF-8", bad)));
    if (request_.lines) return Encode(line.substr(0, line.find_last_not_of("\r") + 1), false);
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) return Fail(InvalidArgument("is no JSON object"));
    const std::optional<std::string_view> text = TextOf(object, "text");
    if (!text) return Fail(InvalidArgument("has no \"text\", of which spans are hidden"));
    return Encode(*text, false);
  }

  // Fills the fields of the row `sample` of a stream with what is left of a text.
  Status FillSpans(std::span<const uint32_t> text, uint64_t stream, uint64_t sample,
                   const std::map<std::string, std::span<int32_t>>& to) const {
    const auto length = static_cast<int64_t>(text.size());
    const std::vector<bool> hidden = data::HiddenSpans(length, spans_.rules, stream, sample);
    const data::SpanPair pair = data::HideSpans(text, hidden, spans_.sentinels, spans_.end);
    MW_ASSIGN_OR_RETURN(const bool source_cut, Place(pair.source, rows().padding, to.at("source")));
    MW_ASSIGN_OR_RETURN(const bool target_cut, Place(pair.target, rows().padding, to.at("target")));
    MW_CHECK(!source_cut && !target_cut) << text.size() << " tokens are more than a row's";
    return OkStatus();
  }

  // Fills the fields of one row. Returns how many texts were cut.
  Result<int64_t> Fill(std::string_view line,
                       const std::map<std::string, std::span<int32_t>>& to) const {
    const int64_t bad = data::FindInvalidUtf8(line);
    if (bad >= 0) return Fail(InvalidArgument(fmt::format("byte {} is no UTF-8", bad)));
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object()) return Fail(InvalidArgument("is no JSON object"));
    return rows().kind == SampleKind::kPair ? FillPair(object, to) : FillLabelled(object, to);
  }

 private:
  explicit RowMaker(const RowFilesRequest& request) : request_(request) {}

  const models::ModelRows& rows() const { return request_.rows; }
  int64_t target_tokens() const {
    return rows().target_tokens > 0 ? rows().target_tokens : request_.tokens;
  }

  Result<int64_t> FillPair(const nlohmann::json& line,
                           const std::map<std::string, std::span<int32_t>>& to) const {
    std::optional<std::string_view> source = TextOf(line, "source");
    std::optional<std::string_view> target = TextOf(line, "target");
    if (!source) source = TextOf(line, "input");
    if (!target) target = TextOf(line, "output");
    if (!source || !target) {
      return Fail(
          InvalidArgument("has no texts \"source\" and \"target\", nor \"input\" and "
                          "\"output\""));
    }
    MW_ASSIGN_OR_RETURN(const Ids read, Encode(*source, false));
    MW_ASSIGN_OR_RETURN(const Ids written, Encode(*target, false));
    MW_ASSIGN_OR_RETURN(const bool source_cut, Place(read, rows().padding, to.at("source")));
    MW_ASSIGN_OR_RETURN(const bool target_cut, Place(written, rows().padding, to.at("target")));
    return (source_cut ? 1 : 0) + (target_cut ? 1 : 0);
  }

  Result<int64_t> FillLabelled(const nlohmann::json& line,
                               const std::map<std::string, std::span<int32_t>>& to) const {
    const std::optional<std::string_view> text = TextOf(line, "text");
    const auto label = line.find("label");
    if (!text || (label == line.end() && !rows().asks)) {
      return Fail(InvalidArgument("has no \"text\", a text, and \"label\""));
    }
    // What is asked about may have a label that says there is none, such as -1.
    if (!rows().asks) {
      MW_ASSIGN_OR_RETURN(to.at("label")[0], LabelOf(*label));
    }
    const std::optional<std::string_view> second = TextOf(line, "text_pair");
    Ids ids;
    Ids types;
    if (second && tokenizer_) {
      MW_ASSIGN_OR_RETURN(const auto pair, tokenizer_->EncodePair(*text, *second));
      ids = pair.ids;
      types = pair.types;
    } else {
      MW_ASSIGN_OR_RETURN(ids, Encode(*text, true));
      types.assign(ids.size(), 0);
      if (second) {
        MW_ASSIGN_OR_RETURN(const Ids more, Encode(*second, false));
        ids.insert(ids.end(), more.begin(), more.end());
        types.resize(ids.size(), 1);
      }
    }
    MW_ASSIGN_OR_RETURN(const bool types_cut, Place(types, 0, to.at("types")));
    MW_ASSIGN_OR_RETURN(const bool cut, Place(ids, rows().padding, to.at("tokens")));
    MW_CHECK(cut == types_cut) << "as many types as tokens";
    return cut ? 1 : 0;
  }

  Result<int32_t> LabelOf(const nlohmann::json& label) const {
    const int64_t count = rows().labels;
    const auto number = FindJsonInt(label, int32_t{0});
    if (number && *number < count) return *number;
    const auto& names = rows().label_names;
    if (label.is_string()) {
      const auto found = std::find(names.begin(), names.end(), label.get<std::string>());
      if (found != names.end()) return static_cast<int32_t>(found - names.begin());
    }
    return Fail(InvalidArgument(
        fmt::format("\"label\" is {}; it must be a number from 0 to {}{}",
                    label.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), count - 1,
                    names.empty() ? "" : ", or a name of the model's id2label")));
  }

  Result<Ids> Encode(std::string_view text, bool begins) const {
    if (tokenizer_) return tokenizer_->Encode(text);
    Ids ids;
    if (begins) ids.push_back(kStartOfBytes);
    for (const char c : text) ids.push_back(kFirstByte + static_cast<unsigned char>(c));
    ids.push_back(kEndOfBytes);
    return ids;
  }

  // Returns whether it was cut.
  Result<bool> Place(const Ids& ids, int64_t padding, std::span<int32_t> to) const {
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<int32_t>(i < ids.size() ? ids[i] : padding);
    }
    const bool cut = ids.size() > to.size();
    if (cut) to.back() = static_cast<int32_t>(ids.back());
    for (const int32_t id : to) {
      if (id >= 0 && id < request_.vocabulary) continue;
      return Fail(InvalidArgument(
          fmt::format("has the token {}, and the model's vocabulary has {}; raise model.vocab_size",
                      id, request_.vocabulary)));
    }
    return cut;
  }

  const RowFilesRequest& request_;
  std::optional<Tokenizer> tokenizer_;
  std::string identity_;
  SpanPlan spans_;
};

Status WriteRows(const std::map<std::string, std::vector<int32_t>>& values,
                 const std::map<std::string, int64_t>& fields, int64_t rows,
                 const std::string& path) {
  std::vector<formats::TensorSpec> tensors;
  for (const auto& [name, count] : fields) {
    ir::Dims dims = {rows};
    if (name != "label") dims.push_back(count);
    tensors.push_back({name, {ir::DType::kI32, std::move(dims)}});
  }
  MW_ASSIGN_OR_RETURN(const auto writer, formats::SafetensorsWriter::Create(path, tensors));
  for (const auto& [name, numbers] : values) {
    MW_TRY(writer->Write(name, 0, std::as_bytes(std::span(numbers))));
  }
  return writer->Finish();
}

// The rows of a file's lines. Returns how many texts were cut.
Result<int64_t> MakeRows(const RowMaker& maker, const std::vector<Line>& lines,
                         const std::string& path) {
  const std::map<std::string, int64_t> fields = maker.fields();
  std::map<std::string, std::vector<int32_t>> values;
  for (const auto& [name, count] : fields) {
    values[name].resize(lines.size() * static_cast<size_t>(count));
  }
  std::vector<Status> failed(lines.size());
  std::atomic<int64_t> cut = 0;
  ParallelItems(static_cast<int64_t>(lines.size()), 64, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    std::map<std::string, std::span<int32_t>> row;
    for (const auto& [name, count] : fields) {
      const auto size = static_cast<size_t>(count);
      row[name] = std::span(values.at(name)).subspan(i * size, size);
    }
    const Result<int64_t> filled = maker.Fill(lines[i].text, row);
    if (filled.has_value()) {
      cut += *filled;
    } else {
      failed[i] = filled.error().WithContext(fmt::format("JSON at line {}", lines[i].number));
    }
  });
  for (const Status& status : failed) MW_TRY(status);
  MW_TRY(WriteRows(values, fields, static_cast<int64_t>(lines.size()), path));
  return cut.load();
}

// The texts of a file one behind the other.
Result<Ids> EncodeAll(const RowMaker& maker, const std::vector<Line>& lines) {
  std::vector<Result<Ids>> parts(lines.size(), Ids());
  ParallelItems(static_cast<int64_t>(lines.size()), 64, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    parts[i] = maker.EncodeLine(lines[i].text);
  });
  Ids all;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!parts[i].has_value()) {
      return Fail(parts[i].error().WithContext(fmt::format("line {}", lines[i].number)));
    }
    all.insert(all.end(), parts[i]->begin(), parts[i]->end());
  }
  return all;
}

// The rows of a file's texts. The last one may be shorter; a single token is left out.
Status MakeSpanRows(const RowMaker& maker, const std::vector<Line>& lines, uint64_t stream,
                    const std::string& path) {
  MW_ASSIGN_OR_RETURN(const Ids all, EncodeAll(maker, lines));
  const auto step = static_cast<size_t>(maker.text_tokens());
  const size_t rest = all.size() % step;
  const size_t rows = all.size() / step + (rest >= 2 ? 1 : 0);
  if (rows == 0) return InvalidArgument("its texts have no token");
  const std::map<std::string, int64_t> fields = maker.fields();
  std::map<std::string, std::vector<int32_t>> values;
  for (const auto& [name, count] : fields) values[name].resize(rows * static_cast<size_t>(count));
  std::vector<Status> failed(rows);
  ParallelItems(static_cast<int64_t>(rows), 64, [&](int64_t item) {
    const auto i = static_cast<size_t>(item);
    std::map<std::string, std::span<int32_t>> row;
    for (const auto& [name, count] : fields) {
      const auto size = static_cast<size_t>(count);
      row[name] = std::span(values.at(name)).subspan(i * size, size);
    }
    const auto text = std::span(all).subspan(i * step, std::min(step, all.size() - i * step));
    failed[i] = maker.FillSpans(text, stream, i, row);
  });
  for (const Status& status : failed) MW_TRY(status);
  return WriteRows(values, fields, static_cast<int64_t>(rows), path);
}

// Returns how many texts were cut. The name of the file is of what it is made of, so it is a
// stream.
Result<int64_t> RowsOfLines(const RowMaker& maker, const std::vector<Line>& lines,
                            const std::string& path) {
  if (!maker.hides()) return MakeRows(maker, lines, path);
  const uint64_t stream = StreamOf(std::filesystem::path(path).stem().string());
  MW_TRY(MakeSpanRows(maker, lines, stream, path));
  return 0;
}

}  // namespace

Result<RowFiles> MakeRowFiles(const RowFilesRequest& request) {
  MW_CHECK(request.rows.kind != SampleKind::kWindow) << "windows of tokens are no rows of texts";
  MW_CHECK(request.tokens > 0) << "rows of " << request.tokens << " tokens";
  MW_ASSIGN_OR_RETURN(const RowMaker maker, RowMaker::Make(request));
  MW_TRY(MakeDirs(request.cache));
  RowFiles made;
  for (const std::string& file : request.files) {
    MW_ASSIGN_OR_RETURN(const MemoryMappedFile map, MemoryMappedFile::Open(file));
    Sha256 hash;
    hash.Update(maker.identity());
    hash.Update(map.text());
    const std::string path =
        fmt::format("{}/{}.safetensors", request.cache, hash.HexDigest().substr(0, kRowNameLength));
    if (!FileExists(path)) {
      const std::vector<Line> lines = LinesOf(map.text());
      if (lines.empty()) return Fail(InvalidArgument(file + " has no line of JSON"));
      const Result<int64_t> cut = RowsOfLines(maker, lines, path);
      if (!cut.has_value()) return Fail(cut.error().WithContext(file));
      made.cut += *cut;
      ++made.made;
    }
    made.paths.push_back(path);
  }
  return made;
}

std::string RowTokenizerOf(const config::JobConfig& config) {
  if (config.tokenizer != "byte") return data::ResolvePath(config.tokenizer, config.folder);
  return FolderOfModel(config);
}

namespace {

// Passes over the data with spans of their own; then they come again.
constexpr int64_t kMostPasses = 16;

// The files of rows of one path.
Result<std::vector<std::string>> RowsOfPath(const config::JobConfig& config,
                                            const models::Model& model, const char* key,
                                            const std::string& path, int64_t pass) {
  const std::string said = fmt::format("{} = \"{}\"", key, path);
  RowFilesRequest request;
  auto files = data::ExpandPath(path, config.folder, "");
  if (!files.has_value()) return Fail(files.error().WithContext(said));
  request.files = *std::move(files);
  request.tokenizer = RowTokenizerOf(config);
  request.rows = model.rows;
  request.tokens = config.train.sequence;
  request.vocabulary = model.vocabulary;
  request.lines = config.dataset_format == "text";
  request.seed = config.train.seed;
  request.pass = pass;
  request.cache = TokenCacheOf(request.files.front());
  const auto made = MakeRowFiles(request);
  if (!made.has_value()) return Fail(made.error().WithContext(said));
  if (made->cut > 0) {
    fmt::print(stderr, "note: {}: {} texts are longer than their row and were cut\n", said,
               made->cut);
  }
  return made->paths;
}

Result<data::NamedStream> SetOfPath(const config::JobConfig& config, const models::Model& model,
                                    const char* key, const std::string& path, int64_t pass) {
  data::FilesRequest request;
  request.format = "safetensors";
  request.validation_fraction = config.data.validation_fraction;
  MW_ASSIGN_OR_RETURN(request.paths, RowsOfPath(config, model, key, path, pass));
  MW_ASSIGN_OR_RETURN(ir::DataStream stream, data::DescribeFiles(request));
  return data::NamedStream{fmt::format("pass {}", pass), 1, std::move(stream)};
}

// How often the job reads all rows of a stream, of which so many differ.
int64_t PassesOver(const ir::DataStream& stream, const config::JobConfig& config) {
  const int64_t rows = data::CountsOf(stream, config.train.sequence).training_samples;
  if (rows < 1) return 1;  // which is an error of its own
  const auto samples =
      static_cast<double>(config.train.steps) * static_cast<double>(config.train.global_batch);
  const double passes = std::ceil(samples / static_cast<double>(rows));
  return static_cast<int64_t>(std::clamp(passes, 1.0, static_cast<double>(kMostPasses)));
}

}  // namespace

Status CheckRowFormat(const config::JobConfig& config, const models::Model& model) {
  const std::string& format = config.dataset_format;
  const auto refuse = [&](const char* what, const char* formats, const char* line) {
    return InvalidArgument(fmt::format(
        "model '{}' is trained on {}: training.dataset_format has to be {}, is \"{}\"; {}",
        model.name, what, formats, format, line));
  };
  switch (model.rows.kind) {
    case SampleKind::kWindow:
      if (format != "images") return OkStatus();
      return refuse("tokens", "one of text", "images are for 'vit'");
    case SampleKind::kPair:
      if (format == "jsonl" || (model.rows.hidden_share > 0 && format == "text")) return OkStatus();
      if (model.rows.hidden_share > 0) {
        return refuse("hidden spans of texts", "\"text\" or \"jsonl\"",
                      "each line is a text, or {\"text\": ..}");
      }
      return refuse("pairs of texts", "\"jsonl\"", "each line is {\"source\": .., \"target\": ..}");
    case SampleKind::kLabelled:
      if (format == "jsonl") return OkStatus();
      return refuse("labelled texts", "\"jsonl\"", "each line is {\"text\": .., \"label\": ..}");
    case SampleKind::kImage:
      if (format == "jsonl" || format == "images") return OkStatus();
      return refuse("labelled images",
                    "\"images\" (a folder of images for each class) or \"jsonl\"",
                    "each line is {\"image\": .., \"label\": ..}");
  }
  return OkStatus();
}

Result<ir::DataStream> FindRows(const config::JobConfig& config, const models::Model& model) {
  MW_TRY(CheckRowFormat(config, model));
  if (config.dataset_path.empty()) {
    return Fail(InvalidArgument("training.dataset_path is empty; name a file of JSON lines"));
  }
  constexpr char kKey[] = "training.dataset_path";
  MW_ASSIGN_OR_RETURN(data::NamedStream first,
                      SetOfPath(config, model, kKey, config.dataset_path, 0));
  const int64_t passes = model.rows.hidden_share > 0 ? PassesOver(first.stream, config) : 1;
  std::vector<data::NamedStream> training = {std::move(first)};
  for (int64_t pass = 1; pass < passes; ++pass) {
    MW_ASSIGN_OR_RETURN(data::NamedStream next,
                        SetOfPath(config, model, kKey, config.dataset_path, pass));
    training.push_back(std::move(next));
  }
  for (data::NamedStream& set : training) set.weight = passes > 1 ? 0 : 1;  // they take turns
  std::vector<data::NamedStream> validation;
  if (!config.validation_path.empty()) {
    MW_ASSIGN_OR_RETURN(data::NamedStream set, SetOfPath(config, model, "validation.dataset_path",
                                                         config.validation_path, 0));
    validation.push_back(std::move(set));
  }
  return data::JoinStreams(std::move(training), std::move(validation));
}

}  // namespace meshwright::cli
