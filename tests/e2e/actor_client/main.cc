// A client that drives a job and asks an actor for as long as it lives: tests kill it.
//
//   actor_client HOST:PORT GRACE_S      prints "JOB WORKER ACTOR GENERATION" once it asks
#include <cstdio>
#include <cstdlib>

#include "client/client.h"
#include "tests/e2e/actor_client/driven_job.h"

namespace {

using meshwright::Result;
using meshwright::Status;
namespace client = meshwright::client;

Status Main(char** argv) {
  client::Client::Options options;
  options.address = argv[1];
  MW_ASSIGN_OR_RETURN(const auto connected, client::Client::Connect(options));
  MW_ASSIGN_OR_RETURN(const auto job, meshwright::testing::DoublingJob(std::atoll(argv[2])));
  MW_ASSIGN_OR_RETURN(const auto session, connected->OpenSession(job));
  MW_ASSIGN_OR_RETURN(const client::ActorRef adder, session->Spawn("adder", "0"));
  MW_ASSIGN_OR_RETURN(const std::string first, session->Ask(adder, "1").get());
  std::printf("%lld %s %llu %llu\n", static_cast<long long>(session->job_id()),
              adder.worker.c_str(), static_cast<unsigned long long>(adder.id),
              static_cast<unsigned long long>(adder.generation));
  std::fflush(stdout);
  while (true) {
    MW_ASSIGN_OR_RETURN(const std::string sum, session->Ask(adder, "1").get());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Status status = Main(argv);
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}
