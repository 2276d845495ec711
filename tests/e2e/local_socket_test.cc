// The controller's socket in the file system, beside its port.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>

#include "base/listen_address.h"
#include "tests/e2e/driven_job.h"
#include "tests/e2e/fault_fixture.h"

namespace meshwright::testing {
namespace {

class LocalSocket : public FaultFixture {
 protected:
  std::string Path() { return LocalSocketIn(cluster().state_dir()); }

  // A session that asks over the socket is answered.
  void ExpectServes() {
    client::Client::Options options;
    options.address = "unix:" + Path();
    const auto client = client::Client::Connect(options);
    ASSERT_TRUE(client.has_value()) << client.error();
    const auto job = MakeDrivenJob(2, 600);
    ASSERT_TRUE(job.has_value()) << job.error();
    const auto session = (*client)->OpenSession(*job);
    ASSERT_TRUE(session.has_value()) << session.error();
    const auto answer = (*session)->Run("step", DrivenRows(0));
    EXPECT_TRUE(answer.has_value()) << answer.error();
    EXPECT_TRUE((*session)->Close().ok());
  }
};

TEST_F(LocalSocket, ServesItsOwnerAlone) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  ASSERT_NO_FATAL_FAILURE(ExpectServes());
  struct stat info = {};
  ASSERT_EQ(::stat(Path().c_str(), &info), 0);
  EXPECT_TRUE(S_ISSOCK(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(LocalSocket, OfADeadControllerIsReplaced) {
  ASSERT_NO_FATAL_FAILURE(StartWorkers(2));
  Kill(cluster().controller());
  ASSERT_NO_FATAL_FAILURE(RestartController());
  const Status ready = cluster().WaitReady(2);
  ASSERT_TRUE(ready.ok()) << ready;
  ExpectServes();
}

}  // namespace
}  // namespace meshwright::testing
