// predict on programs of users' own: what a session answers is not what a language model says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/pending_session.h"
#include "cli/predict_file.h"
#include "cli/predict_hidden.h"
#include "cli/predict_text.h"
#include "client/program.h"
#include "data/describe.h"

namespace meshwright::cli {
namespace {

using client::Answer;
using client::Feeds;
using client::Tensor;
using ir::DType;
using ::testing::HasSubstr;

// A session whose programs are told, and whose answers are a function of what it is fed.
class ToldSession final : public client::Session {
 public:
  using Programs = std::map<std::string, Signature>;
  using Says = std::function<Result<Answer>(const Feeds&)>;
  ToldSession(Programs programs, Says says)
      : programs_(std::move(programs)), says_(std::move(says)) {}

  int64_t job_id() const override { return 7; }
  Programs programs() const override { return programs_; }
  std::future<Result<Answer>> Call(const std::string&, const Feeds& feeds,
                                   client::CallOptions) override {
    return Ready<Result<Answer>>(says_(feeds));
  }
  Result<Answer> Run(const std::string&, const Feeds& feeds, client::CallOptions) override {
    return says_(feeds);
  }
  Result<std::map<std::string, Tensor>> ReadState(const std::vector<std::string>&) override {
    return Fail(Missing());
  }
  Status WriteState(const std::map<std::string, Tensor>&) override { return Missing(); }
  Result<client::ActorRef> Spawn(const std::string&, const std::string&,
                                 const std::string&) override {
    return Fail(Missing());
  }
  std::future<Result<std::string>> Ask(const client::ActorRef&, std::string, int64_t) override {
    return Ready<Result<std::string>>(Fail(Missing()));
  }
  std::future<Status> Tell(const client::ActorRef&, std::string, int64_t) override {
    return Ready<Status>(Missing());
  }
  std::future<Result<client::ActorNews>> Watch(const client::ActorRef&) override {
    return Ready<Result<client::ActorNews>>(Fail(Missing()));
  }
  Status Stop(const client::ActorRef&) override { return Missing(); }
  Status Close(client::CloseOptions) override { return OkStatus(); }

 private:
  template <typename T>
  static std::future<T> Ready(T value) {
    std::promise<T> promise;
    promise.set_value(std::move(value));
    return promise.get_future();
  }
  static Status Missing() { return Unimplemented("predict asks for nothing of the kind"); }

  const Programs programs_;
  const Says says_;
};

ToldSession Saying(Signature inputs, Answer answer) {
  return {{{kPredictProgram, std::move(inputs)}}, [answer](const Feeds&) { return answer; }};
}

Tensor Raw(DType dtype, ir::Dims dims, std::vector<uint8_t> bytes) {
  Tensor tensor{{dtype, std::move(dims)}, {}};
  for (const uint8_t byte : bytes) tensor.data.push_back(std::byte{byte});
  return tensor;
}

class PredictOnForeignPrograms : public testing::Test {
 protected:
  // f32[rows], numbered from 0.
  std::string Npy(int64_t rows) {
    std::string header =
        "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", 1), }";
    header.resize(117, ' ');
    std::string bytes = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n";
    for (int64_t i = 0; i < rows; ++i) {
      const auto value = static_cast<float>(i);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return Write("x.npy", bytes);
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    EXPECT_TRUE(WriteFileAtomic(dir_.File(name), bytes).ok());
    return dir_.File(name);
  }
  PredictArgs Args(const std::string& data, const std::string& out = "said.jsonl") {
    PredictArgs args;
    args.id = 7;
    args.data = {data};
    args.out = dir_.File(out);
    return args;
  }
  std::vector<nlohmann::json> Lines() {
    std::vector<nlohmann::json> lines;
    for (const std::string& line : Split(*ReadFile(dir_.File("said.jsonl")), '\n')) {
      if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  // Why there is no file of answers; a piece of one is not left either.
  std::string WhyNot(ToldSession session, const PredictArgs& args, const std::string& format = "") {
    const Result<int64_t> rows = PredictFile(session, args, format);
    EXPECT_FALSE(rows.has_value());
    EXPECT_FALSE(std::filesystem::exists(args.out));
    EXPECT_FALSE(std::filesystem::exists(args.out + ".part"));
    return rows ? "" : rows.error().message();
  }

  TempDir dir_ = *TempDir::Make();
};

const Signature kRows = {{"x", {DType::kF32, {2, 1}}}};
const Signature kWindows = {{kWindowInput, {DType::kI32, {2, 5}}}};

// Two rows of three classes.
TEST_F(PredictOnForeignPrograms, ClassesHaveTheirNames) {
  data::FilesRequest files;
  files.stream = "data";
  files.format = "npy";
  files.paths = files.validation_paths = {"x=" + Npy(2)};
  AskedRows asked;
  asked.stream = *data::DescribeFiles(files);
  asked.rows.labels = 3;
  asked.rows.label_names = {"ant", "bee", "cat"};
  Answer answer;
  answer.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 3}, {0, 1, 0, 2, 0, 0})}};
  const PredictArgs args = Args("x.npy");
  ToldSession session = Saying(kRows, answer);
  ASSERT_EQ(PredictRecords(session, args, asked).value_or(0), 2);
  EXPECT_EQ(Lines()[0]["label"], "bee");
  EXPECT_EQ(Lines()[1]["label"], "ant");
  EXPECT_NEAR(Lines()[0]["probability"].get<double>(), std::exp(1) / (std::exp(1) + 2), 1e-7);
  EXPECT_EQ(Lines()[0]["logits"].size(), 3u);
  const auto classes = PredictClasses(session, args, asked);
  ASSERT_TRUE(classes.has_value()) << classes.error();
  ASSERT_EQ(classes->size(), 3u);
  EXPECT_EQ(classes->at(0).id, 1);
  EXPECT_EQ(classes->at(1).id, 0) << "of equal ones the lower";
  // Another program's logits are no classes.
  asked.rows.labels = 4;
  EXPECT_FALSE(PredictClasses(session, args, asked).has_value());
  ASSERT_TRUE(PredictRecords(session, args, asked).has_value());
  EXPECT_FALSE(Lines()[0].contains("label"));
}

