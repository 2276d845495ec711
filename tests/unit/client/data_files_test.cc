#include "client/data_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/file.h"
#include "data/describe.h"
#include "data/identity.h"
#include "data/roots.h"

namespace meshwright::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

WorkerInfo Worker(const std::string& name, std::vector<ir::DataRoot> roots,
                  const std::string& state = "READY") {
  WorkerInfo worker;
  worker.name = name;
  worker.state = state;
  worker.data_roots = std::move(roots);
  return worker;
}

TEST(ChooseRoot, TakesTheDeepestRootThatAllWorkersHave) {
  const ir::DataRoot all{"/", "/"};
  const ir::DataRoot data{"/data", "/data"};
  const ir::DataRoot deep{"/data/a", "/data/a"};
  const RootChoice choice =
      ChooseRoot({Worker("w0", {all, data, deep}), Worker("w1", {data, all})}, {}, "/data/a/x.bin");
  EXPECT_EQ(choice.root, "/data");
  EXPECT_EQ(choice.path, "a/x.bin");
  EXPECT_EQ(choice.missing, "");
}

TEST(ChooseRoot, SaysWhichWorkerMissesWhichRoot) {
  const ir::DataRoot data{"/data", "/data"};
  const auto missing = [](const std::vector<WorkerInfo>& workers, const char* path) {
    const RootChoice choice = ChooseRoot(workers, {}, path);
    EXPECT_EQ(choice.root, "");
    return choice.missing;
  };
  EXPECT_EQ(missing({Worker("w0", {data}), Worker("w1", {})}, "/data/x"),
            "w1 has no data root '/data'");
  EXPECT_EQ(missing({Worker("w0", {data})}, "/database/x"),
            "no worker has a data root that holds it");
  EXPECT_EQ(missing({}, "/data/x"), "no worker is ready to say what it can read");
  std::vector<WorkerInfo> many = {Worker("a", {data})};
  for (const char* name : {"b", "c", "d", "e", "f"}) many.push_back(Worker(name, {}));
  EXPECT_EQ(missing(many, "/data/x"), "b, c, d and 2 more have no data root '/data'");
}

// A name stands for another folder on each machine.
TEST(ChooseRoot, ANamedRootIsWhereThisMachineHasIt) {
  const std::vector<WorkerInfo> workers = {Worker("w0", {{"corpora", "/mnt/a"}}),
                                           Worker("w1", {{"corpora", "/mnt/b"}})};
  EXPECT_EQ(ChooseRoot(workers, {}, "/mnt/a/x").root, "");
  const RootChoice choice = ChooseRoot(workers, {{"corpora", "/home/me/c"}}, "/home/me/c/x");
  EXPECT_EQ(choice.root, "corpora");
  EXPECT_EQ(choice.path, "x");
  EXPECT_EQ(ChooseRoot(workers, {{"other", "/home/me/c"}}, "/home/me/c/x").root, "");
}

class UploadCounter final : public Client {
 public:
  explicit UploadCounter(std::vector<WorkerInfo> workers) : workers_(std::move(workers)) {}
  Result<ir::BlobRef> UploadFile(const std::string& path) override {
    uploads.push_back(path);
    return ir::BlobRef{std::string(64, 'a'), FileSize(path).value_or(0), path};
  }
  Result<int64_t> Submit(const ir::JobRequest&) override { return 1; }
  Result<std::unique_ptr<Session>> OpenSession(const ir::JobRequest&, SessionOptions) override {
    return Fail(Unavailable("no session"));
  }
  Result<std::unique_ptr<Session>> AttachSession(int64_t, SessionOptions) override {
    return Fail(Unavailable("no session"));
  }
  Result<proto::JobDescription> Describe(int64_t) override { return Fail(NotFound("no job")); }
  Result<JobInfo> Get(int64_t) override { return JobInfo(); }
  Result<std::vector<JobInfo>> List() override { return std::vector<JobInfo>(); }
  Status Send(const Order&) override { return OkStatus(); }
  Result<JobInfo> Watch(int64_t, const std::function<bool(const JobUpdate&)>&, int64_t) override {
    return JobInfo();
  }
  Result<std::vector<std::string>> Logs(int64_t) override { return std::vector<std::string>(); }
  Result<std::vector<WorkerInfo>> Workers() override { return workers_; }
  Result<std::string> Story(const StoryAsk&) override { return std::string(); }

  std::vector<std::string> uploads;

