// What browsers, users and files of lines say.
#include "base/clock.h"
#include "base/file.h"
#include "base/http_server.h"
#include "base/log.h"
#include "cli/documents.h"
#include "cli/eval_data.h"
#include "cli/run_dir.h"
#include "report/plan_report.h"
#include "report/prediction.h"
#include "report/run_compare.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/target.h"
#include "tests/still_clock.h"
#include "web/access.h"

namespace meshwright::fuzz {
namespace {

// Headers, then a query, then a body, each on a line.
HttpRequest RequestOf(std::string_view input) {
  HttpRequest request;
  request.method = "POST";
  request.path = "/login";
  const size_t first = input.find('\n');
  const size_t second = first == std::string_view::npos ? first : input.find('\n', first + 1);
  const std::string cookie(input.substr(0, first));
  request.headers["cookie"] = cookie;
  request.headers["host"] = "localhost";
  request.headers["authorization"] = cookie;
  if (first != std::string_view::npos) {
    request.query = std::string(input.substr(first + 1, second - first - 1));
    request.headers["origin"] = request.query;
  }
  if (second != std::string_view::npos) request.body = std::string(input.substr(second + 1));
  return request;
}

void RunHttp(std::string_view input) {
  static web::Access access({.viewer_token = "viewer-token", .operator_token = "operator-token"},
                            kStill);
  const HttpRequest request = RequestOf(input);
  for (const char* name : {"session", "meshwright", "job", "a", ""}) {
    (void)request.Query(name);
    (void)request.Cookie(name);
    (void)FormValue(request.body, name);
  }
  const web::Role role = access.RoleOf(request);
  MW_CHECK(role == web::Role::kNobody || input.find("token") != std::string_view::npos ||
           input.find('=') != std::string_view::npos)
      << "somebody without a token";
  (void)access.CheckLook(request);
  (void)access.CheckAct(request);
  (void)access.Login(request);
}

Seeds SeedsOfHttp() {
  web::Access access({.viewer_token = "viewer-token", .operator_token = "operator-token"}, kStill);
  HttpRequest login;
  login.method = "POST";
  login.headers["host"] = "localhost";
  login.body = "token=viewer-token";
  std::string cookie;
  for (const auto& [name, value] : access.Login(login).reply.headers) {
    if (name == "Set-Cookie") cookie = value.substr(0, value.find(';'));
  }
  return {cookie + "\njob=1&from=2\ntoken=wrong", "Bearer operator-token\na=%20%2f\ntoken=a+b",
          "a=1; b=\"2\"; c\nhttp://localhost\n"};
}

Result<std::vector<int32_t>> EncodeBytes(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

void RunQuestions(std::string_view input) {
  (void)cli::HasQuestions(input);
  const auto data = cli::ReadQuestions(input, EncodeBytes, {.positions = 64, .prefix = 0});
  if (!data.has_value()) return;
  for (const cli::EvalRow& row : data->rows) {
    MW_CHECK(row.tokens.size() <= 64) << "longer than the model";
  }
}

void RunDocuments(std::string_view input) {
  static const auto of_lines = Sure(cli::DocumentMaker::Make({.format = "jsonl"}));
  static const auto of_text = Sure(cli::DocumentMaker::Make({.format = "text"}));
  (void)of_lines.OfPart(input, true, 1);
  (void)of_text.OfPart(input, false, 1);
}

void RunRecordedSteps(std::string_view input) {
  const auto steps = report::ParseSteps(input, "a file");
  if (!steps.has_value()) return;
  report::ComparedRun run;
  run.label = "a";
  run.steps = *steps;
  (void)report::FormatComparison({run, run});
  (void)report::ComparisonJson({run, run});
  (void)report::DrawCurves({run, run});
}

void RunClusterState(std::string_view input) {
  ExpectStable(input, cli::ParseCluster, cli::FormatCluster);
}

void RunWords(std::string_view input) {
  (void)report::ParseMesh(input);
  (void)report::ParseTokens(std::string(input));
  (void)ParseLogLevel(input);
}

}  // namespace

std::vector<Target> TextTargets() {
  return {
      {"http-access", "HttpRequest::Query, Cookie; web::Access", SeedsOfHttp, RunHttp},
      {"questions", "cli::ReadQuestions",
       [] {
         return Seeds{
             "{\"prompt\":\"a b\",\"choices\":[\"c\",\"d e\"],\"answer\":1}\n"
             "{\"prompt\":\"\",\"choices\":[\"x\"],\"answer\":\"x\"}\n"};
       },
       RunQuestions},
      {"documents", "cli::DocumentMaker::OfPart",
       [] {
         return Seeds{"{\"text\":\"a\"}\n{\"text\":\"b\\u00e9\"}\n", "a text\n\nanother",
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n",
                      "{\"prompt\":\"a\",\"completion\":\"b\"}\n"};
       },
       RunDocuments},
      {"cluster-state", "cli::ParseCluster",
       [] {
         cli::ClusterState state;
         state.processes = {{"controller", 17, 1234}, {"w0", 18, 1250}};
         state.address = "127.0.0.1:7000";
         state.metrics_address = "127.0.0.1:7001";
         return Seeds{cli::FormatCluster(state)};
       },
       RunClusterState},
      {"recorded-steps", "report::ParseSteps, FormatComparison, DrawCurves",
       [] {
         return Seeds{
             "{\"step\":0,\"loss\":2.5,\"tokens\":64,\"seconds\":0.1}\n"
             "{\"step\":1,\"loss\":2.25,\"validation_loss\":3,\"values\":{\"validation/a\":1}}\n",
             "step,loss,tokens,\"a,b\"\n0,2.5,64,\n1,2.25,64,1e9\n"};
       },
       RunRecordedSteps, 500},
      {"words", "report::ParseMesh, ParseTokens; ParseLogLevel",
       [] {
         return Seeds{"data=2,tensor=4", "1, 2 3\n4", "debug"};
       },
       RunWords},
  };
}

}  // namespace meshwright::fuzz
