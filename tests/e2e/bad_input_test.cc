// Damaged or missing data and full disks: each ends in seconds with a message that names cause and
// fix, and the cluster stays of use.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

using client::JobState;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class BadInput : public FaultFixture {
 protected:
  Failure SubmitFails(const std::string& job_text) {
    return Fails({"--address", cluster().address(), "submit", Write("job.toml", job_text)});
  }
};

// ---- Data ----

TEST_F(BadInput, DamagedDataFilesAreRefusedNamingTheFileAndTheWayOut) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  struct Case {
    const char* name;
    std::string bytes;
    const char* format;
    std::vector<const char*> words;
  };
  std::string text = SampleText(5'000);
  const std::string cut = text + "caf\xc3";  // the second byte of the last letter is missing
  const std::string position = std::to_string(cut.size() - 1);
  text[2500] = '\xff';
  const std::string tokens(10'001, '\0');
  const Case cases[] = {
      {"broken.txt", text, "bytes", {"offset 2500", "convert it to UTF-8"}},
      {"cut.txt", cut, "bytes", {position.c_str(), "convert it to UTF-8"}},
      {"odd.bin", tokens, "uint16", {"10001 bytes", "truncated", "write it again"}},
      {"short.bin", tokens.substr(0, 20), "uint16", {"10 tokens", "needs 17", "use a longer file"}},
      {"empty.txt", "", "bytes", {"is empty"}},
      {"wide.bin", std::string(8'000, '\x7f'), "uint16", {"outside the vocabulary of 256"}},
  };
  for (const Case& c : cases) {
    const Failure failure = SubmitFails(JobFile(Write(c.name, c.bytes), 1, 2, 10,
                                                fmt::format("dataset_format = \"{}\"", c.format)));
    EXPECT_EQ(failure.code, 2) << c.name;
    EXPECT_THAT(failure.text, HasSubstr(dir_.File(c.name)));
    for (const char* word : c.words) EXPECT_THAT(failure.text, HasSubstr(word)) << c.name;
  }
  EXPECT_TRUE(client().List().value().empty()) << "the client sees what is wrong by itself";
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  ExpectAJobSucceeds(1, 2);
}

TEST_F(BadInput, MissingDataFileIsRefusedBeforeTheJobExists) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const Failure failure = SubmitFails(JobFile(dir_.File("gone.txt"), 1, 1, 10));
  EXPECT_EQ(failure.code, 2);
  EXPECT_THAT(failure.text, AllOf(HasSubstr("training.dataset_path"),
                                  HasSubstr(dir_.File("gone.txt")), HasSubstr("No such file")));
  const auto jobs = client().List();
  ASSERT_TRUE(jobs.has_value()) << jobs.error();
  EXPECT_TRUE(jobs->empty());
}

// The data is uploaded by content: the user's file may go, and a worker fetches a lost copy again.
TEST_F(BadInput, DeletedCopiesOfTheDataAreFetchedAgainWhileTheControllerHasThem) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string data = Write("data.txt", SampleText(9'000));
  const std::string job = Write("job.toml", JobFile(data, 1, 1, 3));
  const std::vector<std::string> submit = {"--address", cluster().address(), "submit", job};
  const auto first = RunMeshwright(submit);
  ASSERT_TRUE(first.has_value()) << first.error();
  ASSERT_EQ(first->exit.code, 0) << first->stderr_text;
  int removed = 0;
  for (const auto& folder : std::filesystem::directory_iterator(cluster().temp_dir())) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      removed += std::filesystem::remove(file) ? 1 : 0;
    }
  }
  ASSERT_GT(removed, 0) << "the worker should have kept blobs in " << cluster().temp_dir();
  const auto second = RunMeshwright(submit);
  ASSERT_TRUE(second.has_value()) << second.error();
  EXPECT_EQ(second->exit.code, 0) << second->stdout_text << second->stderr_text;
}

TEST_F(BadInput, DataDeletedFromTheControllerFailsTheJobAndCanBeSentAgain) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const int64_t first = StartJob(1, 1);
  const std::string data = Write("data.txt", SampleText(9'000));
  ir::JobRequest job = ByteJob(1, 1, 1, 3);
  const auto blob = client().UploadFile(data);
  ASSERT_TRUE(blob.has_value()) << blob.error();
  job.data.blob = *blob;
  const auto queued = client().Submit(job);
  ASSERT_TRUE(queued.has_value()) << queued.error();
  ASSERT_TRUE(std::filesystem::remove(cluster().state_dir() + "/blobs/" + blob->sha256));
  const auto unknown = client().Submit(job);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_THAT(unknown.error().message(), AllOf(HasSubstr("data.txt"), HasSubstr("upload")));
  ASSERT_TRUE(client().Cancel(first).ok());
  const client::JobInfo ended = EndOf(*queued);
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_THAT(ended.message, AllOf(HasSubstr("data.txt"), HasSubstr("upload")));
  const auto again = RunMeshwright(
      {"--address", cluster().address(), "submit", Write("job.toml", JobFile(data, 1, 1, 3))});
  ASSERT_TRUE(again.has_value()) << again.error();
  EXPECT_EQ(again->exit.code, 0) << again->stdout_text << again->stderr_text;
}

// ---- Data in place ----

class InPlace : public FaultFixture {
 protected:
  void StartWithRoot(int workers) {
    ProcessClusterOptions options;
    options.workers = workers;
    options.worker_args = {"--data-root", dir_.path()};
    Start(std::move(options));
  }
  // Bytes of the blobs that the controller keeps.
  std::set<int64_t> BlobSizes() {
    std::set<int64_t> sizes;
    for (const auto& file : std::filesystem::directory_iterator(cluster().state_dir() + "/blobs")) {
      sizes.insert(static_cast<int64_t>(file.file_size()));
    }
    return sizes;
  }
};

TEST_F(InPlace, DataBelowARootIsNotCopiedAndOtherDataIs) {
  ASSERT_NO_FATAL_FAILURE(StartWithRoot(2));
  const std::string job = Write("job.toml", JobFile(Write("data.txt", SampleText(9'001)), 2, 1, 3));
  const auto submit = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"--address", cluster().address(), "submit", job};
    args.insert(args.end(), more.begin(), more.end());
    const auto run = RunMeshwright(args);
    EXPECT_TRUE(run.has_value()) << run.error();
    EXPECT_EQ(run->exit.code, 0) << run->stdout_text << run->stderr_text;
    return run->stderr_text;
  };
  EXPECT_THAT(submit({}), Not(HasSubstr("went to the controller")));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(dir_.File("data.txt")));
  EXPECT_FALSE(BlobSizes().contains(size));
  const TempDir elsewhere = TempDir::Make().value();
  ASSERT_TRUE(WriteFileAtomic(elsewhere.File("other.txt"), SampleText(9'100)).ok());
  EXPECT_THAT(submit({"--set", "training.dataset_path=" + elsewhere.File("other.txt")}),
              AllOf(HasSubstr("went to the controller"), HasSubstr("no worker has a data root"),
                    HasSubstr("--data-root " + elsewhere.path())));
  EXPECT_TRUE(BlobSizes().contains(
      static_cast<int64_t>(std::filesystem::file_size(elsewhere.File("other.txt")))));
  submit({"--upload"});
  EXPECT_TRUE(BlobSizes().contains(size));
}

TEST_F(InPlace, DataThatWasChangedSinceItWasSubmittedFailsTheJobNamingTheFile) {
  ASSERT_NO_FATAL_FAILURE(StartWithRoot(1));
  const int64_t first = StartJob(1, 1);
  const std::string data = Write("data.txt", SampleText(9'000));
  const auto queued = RunMeshwright({"--address", cluster().address(), "submit",
                                     Write("job.toml", JobFile(data, 1, 1, 3)), "--no-wait"});
  ASSERT_TRUE(queued.has_value()) << queued.error();
  ASSERT_EQ(queued->exit.code, 0) << queued->stderr_text;
  std::string other = SampleText(9'000);
  other[0] = 'X';
  ASSERT_TRUE(WriteFileAtomic(data, other).ok());
  ASSERT_TRUE(client().Cancel(first).ok());
  const client::JobInfo ended = EndOf(first + 1);
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_THAT(ended.message, AllOf(HasSubstr("data.txt"), HasSubstr("other bytes")));
  ExpectAJobSucceeds(1, 1);
}

// ---- Full disks ----

// A file system of a few KiB over a folder, for as long as the object lives.
class SmallDisk {
 public:
  explicit SmallDisk(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
    mounted_ = ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=48k") == 0;
  }
  ~SmallDisk() { Remove(); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  void Remove() {
    if (std::exchange(mounted_, false)) ::umount2(folder_.c_str(), MNT_DETACH);
  }

 private:
  const std::string folder_;
  bool mounted_ = false;
};

TEST_F(BadInput, FullDiskForTheCheckpointFailsTheJobAndLeavesNoPart) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  const std::string folder = cluster().state_dir() + "/jobs/1";
  SmallDisk disk(folder);  // room for the plan and the logs, not for the weights
  if (!disk.mounted()) GTEST_SKIP() << "a file system of 48 KiB needs the right to mount";
  const auto id = cluster().Submit(ByteJob(1, 1, 2, 3), SampleText(9'000));
  ASSERT_TRUE(id.has_value()) << id.error();
  const client::JobInfo ended = EndOf(*id);
  EXPECT_EQ(ended.state, JobState::kFailed);
  EXPECT_EQ(ended.reason, "SaveFailed");
  EXPECT_THAT(ended.message,
              AllOf(HasSubstr(folder + "/model.safetensors"), HasSubstr("No space left")));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("safetensors")));
  }
  for (const int worker : {0, 1}) ExpectHoldsNothingOfAJob(worker);
  disk.Remove();
  ExpectAJobSucceeds(1, 2);
}

TEST_F(BadInput, FullDiskForTheDataRefusesTheUploadAndLeavesNoPart) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(1));
  const std::string folder = cluster().state_dir() + "/blobs";
  SmallDisk disk(folder);
  if (!disk.mounted()) GTEST_SKIP() << "a file system of 48 KiB needs the right to mount";
  const std::string data = Write("large.txt", SampleText(200'000));
  const Failure failure = SubmitFails(JobFile(data, 1, 1, 3));
  EXPECT_THAT(failure.text, AllOf(HasSubstr(data), HasSubstr("No space left")));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  disk.Remove();
  ExpectAJobSucceeds(1, 1);
}

}  // namespace
}  // namespace meshwright::testing
