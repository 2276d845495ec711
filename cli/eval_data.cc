#include "cli/eval_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/json_int.h"

namespace meshwright::cli {
namespace {

// Characters, not bytes, as Python counts a text.
double CharactersOf(std::string_view text) {
  return static_cast<double>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// The first line, which goes from the text.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

Result<size_t> AnswerOf(const nlohmann::json& object, const std::vector<std::string>& choices) {
  const auto answer = object.find("answer");
  if (answer == object.end()) return Fail(InvalidArgument("has no \"answer\""));
  const auto number = FindJsonInt<size_t>(*answer);
  if (number && *number < choices.size()) return *number;
  if (answer->is_string()) {
    const auto at = std::find(choices.begin(), choices.end(), answer->get<std::string>());
    if (at != choices.end()) return static_cast<size_t>(at - choices.begin());
  }
  return Fail(
      InvalidArgument(fmt::format("\"answer\" is {}, and there are {} choices, counted from 0",
                                  answer->dump(), choices.size())));
}

// Spaces at the end of a prompt belong to the choice.
void MoveSpaces(std::string& prompt, std::string& choice) {
  while (!prompt.empty() && prompt.back() == ' ') {
    prompt.pop_back();
    choice.insert(choice.begin(), ' ');
  }
}

// The row of a prompt and what is behind it.
Result<EvalRow> RowOf(std::string prompt, std::string choice, const EncodeText& encode,
                      const EvalRules& rules) {
  MoveSpaces(prompt, choice);
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> before, encode(prompt));
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> all, encode(prompt + choice));
  if (before.empty()) {
    if (!rules.prefix) {
      return Fail(
          InvalidArgument("has an empty prompt, and the model has no token that begins a text"));
    }
    before.push_back(*rules.prefix);
    all.insert(all.begin(), *rules.prefix);
  }
  if (all.size() <= before.size()) return Fail(InvalidArgument("has a choice without a token"));
  size_t scored = all.size() - before.size();
  const auto most = static_cast<size_t>(rules.positions) + 1;
  if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
  scored = std::min(scored, all.size() - 1);
  EvalRow row;
  row.tokens.assign(all.begin(), all.end() - 1);
  row.labels.assign(all.begin() + 1, all.end());
  row.counts.assign(row.labels.size(), false);
  std::fill(row.counts.end() - static_cast<std::ptrdiff_t>(scored), row.counts.end(), true);
  return row;
}

// How the row of a prompt and a choice is made.
using MakeRow = std::function<Result<EvalRow>(const std::string& prompt, std::string choice)>;

Status AddQuestion(std::string_view line, const MakeRow& make, const EvalRules& rules,
                   EvalData& data) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return InvalidArgument("is no JSON object");
  const auto prompt = object.find("prompt");
  const auto listed = object.find("choices");
  if (prompt == object.end() || !prompt->is_string() || listed == object.end() ||
      !listed->is_array() || listed->empty()) {
    return InvalidArgument("needs \"prompt\", a text, and \"choices\", a list of texts");
  }
  std::vector<std::string> choices;
  for (const nlohmann::json& choice : *listed) {
    if (!choice.is_string()) return InvalidArgument("has a choice that is no text");
    choices.push_back(choice.get<std::string>());
  }
  Question question;
  question.first = data.rows.size();
  MW_ASSIGN_OR_RETURN(question.answer, AnswerOf(object, choices));
  for (const std::string& choice : choices) {
    MW_ASSIGN_OR_RETURN(EvalRow row, make(prompt->get<std::string>(), rules.delimiter + choice));
    data.rows.push_back(std::move(row));
    question.lengths.push_back(std::max(1.0, CharactersOf(choice)));
  }
  data.questions.push_back(std::move(question));
  return OkStatus();
}

// Calls `add` for each line that is not blank, until there are `limit` of them.
Status ForEachLine(std::string_view jsonl, int64_t limit,
                   const std::function<Status(std::string_view line)>& add) {
  int64_t count = 0;
  for (int64_t number = 1; !jsonl.empty(); ++number) {
    const std::string_view line = TakeLine(jsonl);
    if (IsBlank(line)) continue;
    if (limit > 0 && count >= limit) break;
    const Status added = add(line);
    if (!added.ok()) return added.WithContext(fmt::format("JSON at line {}", number));
    ++count;
  }
  return OkStatus();
}

EvalRow RowOfPair(std::vector<int32_t> source, std::vector<int32_t> target) {
  EvalRow row{std::move(source), std::move(target), {}};
  row.counts.assign(row.labels.size(), true);
  return row;
}

// A side of a pair keeps its last token. Returns whether it was cut.
bool CutSide(std::vector<int32_t>& ids, int64_t most) {
  if (std::ssize(ids) <= most) return false;
  const int32_t end = ids.back();
  ids.resize(static_cast<size_t>(most));
  ids.back() = end;
  return true;
}

Status AddPair(std::string_view line, const PairEncoders& encode, const EvalRules& rules,
               EvalData& data) {
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return InvalidArgument("is no JSON object");
  const auto text = [&object](const char* key) -> std::optional<std::string> {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  };
  std::optional<std::string> source = text("source");
  std::optional<std::string> target = text("target");
  if (!source) source = text("input");
  if (!target) target = text("output");
  if (!source || !target) {
    return InvalidArgument(
        "has no texts \"source\" and \"target\", nor \"input\" and \"output\", of which a model "
        "with an encoder is asked");
  }
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> read, encode.whole(*source));
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> written, encode.whole(*target));
  if (read.empty() || written.empty()) return InvalidArgument("has a text without a token");
  data.cut += CutSide(read, rules.positions) ? 1 : 0;
  data.cut += CutSide(written, rules.positions) ? 1 : 0;
  data.bytes += std::ssize(*target);
  data.rows.push_back(RowOfPair(std::move(read), std::move(written)));
  return OkStatus();
}