// A row of four tokens, a vocabulary of three; the mask is token 2.
TEST_F(PredictOnForeignPrograms, HiddenTokensAreSaidWhereTheyStand) {
  Answer answer;
  answer.tensors = {
      {kLogitsOutput, Tensor::Of<float>({1, 4, 3}, {9, 0, 0, 0, 1, 0, 0, 0, 9, 3, 0, 0})}};
  ToldSession session = Saying({{"row", {DType::kI32, {1, 4}}}}, answer);
  const auto hidden = PredictHidden(session, {1, 2, 0}, 2, 7, 2);
  ASSERT_TRUE(hidden.has_value()) << hidden.error();
  ASSERT_EQ(hidden->size(), 1u);
  EXPECT_EQ(hidden->at(0).position, 1);
  ASSERT_EQ(hidden->at(0).likely.size(), 2u);
  EXPECT_EQ(hidden->at(0).likely[0].id, 1);
  EXPECT_NEAR(hidden->at(0).likely[0].probability, std::exp(1) / (std::exp(1) + 2), 1e-7);
  EXPECT_THAT(PredictHidden(session, {1, 1}, 2, 7, 2).error().message(),
              HasSubstr("write the mask, token 2"));
  EXPECT_THAT(PredictHidden(session, {1, 2, 0, 0, 0}, 2, 7, 2).error().message(),
              HasSubstr("the text has 5 tokens, and a row of job 7 4"));
}

TEST_F(PredictOnForeignPrograms, EveryDTypeIsALineOfNumbers) {
  Answer answer;
  answer.tensors = {
      {"bf16", Raw(DType::kBF16, {2}, {0x80, 0x3f, 0x00, 0xc0})},
      {"bool", Raw(DType::kBool, {2}, {1, 0})},
      {"f16", Raw(DType::kF16, {2}, {0x00, 0x3c, 0x00, 0xc0})},
      {"f32", Tensor::Of<float>({2}, std::vector<float>{1, -2})},
      {"f64", Tensor::Of<double>({2, 2}, std::vector<double>{1, 2, 3, 4})},
      {"i32", Tensor::Of<int32_t>({2}, std::vector<int32_t>{1, -2})},
      {"i64", Tensor::Of<int64_t>({2}, std::vector<int64_t>{int64_t{1} << 40, -2})},
  };
  ToldSession session = Saying(kRows, answer);
  const auto rows = PredictFile(session, Args(Npy(3)), "");
  ASSERT_TRUE(rows.has_value()) << rows.error();
  EXPECT_EQ(*rows, 3);
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["i64"][0], 1099511627776.0);
  EXPECT_EQ(lines[0]["bool"][0], 1.0);
  EXPECT_EQ(lines[1]["bool"][0], 0.0);
  EXPECT_EQ(lines[1]["f64"], nlohmann::json({3.0, 4.0}));
  for (const char* name : {"bf16", "f16", "f32", "i32"}) {
    EXPECT_EQ(lines[0][name][0], 1.0) << name;
    EXPECT_EQ(lines[1][name][0], -2.0) << name;
  }
}

