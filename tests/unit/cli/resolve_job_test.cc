#include "cli/resolve_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "client/program.h"
#include "config/config_keys.h"

namespace meshwright::cli {
namespace {

using proto::ClientFile;
using proto::JobFile;
using proto::ResolvedFile;
using proto::WantedFiles;
using proto::WantedKind;

constexpr char kJob[] = R"([job]
name = "small"
[model]
dim = 32
n_layers = 2
n_heads = 4
vocab_size = 256
[training]
dataset_path = "text.txt"
global_batch_size = 8
seq_len = 16
steps = 3
)";

JobFile File(std::string text = kJob) {
  JobFile file;
  file.text = std::move(text);
  file.file = "job.toml";
  file.folder = "/home/them/jobs";
  file.working_folder = "/home/them";
  return file;
}

ResolvedFile Resolve(const JobFile& file) {
  return ResolveJob(file, [](const std::string&) -> Result<ir::BlobRef> {
    return Fail(Internal("nothing is stored"));
  });
}

std::string FirstError(const ResolvedFile& resolved) {
  return resolved.errors.empty() ? "no error" : resolved.errors[0].message;
}

// A file that the client has at `path` and has uploaded.
ClientFile Uploaded(const TempDir& dir, const std::string& path, const std::string& bytes) {
  const std::string local = dir.File("blob-" + std::to_string(path.size()));
  EXPECT_TRUE(WriteFileAtomic(local, bytes).ok());
  return {path, static_cast<int64_t>(bytes.size()), "0123abcd", "", "", "", "", local};
}

TEST(ResolveJob, SaysWhichFilesItWants) {
  const ResolvedFile resolved = Resolve(File());
  EXPECT_EQ(FirstError(resolved), "no error");
  EXPECT_FALSE(resolved.job.has_value());
  EXPECT_EQ(
      resolved.wanted,
      (std::vector<WantedFiles>{{"training.dataset_path", "text.txt", WantedKind::kData, false}}));
}

TEST(ResolveJob, WithItsFilesAFileBecomesARequest) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  JobFile file = File();
  file.overrides = {"training.steps=5"};
  file.listed = true;
  file.files = {Uploaded(*dir, "/home/them/jobs/text.txt", std::string(5000, 'x'))};
  const ResolvedFile resolved = Resolve(file);
  ASSERT_EQ(FirstError(resolved), "no error");
  ASSERT_TRUE(resolved.job.has_value());
  EXPECT_EQ(resolved.job->name, "small");
  EXPECT_EQ(resolved.job->train.steps, 5);
  ASSERT_EQ(resolved.job->data.streams.size(), 1u);
  const ir::FileRef& data = resolved.job->data.streams[0].files.at(0);
  EXPECT_EQ(data.blob, (ir::BlobRef{"0123abcd", 5000, "/home/them/jobs/text.txt"}));
  // What is recorded is what the user wrote.
  EXPECT_NE(resolved.job->config_text.find("dataset_path = \"text.txt\""), std::string::npos);
}

TEST(ResolveJob, TheWorkingFolderComesAfterThatOfTheFile) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  JobFile file = File();
  file.listed = true;
  file.files = {Uploaded(*dir, "/home/them/text.txt", std::string(5000, 'x'))};
  const ResolvedFile resolved = Resolve(file);
  ASSERT_EQ(FirstError(resolved), "no error");
  EXPECT_EQ(resolved.job->data.streams[0].files[0].blob.name, "/home/them/text.txt");
}

TEST(ResolveJob, WorkersReadInPlaceWhatOnlyItsHeadIsKnownOf) {
  JobFile file = File();
  file.listed = true;
  file.files = {
      {"/home/them/text.txt", 1 << 20, "", "shared", "text.txt", "5a5a", "some text", ""}};
  const ResolvedFile resolved = Resolve(file);
  ASSERT_EQ(FirstError(resolved), "no error");
  const ir::FileRef& data = resolved.job->data.streams[0].files.at(0);
  EXPECT_EQ(data.root, "shared");
  EXPECT_EQ(data.path, "text.txt");
  EXPECT_EQ(data.sampled, "5a5a");
  EXPECT_EQ(data.blob.size_bytes, 1 << 20);
}

TEST(ResolveJob, ErrorsOfModelAndDataComeTogetherInTheClientsWords) {
  JobFile file = File();
  file.overrides = {"model.vocab_size=100"};
  file.listed = true;
  const ResolvedFile resolved = Resolve(file);
  ASSERT_EQ(resolved.errors.size(), 2u);
  EXPECT_EQ(resolved.errors[0].key, "model.vocab_size");
  EXPECT_EQ(resolved.errors[1].key, "training.dataset_path");
  EXPECT_EQ(resolved.errors[1].line, 9);
  EXPECT_EQ(resolved.errors[1].message.find("/tmp"), std::string::npos)
      << resolved.errors[1].message;
  EXPECT_NE(resolved.errors[1].message.find("/home/them/text.txt"), std::string::npos)
      << resolved.errors[1].message;
  EXPECT_FALSE(resolved.job.has_value());
}