// As the harness scores choices of AutoModelForSeq2SeqLM.
Result<EvalRow> RowOfChoice(std::string prompt, std::string choice, const PairEncoders& encode,
                            const EvalRules& rules) {
  MoveSpaces(prompt, choice);
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> source, encode.whole(prompt));
  MW_ASSIGN_OR_RETURN(std::vector<int32_t> target, encode.bare(choice));
  if (source.empty()) return Fail(InvalidArgument("has an empty prompt"));
  if (target.empty()) return Fail(InvalidArgument("has a choice without a token"));
  const auto most = static_cast<std::ptrdiff_t>(rules.positions);
  if (std::ssize(source) > most) source.erase(source.begin(), source.end() - most);
  if (std::ssize(target) > most) target.resize(static_cast<size_t>(most));
  return RowOfPair(std::move(source), std::move(target));
}

MetricValue Share(const char* name, double hits, double count) {
  MetricValue metric{name, hits / count, {}};
  if (count > 1) {
    metric.error = std::sqrt(metric.value * (1 - metric.value) / (count - 1));
  }
  return metric;
}

std::vector<MetricValue> ChoiceMetrics(const EvalData& data, const std::vector<RowScore>& scores) {
  double hits = 0;
  double by_character = 0;
  for (const Question& question : data.questions) {
    hits += ChoiceOf(question, scores, false) == question.answer ? 1 : 0;
    by_character += ChoiceOf(question, scores, true) == question.answer ? 1 : 0;
  }
  const auto count = static_cast<double>(data.questions.size());
  return {
      {"questions", count, {}}, Share("acc", hits, count), Share("acc_norm", by_character, count)};
}

}  // namespace

bool HasQuestions(std::string_view jsonl) {
  while (!jsonl.empty()) {
    const std::string_view line = TakeLine(jsonl);
    if (IsBlank(line)) continue;
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    return object.is_object() && object.contains("choices");
  }
  return false;
}

Result<EvalData> ReadQuestions(std::string_view jsonl, const EncodeText& encode,
                               const EvalRules& rules) {
  EvalData data;
  const MakeRow make = [&](const std::string& prompt, std::string choice) {
    return RowOf(prompt, std::move(choice), encode, rules);
  };
  MW_TRY(ForEachLine(jsonl, rules.limit,
                     [&](std::string_view line) { return AddQuestion(line, make, rules, data); }));
  return data;
}

Result<EvalData> ReadPairs(std::string_view jsonl, const PairEncoders& encode,
                           const EvalRules& rules) {
  EvalData data;
  const MakeRow make = [&](const std::string& prompt, std::string choice) {
    return RowOfChoice(prompt, std::move(choice), encode, rules);
  };
  const bool asks = HasQuestions(jsonl);
  MW_TRY(ForEachLine(jsonl, rules.limit, [&](std::string_view line) {
    return asks ? AddQuestion(line, make, rules, data) : AddPair(line, encode, rules, data);
  }));
  return data;
}

EvalData RowsOfDocuments(const std::vector<Document>& documents, const EvalRules& rules) {
  EvalData data;
  const auto most = static_cast<size_t>(rules.positions);
  MW_CHECK(most >= 1) << "rows of " << rules.positions << " tokens";
  for (const Document& document : documents) {
    data.bytes += document.bytes;
    for (size_t begin = 0; begin + 1 < document.ids.size(); begin += most) {
      const size_t count = std::min(most, document.ids.size() - 1 - begin);
      EvalRow row;
      for (size_t i = begin; i < begin + count; ++i) {
        row.tokens.push_back(static_cast<int32_t>(document.ids[i]));
        row.labels.push_back(static_cast<int32_t>(document.ids[i + 1]));
        row.counts.push_back(document.learned[i + 1]);
      }
      data.rows.push_back(std::move(row));
    }
  }
  return data;
}

size_t ChoiceOf(const Question& question, const std::vector<RowScore>& scores, bool by_character) {
  size_t best = 0;
  double best_score = 0;
  for (size_t i = 0; i < question.lengths.size(); ++i) {
    const double score =
        scores[question.first + i].log_likelihood / (by_character ? question.lengths[i] : 1.0);
    if (i > 0 && !(score > best_score)) continue;
    best = i;
    best_score = score;
  }
  return best;
}

std::vector<MetricValue> MetricsOf(const EvalData& data, const std::vector<RowScore>& scores) {
  MW_CHECK(scores.size() == data.rows.size())
      << scores.size() << " scores of " << data.rows.size() << " rows";
  if (!data.questions.empty()) return ChoiceMetrics(data, scores);
  double tokens = 0;
  double nats = 0;
  double hits = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    tokens += static_cast<double>(
        std::count(data.rows[i].counts.begin(), data.rows[i].counts.end(), true));
    nats -= scores[i].log_likelihood;
    hits += scores[i].hits;
  }
  const auto bytes = static_cast<double>(data.bytes);
  return {{"tokens", tokens, {}},
          {"bytes", bytes, {}},
          {"loss", nats / tokens, {}},
          {"perplexity", std::exp(nats / tokens), {}},
          {"bits_per_byte", nats / bytes / std::numbers::ln2, {}},
          Share("token_acc", hits, tokens)};
}

}  // namespace meshwright::cli