TEST_F(PredictOnForeignPrograms, ALabelOfAWindowIsWrittenAsItIs) {
  Answer answer;
  answer.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 3}, std::vector<float>(6, 0.5))}};
  ToldSession session = Saying(kWindows, answer);
  const auto rows = PredictFile(session, Args(Write("text", "hello, world")), "bytes");
  ASSERT_TRUE(rows.has_value()) << rows.error();
  EXPECT_EQ(Lines().front()["logits"], nlohmann::json({0.5, 0.5, 0.5}));
}

TEST_F(PredictOnForeignPrograms, WhatHasNoRowsOrFitsNoFileIsAnErrorAndLeavesNothing) {
  Answer scalars;
  scalars.values = {{"loss", 1}};
  EXPECT_THAT(WhyNot(Saying(kRows, scalars), Args(Npy(3))), HasSubstr("gives out no tensor"));
  Answer whole;
  whole.tensors = {{"centre", Tensor::Of<float>({3}, std::vector<float>{1, 2, 3})}};
  EXPECT_THAT(WhyNot(Saying(kRows, whole), Args(Npy(3))),
              HasSubstr("output \"centre\" of 'predict' is f32[3], which has no rows of its own"));
  whole.tensors = {{"yes", Raw(DType::kBool, {2}, {1, 0})}};
  EXPECT_THAT(WhyNot(Saying(kRows, whole), Args(Npy(3), "said.npy")),
              HasSubstr("no type for bool"));
  const Signature flat = {{kWindowInput, {DType::kI32, {2}}}};
  EXPECT_THAT(WhyNot(Saying(flat, whole), Args(Write("text", "hello, world")), "bytes"),
              HasSubstr("input \"window\" of the program 'predict' is i32[2]"));
  Answer few;
  few.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 4, 3}, std::vector<float>(24, 0))}};
  EXPECT_THAT(WhyNot(Saying(kWindows, few), Args(Write("text", "hello, world")), "bytes"),
              HasSubstr("row 0: token 104 is not among the 3"));
}

// Of two texts the shorter one is filled up, and the longer one loses its beginning.
TEST_F(PredictOnForeignPrograms, TextsAreRowsOfTheirOwnTokens) {
  ToldSession session({{kPredictProgram, kWindows}}, [](const Feeds& feeds) -> Result<Answer> {
    const std::vector<double> first = feeds.at(kWindowInput).RealsOfRow(0);
    EXPECT_EQ(first, (std::vector<double>{1, 2, 0, 0, 0}));
    EXPECT_EQ(feeds.at(kWindowInput).RealsOfRow(1), (std::vector<double>{1, 2, 1, 2, 0}));
    Answer answer;
    std::vector<float> logits(2 * 4 * 3, 0);
    logits[1 * 3 + 2] = 5;          // behind the second token of the first row
    logits[4 * 3 + 3 * 3 + 1] = 5;  // behind the last one of the second
    answer.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 4, 3}, logits)}};
    return answer;
  });
  PredictArgs args = Args("asked.jsonl");
  args.top = 1;
  const auto rows = PredictTexts(session, args, {{1, 2}, {0, 0, 1, 2, 1, 2}});
  ASSERT_TRUE(rows.has_value()) << rows.error();
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["predicted"], 1);
  EXPECT_EQ(lines[0]["next"][0]["token"], 2);
  EXPECT_EQ(lines[1]["predicted"], 3);
  EXPECT_EQ(lines[1]["next"][0]["token"], 1);
}