TEST(ResolveJob, FilesOfTheControllerAreNotReachable) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  ASSERT_TRUE(WriteFileAtomic(dir->File("secret.txt"), std::string(5000, 'x')).ok());
  JobFile file = File();
  file.listed = true;
  for (const std::string& path :
       {dir->File("secret.txt"), "../../../../../.." + dir->File("secret.txt")}) {
    file.overrides = {"training.dataset_path=\"" + path + "\""};
    const ResolvedFile resolved = Resolve(file);
    ASSERT_EQ(resolved.errors.size(), 1u) << path;
    EXPECT_EQ(resolved.errors[0].code, StatusCode::kNotFound) << resolved.errors[0].message;
    EXPECT_EQ(resolved.errors[0].key, "training.dataset_path") << resolved.errors[0].message;
  }
  ASSERT_TRUE(WriteFileAtomic(dir->File("config.json"), "{}").ok());
  file.overrides = {"model.hf_path=\"" + dir->path() + "\""};
  const ResolvedFile resolved = Resolve(file);
  EXPECT_EQ(resolved.errors.at(0).code, StatusCode::kNotFound) << resolved.errors[0].message;
}

// A key that names a file of the client has a row in WantedBy and a line in Mirrored: else a client
// would read what the controller has at that path.
TEST(ResolveJob, EveryKeyThatNamesAFileIsWanted) {
  int count = 0;
  for (const config::ConfigKey& key : config::ConfigKeys()) {
    if (!key.name.ends_with("path")) continue;
    const std::string name = fmt::format("{}.{}", key.section, key.name);
    JobFile file = File("");
    file.overrides = {name + "=\"some/file\""};
    const ResolvedFile resolved = Resolve(file);
    if (name == "lora.adapter_path") {
      EXPECT_NE(FirstError(resolved).find(name), std::string::npos);
      continue;
    }
    ASSERT_EQ(resolved.wanted.size(), 1u) << name;
    EXPECT_EQ(resolved.wanted[0].key, name);
    EXPECT_EQ(resolved.wanted[0].path, "some/file");
    ++count;
  }
  EXPECT_GE(count, 4);
}

TEST(ResolveJob, WhatTheCommandReadsItselfIsRefused) {
  for (const char* set :
       {"training.tokenizer=\"/etc/tokenizer.json\"", "training.dataset_format=\"jsonl\"",
        "training.dataset_format=\"text\""}) {
    JobFile file = File("");
    file.overrides = {set};
    const std::string error = FirstError(Resolve(file));
    EXPECT_NE(error.find("`meshwright submit`"), std::string::npos) << set << ": " << error;
  }
}

TEST(ResolveJob, ContentsAreCheckedWhereTheyAreHere) {
  auto dir = TempDir::Make();
  ASSERT_TRUE(dir.has_value());
  JobFile file = File();
  file.listed = true;
  file.files = {Uploaded(*dir, "/home/them/text.txt", "short")};
  EXPECT_NE(FirstError(Resolve(file)).find("training.dataset_path"), std::string::npos);
}

TEST(ResolveJob, ProgramsOfOnesOwnTakeTheRestFromTheFile) {
  JobFile file = File("[job]\nname = \"own\"\n[training]\nglobal_batch_size = 4\nseq_len = 1\n");
  ir::JobRequest own;
  const auto loss =
      client::TrainedProgram({{"x", {ir::DType::kF32, {4, 2}}}, {"y", {ir::DType::kI32, {4}}}},
                             [](client::Builder& b, const client::Batch& in) {
                               return b.CrossEntropy(b.Linear(in.at("x"), "head", 3), in.at("y"));
                             });
  ASSERT_TRUE(loss.has_value()) << loss.error();
  own.programs = {*loss};
  own.driver = {ir::DriverKind::kClient, "", 0, 7};
  file.own = own;
  const ResolvedFile resolved = Resolve(file);
  ASSERT_EQ(FirstError(resolved), "no error");
  ASSERT_TRUE(resolved.job.has_value());
  EXPECT_EQ(resolved.job->driver, own.driver);
  EXPECT_EQ(resolved.job->train.global_batch, 4);
  EXPECT_FALSE(resolved.job->save_weights);
  file.overrides = {"training.dataset_path=a.txt"};
  EXPECT_NE(FirstError(Resolve(file)).find("take the key out"), std::string::npos);
}

TEST(ResolveJob, AStepToLoadIsRefused) {
  JobFile file = File();
  file.overrides = {"checkpoint.load_step=20"};
  EXPECT_EQ(Resolve(file).errors.at(0).key, "checkpoint.load_step");
}

}  // namespace
}  // namespace meshwright::cli
