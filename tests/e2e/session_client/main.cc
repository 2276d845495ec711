// A client as a process of its own, so that a test can kill it: drives a job, step by step, until
// it is ended. Arguments: the controller's address, driver.grace_s.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "tests/e2e/driven_job.h"

int main(int argc, char** argv) {
  using namespace meshwright;  // NOLINT(google-build-using-namespace)
  MW_CHECK(argc == 3) << argc;
  client::Client::Options options;
  options.address = argv[1];
  auto client = client::Client::Connect(options);
  MW_CHECK(client.has_value()) << client.error();
  const auto job = testing::MakeDrivenJob(2, std::atoll(argv[2]));
  MW_CHECK(job.has_value()) << job.error();
  auto session = (*client)->OpenSession(*job);
  MW_CHECK(session.has_value()) << session.error();
  std::printf("job %lld\n", static_cast<long long>((*session)->job_id()));
  for (int64_t step = 0; step < 1'000'000; ++step) {
    const auto answer = (*session)->Run("step", testing::DrivenRows(step));
    MW_CHECK(answer.has_value()) << answer.error();
    std::printf("step %lld\n", static_cast<long long>(step));
    std::fflush(stdout);
  }
  return 0;
}