// A job of its own takes a number: what is refused before anything is asked is refused before it.
TEST_F(PredictOnForeignPrograms, ARefusedQuestionOpensNoSession) {
  const auto body = [](client::Builder& b, const client::Batch& in) {
    b.SetOutput("y", b.Scale(in.at("x"), 2));
    return OkStatus();
  };
  const auto program = client::MakeProgram(kPredictProgram, {{"x", kRows.at("x")}}, body);
  ASSERT_TRUE(program.has_value()) << program.error();
  ir::JobRequest job;
  job.programs = {*program};
  job.driver.kind = ir::DriverKind::kClient;
  int opened = 0;
  Answer answer;
  answer.tensors = {{"y", Tensor::Of<float>({2, 1}, std::vector<float>{1, 2})}};
  PendingSession session(job, [&]() -> Result<std::unique_ptr<client::Session>> {
    ++opened;
    return std::make_unique<ToldSession>(Saying(kRows, answer));
  });
  EXPECT_EQ(session.programs().at(kPredictProgram), kRows);
  EXPECT_FALSE(PredictFile(session, Args(Npy(3), "said.txt"), "").has_value());
  EXPECT_FALSE(PredictFile(session, Args(dir_.File("none.npy")), "").has_value());
  EXPECT_FALSE(PredictTexts(session, Args("asked.jsonl"), {{1, 2}}).has_value());
  EXPECT_FALSE(PredictText(session, {1}, 7, 2).has_value());
  EXPECT_TRUE(session.Close({}).ok());
  EXPECT_EQ(opened, 0);
  const auto rows = PredictFile(session, Args(Npy(4)), "");
  ASSERT_TRUE(rows.has_value()) << rows.error();
  EXPECT_EQ(*rows, 4);
  EXPECT_EQ(opened, 1) << "two calls";
  EXPECT_TRUE(session.Close({}).ok());
}

TEST_F(PredictOnForeignPrograms, ASessionThatDoesNotOpenIsTriedOnce) {
  int opened = 0;
  PendingSession session(ir::JobRequest(), [&]() -> Result<std::unique_ptr<client::Session>> {
    ++opened;
    return Fail(ResourceExhausted("no device"));
  });
  EXPECT_EQ(session.Run("p", {}, {}).error().message(), "no device");
  EXPECT_EQ(session.Call("p", {}, {}).get().error().message(), "no device");
  EXPECT_EQ(session.Stop({}).message(), "no device");
  EXPECT_EQ(opened, 1);
}

std::string WhyNotText(Signature inputs, Answer answer) {
  ToldSession session = Saying(std::move(inputs), std::move(answer));
  const auto prediction = PredictText(session, {0, 1, 0}, 7, 2);
  return prediction ? "" : prediction.error().message();
}

TEST(PredictText, NamesWhatIsNotThatOfALanguageModel) {
  ToldSession none({}, {});
  EXPECT_THAT(PredictText(none, {1}, 7, 2).error().message(),
              HasSubstr("job 7 has no program 'predict'"));
  EXPECT_THAT(WhyNotText(kRows, {}), HasSubstr("has no input \"window\""));
  EXPECT_THAT(WhyNotText({{kWindowInput, {DType::kI32, {5}}}}, {}), HasSubstr("is i32[5]"));
  EXPECT_THAT(WhyNotText({{kWindowInput, {DType::kI32, {1, 1}}}}, {}), HasSubstr("is i32[1,1]"));
  EXPECT_THAT(WhyNotText({{kWindowInput, {DType::kF32, {1, 5}}}}, {}), HasSubstr("is f32[1,5]"));
  Signature two = kWindows;
  two["mask"] = {DType::kF32, {2, 4}};
  EXPECT_THAT(WhyNotText(two, {}), HasSubstr("takes \"mask\" f32[2,4] beside the tokens"));
  Answer answer;
  answer.tensors = {{"label", Tensor::Of<int32_t>({2}, std::vector<int32_t>{1, 2})}};
  EXPECT_THAT(WhyNotText(kWindows, answer),
              HasSubstr("has no output \"logits\"; it gives out \"label\" i32[2]; ask it by rows"));
  answer.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 3}, std::vector<float>(6, 0))}};
  EXPECT_THAT(WhyNotText(kWindows, answer), HasSubstr("output \"logits\" of the program 'predict' "
                                                      "is f32[2,3]"));
  answer.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 4, 1}, std::vector<float>(8, 0))}};
  EXPECT_THAT(WhyNotText(kWindows, answer), HasSubstr("token 1 is not among the 1"));
  answer.tensors = {{kLogitsOutput, Tensor::Of<float>({2, 4, 2}, std::vector<float>(16, 0))}};
  EXPECT_EQ(WhyNotText(kWindows, answer), "");
}

}  // namespace
}  // namespace meshwright::cli