 private:
  std::vector<WorkerInfo> workers_;
};

class SendDataTest : public ::testing::Test {
 protected:
  SendDataTest() {
    path_ = dir_.File("a.txt");
    EXPECT_TRUE(WriteFileAtomic(path_, "some text").ok());
    data::FilesRequest request;
    request.paths = {path_};
    stream_ = data::DescribeFiles(request).value();
  }
  TempDir dir_ = *TempDir::Make();
  std::string path_;
  ir::DataStream stream_;
};

TEST_F(SendDataTest, FilesBelowARootOfAllWorkersAreNotSent) {
  const ir::DataRoot root{dir_.path(), dir_.path()};
  UploadCounter client({Worker("w0", {root}), Worker("gone", {}, "LOST")});
  const auto sent = SendData(client, {stream_});
  ASSERT_TRUE(sent.has_value()) << sent.error();
  EXPECT_THAT(client.uploads, IsEmpty());
  EXPECT_THAT(sent->notes, IsEmpty());
  const ir::FileRef& file = sent->spec.streams[0].files[0];
  EXPECT_EQ(file.root, dir_.path());
  EXPECT_EQ(file.path, "a.txt");
  EXPECT_EQ(file.blob.sha256, "");
  const auto fd = data::OpenLocal(file);
  EXPECT_EQ(file.sampled, data::SampledHash(fd->get(), 9, "a").value());
}

// The folder of the user is a link to where the workers have the data.
TEST_F(SendDataTest, LinksOnTheWayToARootAreSeenThrough) {
  const std::string link = dir_.path() + ".link";
  ASSERT_EQ(::symlink(dir_.path().c_str(), link.c_str()), 0);
  data::FilesRequest request;
  request.paths = {link + "/a.txt"};
  UploadCounter client({Worker("w0", {{"/d", dir_.path()}})});
  const auto sent = SendData(client, {data::DescribeFiles(request).value()});
  ::unlink(link.c_str());
  ASSERT_TRUE(sent.has_value()) << sent.error();
  EXPECT_EQ(sent->spec.streams[0].files[0].path, "a.txt");
}

// Workers follow no link out of a root, so what it leads to is sent.
TEST_F(SendDataTest, LinksOutOfARootAreSent) {
  const std::string elsewhere = dir_.path() + ".elsewhere";
  ASSERT_TRUE(WriteFileAtomic(elsewhere, "more text").ok());
  ASSERT_EQ(::symlink(elsewhere.c_str(), dir_.File("link.txt").c_str()), 0);
  data::FilesRequest request;
  request.paths = {dir_.File("link.txt")};
  UploadCounter client({Worker("w0", {{dir_.path(), dir_.path()}})});
  const auto sent = SendData(client, {data::DescribeFiles(request).value()});
  ::unlink(elsewhere.c_str());
  ASSERT_TRUE(sent.has_value()) << sent.error();
  EXPECT_THAT(client.uploads, ElementsAre(dir_.File("link.txt")));
}

TEST_F(SendDataTest, OtherFilesAreSentAndTheMissingRootIsTold) {
  UploadCounter client({Worker("w0", {{dir_.path(), dir_.path()}}), Worker("w1", {})});
  const auto sent = SendData(client, {stream_});
  ASSERT_TRUE(sent.has_value()) << sent.error();
  EXPECT_THAT(client.uploads, ElementsAre(path_));
  EXPECT_EQ(sent->spec.streams[0].files[0].blob.sha256, std::string(64, 'a'));
  ASSERT_EQ(sent->notes.size(), 1);
  EXPECT_THAT(sent->notes[0],
              AllOf(HasSubstr(path_), HasSubstr("9 B"), HasSubstr("w1 has no data root"),
                    HasSubstr("--data-root " + dir_.path())));
  const auto file = SendFile(client, path_);
  ASSERT_TRUE(file.has_value()) << file.error();
  EXPECT_EQ(file->file.blob.name, path_);
}

TEST_F(SendDataTest, UploadsAllWhenAskedTo) {
  UploadCounter client({Worker("w0", {{dir_.path(), dir_.path()}})});
  SendOptions options;
  options.upload = true;
  const auto sent = SendData(client, {stream_}, options);
  ASSERT_TRUE(sent.has_value()) << sent.error();
  EXPECT_THAT(client.uploads, ElementsAre(path_));
  EXPECT_THAT(sent->notes, IsEmpty());
}

}  // namespace
}  // namespace meshwright::client
